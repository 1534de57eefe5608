"""Documents to batches of token rows, in an order that can be resumed.

Packing makes one stream, an end token before each document and after the
last, and cuts it into rows of T+1 tokens that share one token with the next:
inputs are `tokens[:, :-1]`, labels `tokens[:, 1:]`. So in an epoch each token
of each document, the end token after it included, is a label exactly once.

Documents in one row see those before them, as in GPT-2 and its kin: the end
token tells the model where to forget, and most rows begin inside a document
anyway. R is the number of rows in all.
"""

import functools
import hashlib
import sys
from typing import NamedTuple

import grain
import numpy as np

from specdec.base import UsageError
from specdec.data import prompts

# Streams of random orders.
_DOCUMENTS, _ROWS = range(2)


class Row(NamedTuple):
  """One document, or one rollout."""

  tokens: np.ndarray  # int32 [N]
  mask: np.ndarray  # bool [N], does the token count as a label?


class Batch(NamedTuple):
  """Rows of one length: B of them in a step, or all R of a corpus."""

  tokens: np.ndarray  # int32 [B, T+1]
  mask: np.ndarray  # bool [B, T+1], does the token count as a label? The first
  # of a row is never one, whatever its mask


def encode(tokenizer, documents, end):
  """Token ids of documents, each with an end token.

  A prompt is encoded as it is for decoding, in the chat template where there
  is one, and does not count as a label. Its text follows as the reply.

  Args:
    tokenizer: models.tokenizer.Tokenizer.
    documents: corpus.Documents.
    end: the token id that ends a document.

  Returns:
    A list of Row.
  """
  return [_encode(tokenizer, document, end) for document in documents]


def _encode(tokenizer, document, end):
  given, text = [], document.text
  if document.prompt:
    message = {'role': 'user', 'content': document.prompt}
    given = prompts.encode(tokenizer, prompts.Prompt('all', [message]))
    if not tokenizer.has_chat:
      text = '\n\n' + text
  learnt = [*tokenizer.encode(text, begins=not document.prompt), end]
  return Row(
    np.array([*given, *learnt], np.int32),
    np.repeat([False, True], [len(given), len(learnt)]),
  )


def pack(rows, length, end, seed):
  """Concatenates documents in random order and cuts the stream into rows.

  Args:
    rows: Rows that end in the end token, at least one.
    length: T, labels in a row.
    end: the end token; it leads the stream, and fills up the last row, where
      it does not count.
    seed: int >= 0, of the documents' order.

  Returns:
    Batch of R rows, read-only.
  """
  assert rows and length >= 1, (len(rows), length)
  order = np.random.default_rng([_DOCUMENTS, seed]).permutation(len(rows))
  tokens = np.concatenate([[end], *(rows[i].tokens for i in order)])
  mask = np.concatenate([[False], *(rows[i].mask for i in order)])
  missing = -(len(tokens) - 1) % length
  tokens = np.pad(tokens.astype(np.int32), (0, missing), constant_values=end)
  mask = np.pad(mask, (0, missing))
  # Windows onto the stream: a token that two rows share is stored once.
  window = functools.partial(
    np.lib.stride_tricks.sliding_window_view, window_shape=length + 1
  )
  return Batch(window(tokens)[::length], window(mask)[::length])


def pad(rows, length, fill=0):
  """Brings rows to one length; what is added at their ends does not count.

  Args:
    rows: Rows, such as rollouts whose mask marks the reply.
    length: T; a row may have T+1 tokens.
    fill: the token id that is added.

  Returns:
    Batch of as many rows.

  Raises:
    UsageError: a row is longer than that.
  """
  tokens = np.full((len(rows), length + 1), fill, np.int32)
  mask = np.zeros((len(rows), length + 1), bool)
  for i, row in enumerate(rows):
    if len(row.tokens) > length + 1:
      raise UsageError(
        f'length = {length}: row {i} has {len(row.tokens)} tokens; give at'
        f' least {len(row.tokens) - 1}'
      )
    tokens[i, : len(row.tokens)] = row.tokens
    mask[i, : len(row.tokens)] = row.mask
  return Batch(tokens, mask)


def in_order(rows, batch_size):
  """Yields all rows once, for a measurement.

  Args:
    rows: Batch of R rows.
    batch_size: B. The last batch is filled up with rows that do not count, so
      that every batch has one shape.

  Yields:
    Batch of B rows.
  """
  for first in range(0, len(rows.tokens), batch_size):
    part = Batch(*(x[first : first + batch_size] for x in rows))
    missing = ((0, batch_size - len(part.tokens)), (0, 0))
    yield Batch(*(np.pad(x, missing) for x in part))


class Batches:
  """An endless iterator over shuffled rows that can be resumed exactly.

  Batch n is a function of the rows, the seed, the batch size and n alone. An
  epoch is a new order of the rows, and the next one goes on within a batch, so
  that no row is left out.
  """

  def __init__(self, rows, batch_size, seed):
    """Begins before the first batch.

    Args:
      rows: Batch of R rows, at least one.
      batch_size: B, rows in a batch.
      seed: int >= 0, of the orders.
    """
    source = _Source(rows, batch_size, seed)
    # The rows are in memory: threads that read ahead would only be in the way.
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    dataset = grain.MapDataset.source(source).to_iter_dataset(options)
    self._iterator = iter(dataset)
    self._source = source
    self._data = source.digest()

  def __iter__(self):
    return self

  def __next__(self):
    """Batch of B rows."""
    return next(self._iterator)

  def at(self, number):
    """The batch of a number from 0, wherever the iterator stands."""
    return self._source[number]

  def get_state(self):
    """The position, as an object that JSON can hold."""
    return {**self._iterator.get_state(), 'data': self._data}

  def set_state(self, state):
    """Goes to a position: the next batch is the one that was next there.

    Raises:
      UsageError: the position belongs to other rows, or to another seed or
        batch size.
    """
    if state.get('data') != self._data:
      raise UsageError(
        f'data = {self._data}: the run to be resumed read {state.get("data")};'
        ' give it the same documents, vocabulary, row length, seed and batch'
        ' size, or begin a new run'
      )
    self._iterator.set_state({'next_index': state['next_index']})


class _Source:
  """Batch n, for every n: what grain calls a random-access source.

  Orders are drawn here, because grain's own shuffle is slow where rows are few:
  the fewer there are, the longer it takes to find one.
  """

  def __init__(self, rows, batch_size, seed):
    assert len(rows.tokens) >= 1 and batch_size >= 1
    self._rows = rows
    self._batch_size = batch_size
    self._seed = seed
    self._order = functools.lru_cache(maxsize=2)(self._draw_order)

  def __len__(self):
    return sys.maxsize // self._batch_size

  def __getitem__(self, n):
    places = range(n * self._batch_size, (n + 1) * self._batch_size)
    total = len(self._rows.tokens)
    picks = [self._order(place // total)[place % total] for place in places]
    return Batch(*(x[picks] for x in self._rows))

  def _draw_order(self, epoch):
    generator = np.random.default_rng([_ROWS, self._seed, epoch])
    return generator.permutation(len(self._rows.tokens))

  def digest(self):
    """A text that names the rows, the batch size and the seed."""
    state = hashlib.blake2b(digest_size=8)
    state.update(repr((self._batch_size, self._seed)).encode())
    for x in self._rows:
      state.update(repr((x.shape, x.dtype)).encode())
      state.update(np.ascontiguousarray(x))
    return state.hexdigest()
