"""Drafts from counts: how often a token came, or came after the last one.

The unigram and bigram drafts of Leviathan et al.,
https://arxiv.org/abs/2211.17192, table 3, of almost no cost. A bigram table of
V^2 numbers would not fit: each token keeps its most frequent successors alone,
and q is zero elsewhere. That costs overlap but no exactness: the residual
max(p - q, 0) brings back what q leaves out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import rng, sampling
from specdec.base import Drafter, Proposal, UsageError
from specdec.drafters import paced
from specdec.drafters.policies import fixed


class Table(NamedTuple):
  """Next-token distributions by last token; R rows of up to N tokens."""

  row: jax.Array  # int32 [V], the row of each last token
  tokens: jax.Array  # int32 [R, N], ascending; V where a row has fewer
  logits: jax.Array  # float32 [R, N], log q; -inf where a row has fewer


def unigram(documents, vocab_size, most=None):
  """How often each token comes: one row, whatever the last token.

  Args:
    documents: arrays of token ids, or one array [N, T] of them.
    vocab_size: V.
    most: tokens kept, the most frequent ones; None keeps all that came.

  Returns:
    Table.

  Raises:
    UsageError: there is no token, or one outside the vocabulary.
  """
  documents = _checked(documents, vocab_size, most)
  counts = _unigram_counts(documents, vocab_size)
  tokens, logits = _row(counts, most or vocab_size)
  return Table(
    jnp.zeros(vocab_size, jnp.int32),
    jnp.asarray(tokens[None], jnp.int32),
    jnp.asarray(logits[None], jnp.float32),
  )


def bigram(documents, vocab_size, most=64):
  """How often each token comes after each other one.

  A token that nothing ever followed has the unigram's row. Counting takes a
  sort of all pairs, with 8 bytes for each.

  Args:
    documents: arrays of token ids, or one array [N, T] of them; no pair
      reaches from one to the next.
    vocab_size: V.
    most: successors kept of each token, the most frequent ones.

  Returns:
    Table, with a row for each token that was followed by one.

  Raises:
    UsageError: there is no token, or one outside the vocabulary.
  """
  documents = _checked(documents, vocab_size, most)
  pairs = [d[:-1].astype(np.int64) * vocab_size + d[1:] for d in documents]
  codes, counts = np.unique(np.concatenate(pairs), return_counts=True)
  last, following = np.divmod(codes, vocab_size)

  # The rank of each successor among its row's, the lower id first on ties.
  order = np.lexsort((following, -counts, last))
  last, following, counts = last[order], following[order], counts[order]
  keep = _place(last) < most
  last, following, counts = last[keep], following[keep], counts[keep]
  # What is left goes by id: on equal probabilities the lowest id is the first.
  order = np.lexsort((following, last))
  last, following, counts = last[order], following[order], counts[order]

  seen, row = np.unique(last, return_inverse=True)
  place = _place(last)
  common, common_logits = _row(_unigram_counts(documents, vocab_size), most)
  width = max(common.size, place.max(initial=0) + 1)
  tokens = np.full((seen.size + 1, width), vocab_size, np.int32)
  logits = np.full(tokens.shape, -np.inf, np.float32)
  tokens[row, place] = following
  total = np.bincount(row, counts, seen.size)
  logits[row, place] = np.log(counts / total[row])
  tokens[-1, : common.size] = common
  logits[-1, : common.size] = common_logits
  row_of = np.full(vocab_size, seen.size, np.int32)
  row_of[seen] = np.arange(seen.size)
  return Table(*map(jnp.asarray, (row_of, tokens, logits)))


def build(vocab_size, gamma, policy=None):
  """A drafter that reads a table.

  Args:
    vocab_size: V.
    gamma: G, most drafts of a round.
    policy: policies.policy.Policy; None drafts gamma tokens in every round.

  Returns:
    base.Drafter; its params are a Table, its state a paced.Paced around
    nothing.

  Raises:
    UsageError: gamma is negative.
  """
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')

  policy = fixed.build(gamma) if policy is None else policy

  def propose(table, state, tokens, length, keys, sampling_params, limit):
    batch = tokens.shape[0]
    rows = jnp.arange(batch)

    def extend(carry):
      slot, going, last, proposal = carry
      row = table.row[last]
      # All that q keeps is in the row: its transform is that of all of V.
      probs = sampling.transform(table.logits[row][:, None], sampling_params)
      probs = probs[:, 0]
      going &= ~policy.before(probs)
      slot_keys = jax.vmap(rng.draw_key, (0, 0, None, None))(
        keys, length, rng.DRAFT, slot
      )
      places = jax.vmap(sampling.categorical)(slot_keys, probs)
      drafts = table.tokens[row, places]
      proposal = Proposal(
        tokens=proposal.tokens.at[:, slot].set(drafts),
        # The numbers that were drawn from, each at its token's id; the ids of
        # absent tokens lie beyond V.
        probs=proposal.probs.at[rows[:, None], slot, table.tokens[row]].set(
          probs, mode='drop'
        ),
        length=proposal.length + going,
      )
      going &= ~policy.after(probs[rows, places]) & (slot + 1 < limit)
      return slot + 1, going, drafts, proposal

    proposal = Proposal(
      jnp.zeros((batch, gamma), jnp.int32),
      jnp.zeros((batch, gamma, vocab_size), table.logits.dtype),
      jnp.zeros(batch, jnp.int32),
    )
    if gamma == 0:
      return proposal, state
    *_, proposal = jax.lax.while_loop(
      lambda carry: jnp.any(carry[1]),
      extend,
      (jnp.int32(0), limit > 0, tokens[rows, length - 1], proposal),
    )
    return proposal, state

  def init(params, tokens, length, features):
    del params, tokens, length, features
    return ()

  def commit(params, state, tokens, length, features):
    del params, tokens, length, features
    return state

  return paced.build(Drafter(init, propose, commit, gamma), policy)


def _checked(documents, vocab_size, most):
  """The documents as flat arrays of ids that the vocabulary has."""
  if most is not None and most < 1:
    raise UsageError(f'draft.most = {most}: it must be at least 1')
  documents = [np.asarray(document).reshape(-1) for document in documents]
  ids = np.concatenate([np.zeros(0, np.int64), *documents])
  if ids.size == 0:
    raise UsageError('documents: they hold no token; give a corpus with text')
  if ids.min() < 0 or ids.max() >= vocab_size:
    raise UsageError(
      f'documents hold token {ids.min() if ids.min() < 0 else ids.max()}: it'
      f' must be in 0..{vocab_size - 1}; encode them with the tokenizer of the'
      ' target'
    )
  return documents


def _unigram_counts(documents, vocab_size):
  return np.bincount(np.concatenate(documents), minlength=vocab_size)


def _row(counts, most):
  """The most frequent tokens, ascending, and their log-probabilities."""
  tokens = np.argsort(-counts, kind='stable')[:most]
  tokens = np.sort(tokens[counts[tokens] > 0])
  return tokens, np.log(counts[tokens] / counts[tokens].sum())


def _place(rows):
  """The index of each entry within its run of equal rows; rows ascend."""
  starts = np.searchsorted(rows, rows)
  return np.arange(rows.size) - starts
