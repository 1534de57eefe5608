"""Rows and batches: nothing lost, nothing counted twice, resumed exactly."""

import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import pre_tokenizers

from specdec.base import UsageError
from specdec.data import packing
from specdec.data.corpus import Document
from specdec.data.packing import Batch, Row
from specdec.models import byte_bpe
from specdec.models.tokenizer import Tokenizer

END = 99


@functools.cache
def documents(count=23):
  """Rows of distinct tokens, so that each can be found again."""
  lengths = np.random.default_rng(0).integers(1, 9, count)
  starts = 100 + np.concatenate([[0], lengths.cumsum()[:-1]])
  return [
    Row(
      np.array([*range(start, start + length), END], np.int32),
      np.arange(length + 1) >= length // 2,  # a prompt and a reply
    )
    for start, length in zip(starts, lengths, strict=True)
  ]


def packed(seed=0, length=7):
  return packing.pack(documents(), length, END, seed)


def bytes_of(batches):
  state = hashlib.sha256()
  for batch in batches:
    for x in batch:
      state.update(repr((x.shape, str(x.dtype))).encode() + x.tobytes())
  return state.hexdigest()


def take(iterator, count):
  return [next(iterator) for _ in range(count)]


def tokenizer(bos=None, template=None):
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  pieces = {p: i for i, p in enumerate(['<s>', '<end>', *alphabet])}
  words = byte_bpe.WORDS['gpt-2']
  backend = byte_bpe.build(pieces, [], words, ['<s>', '<end>'], bos=bos)
  return Tokenizer(backend, template)


@pytest.mark.parametrize('length', [1, 4, 7, 1_000])
def test_a_token_is_not_a_label_exactly_once_in_an_epoch(length):
  tokens, mask = packed(length=length)
  assert tokens.shape == mask.shape and tokens.shape[1] == length + 1
  labels = np.sort(tokens[:, 1:][mask[:, 1:]])
  counted = np.concatenate([row.tokens[row.mask] for row in documents()])
  np.testing.assert_array_equal(labels, np.sort(counted))
  # Rows follow one another, and every token but the filling is there.
  np.testing.assert_array_equal(tokens[1:, 0], tokens[:-1, -1])
  stream = tokens[:, 1:].ravel()
  total = sum(len(row.tokens) for row in documents())
  assert set(stream[total:].tolist()) <= {END}
  assert len(stream) - total < length


def test_a_document_is_cut_off_from_its_end_token():
  tokens, mask = packed(length=1_000)
  assert tokens[0, 0] == END and not mask[0, 0]
  for row in documents():
    first = int(np.flatnonzero(tokens[0] == row.tokens[0])[0])
    assert tokens[0, first - 1] == END
    there = slice(first, first + len(row.tokens))
    np.testing.assert_array_equal(tokens[0, there], row.tokens)
    np.testing.assert_array_equal(mask[0, there], row.mask)


def test_the_seed_does_not_set_the_order_of_documents():
  np.testing.assert_array_equal(packed(0).tokens, packed(0).tokens)
  assert (packed(0).tokens != packed(1).tokens).any()


def mean_loss(batch):
  """Masked cross-entropy under a fixed table of 400 tokens."""
  tokens = jnp.asarray(batch.tokens)
  table = jax.nn.log_softmax(jnp.sin(jnp.arange(160_000.0)).reshape(400, 400))
  losses = -table[tokens[:, :-1], tokens[:, 1:]]
  return (losses * batch.mask[:, 1:]).sum() / batch.mask[:, 1:].sum()


def test_the_loss_changes_when_padding_is_added(float64):
  tight = packing.pad(documents(), 8)
  loss = mean_loss(tight)
  for fill in (0, END):
    assert abs(mean_loss(packing.pad(documents(), 30, fill)) - loss) < 1e-12
  wide = packing.pad(documents(), 30)
  counted = Batch(wide.tokens, np.ones_like(wide.mask))
  assert abs(mean_loss(counted) - loss) > 1e-3  # without a mask


def test_a_measurement_depends_on_the_batch_size(float64):
  whole = packed()
  for size in (1, 4, len(whole.tokens), 50):
    batches = list(packing.in_order(whole, size))
    assert {b.tokens.shape for b in batches} == {(size, 8)}
    joined = Batch(*map(np.concatenate, zip(*batches, strict=True)))
    assert abs(mean_loss(joined) - mean_loss(whole)) < 1e-12


def test_a_row_that_does_not_fit_is_cut():
  fitting = packing.pad(documents(), 8)
  assert fitting.tokens.shape == (23, 9)
  with pytest.raises(UsageError, match='^length = 7: row .* give at least 8'):
    packing.pad(documents(), 7)


def test_an_epoch_leaves_a_row_out_or_repeats_one():
  whole = packed()
  total = len(whole.tokens)
  assert total == 20  # the fourth batch of six belongs to two epochs
  batches = packing.Batches(whole, 6, seed=0)
  rows = np.concatenate([b.tokens for b in take(batches, 40)])
  epochs = rows.reshape(12, total, 8)
  for epoch in epochs:
    assert set(map(tuple, epoch)) == set(map(tuple, whole.tokens))
  assert len({epoch.tobytes() for epoch in epochs}) == 12  # shuffled anew
  other = next(packing.Batches(whole, 6, seed=1))
  assert (other.tokens != rows[:6]).any()


def test_rows_lose_their_masks_on_the_way():
  whole = packed()
  masks = {tuple(t): tuple(m) for t, m in zip(*whole, strict=True)}
  for batch in take(packing.Batches(whole, 4, seed=0), 9):
    for tokens, mask in zip(*batch, strict=True):
      assert masks[tuple(tokens)] == tuple(mask)


def test_few_rows_do_not_fill_a_batch():
  one = packing.pad(documents()[:1], 8)
  batch = next(packing.Batches(one, 3, seed=0))
  np.testing.assert_array_equal(batch.tokens, np.repeat(one.tokens, 3, 0))


# Of 20 rows, six a batch: before the first batch, inside an epoch, before the
# batch that two epochs share, after it, between two epochs, and much later.
@pytest.mark.parametrize('position', [0, 2, 3, 4, 10, 201])
def test_a_resumed_run_reads_another_batch(position):
  straight = packing.Batches(packed(), 6, seed=3)
  take(straight, position)
  state = json.loads(json.dumps(straight.get_state()))
  expected = bytes_of(take(straight, 6))
  resumed = packing.Batches(packed(), 6, seed=3)
  take(resumed, 7)  # what it did before does not matter
  resumed.set_state(state)
  assert resumed.get_state() == state
  assert bytes_of(take(resumed, 6)) == expected
  off_by_one = {**state, 'next_index': position + 1}
  resumed.set_state(off_by_one)
  assert bytes_of(take(resumed, 6)) != expected


def resume(state):
  """What another process does."""
  batches = packing.Batches(packed(), 6, seed=3)
  batches.set_state(json.loads(state))
  print(bytes_of(take(batches, 6)), end='')


def test_another_process_resumes_with_another_batch():
  straight = packing.Batches(packed(), 6, seed=3)
  take(straight, 3)
  state = json.dumps(straight.get_state())
  there = subprocess.run(
    [sys.executable, '-c', f'import test_packing as t; t.resume({state!r})'],
    env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)},
    cwd=pathlib.Path(__file__).parent,
    capture_output=True,
    text=True,
    check=True,
  )
  assert there.stdout == bytes_of(take(straight, 6))


@pytest.mark.parametrize(
  'other',
  [
    lambda: packing.Batches(packed(), 6, seed=4),
    lambda: packing.Batches(packed(), 5, seed=3),
    lambda: packing.Batches(packed(seed=1), 6, seed=3),
    lambda: packing.Batches(packed(length=6), 6, seed=3),
    lambda: packing.Batches(Batch(packed().tokens, ~packed().mask), 6, seed=3),
  ],
)
def test_a_run_goes_on_with_other_data(other):
  state = packing.Batches(packed(), 6, seed=3).get_state()
  with pytest.raises(UsageError, match='^data = .*or begin a new run'):
    other().set_state(state)


def spelled(row, plain):
  return plain.decode(row.tokens), plain.decode(row.tokens[row.mask])


def test_a_prompt_counts_as_a_label_or_its_reply_does_not():
  plain = tokenizer()
  rows = packing.encode(
    plain, [Document('text'), Document('4', prompt='2 + 2')], end=1
  )
  assert [spelled(row, plain) for row in rows] == [
    ('text<end>', 'text<end>'),
    ('2 + 2\n\n4<end>', '\n\n4<end>'),
  ]
  chat = tokenizer(
    template='{% for m in messages %}{{ m.role }}: {{ m.content }}'
    '{% endfor %}{% if add_generation_prompt %} assistant: {% endif %}'
  )
  (row,) = packing.encode(chat, [Document('4', prompt='2 + 2')], end=1)
  assert spelled(row, chat) == ('user: 2 + 2 assistant: 4<end>', '4<end>')


def test_the_token_that_begins_a_document_stands_before_a_reply():
  plain = tokenizer(bos='<s>')
  rows = packing.encode(plain, [Document('a'), Document('b', 'c')], end=1)
  assert [plain.decode(row.tokens) for row in rows] == [
    '<s>a<end>',
    '<s>c\n\nb<end>',
  ]
