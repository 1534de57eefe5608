"""What rounds would do on given texts, without decoding any.

Whoever drafts, what speculative decoding emits under the token rule has the
target's law, and given the text that came out the fate of each draft is a coin
of known bias: a draft is kept before the token x with the chance
min(1, q(x) / p(x)), and else x is the token that replaced it. So one reading of
the target's own replies tells what every gamma does on them, with all that
follows from where rounds start: after a rejection, that is where drafting is
hard. Leviathan et al., https://arxiv.org/abs/2211.17192, assume the same
chance everywhere.

For a batch, rows go on together, and a target call is as long as the longest
proposal of them all.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import rng, sampling
from specdec.data import packing
from specdec.experiments import drafting
from specdec.train import overlap


class Text(NamedTuple):
  """One reply of N tokens, and the drafts of a round that starts at each."""

  kept: np.ndarray  # float [N, G], chance that the i-th draft is the token that
  # came, once those before it are; 0 beyond the end
  proposed: np.ndarray  # int [N], drafts that the drafter offers there


class Replayed(NamedTuple):
  """Expected figures of a batch."""

  calls: np.ndarray  # float [G+1], target calls by drafts of the longest row
  rounds: np.ndarray  # float [B], rounds in which a row was alive
  drafted_at: np.ndarray  # float [G], drafts by position, of all rows
  accepted_at: np.ndarray  # float [G]


def model_reader(compare, batch_size):
  """Reads for a drafter whose q before a token depends on the text alone.

  Args:
    compare: see overlap.build.
    batch_size: rows at a time.

  Returns:
    (weights, rows, SamplingParams, gamma, max_len) -> a list of Text, one a
    row. It compiles once for all weights, temperatures and gammas. The
    parameters are of batch_size rows or more, all alike.
  """
  jitted = jax.jit(lambda *args: compare(*args).kept)

  def read(weights, rows, params, gamma, max_len):
    padded = packing.pad(rows, max_len - 1)
    longest = max(row.tokens.size for row in rows)
    params = jax.tree.map(lambda x: x[:batch_size], params)
    parts = [
      jax.device_get(jitted(weights, batch.tokens, params, longest))
      for batch in packing.in_order(padded, batch_size)
    ]
    kept = np.concatenate(parts)[: len(rows)]
    return [
      _windows(line[: row.mask.size][row.mask], gamma)
      for line, row in zip(kept, rows, strict=True)
    ]

  return read


def _windows(kept, gamma):
  """The Text of one draft a token: rounds take them in turn."""
  padded = np.pad(kept, (0, gamma))
  windows = np.lib.stride_tricks.sliding_window_view(padded, gamma)
  return Text(windows[: kept.size], np.full(kept.size, gamma))


def point_reader(drafter, max_new_tokens):
  """Reads for a drafter of point masses that has no state, such as `ngram`.

  Args:
    drafter: base.Drafter of the longest rounds.
    max_new_tokens: of a reply.

  Returns:
    As `model_reader`; gamma is at most the drafter's. A draft is kept where it
    is the token that came, whatever p.
  """

  @jax.jit
  def propose(tokens, begin):
    lengths = jnp.minimum(begin + jnp.arange(max_new_tokens), tokens.size)
    texts = jnp.broadcast_to(tokens, (max_new_tokens, tokens.size))
    state = drafter.init(None, texts, lengths, None)
    proposal, _ = drafter.propose(
      None,
      state,
      texts,
      lengths,
      rng.sequence_keys(0, max_new_tokens),
      sampling.params(max_new_tokens, 0.0),
    )
    return proposal.tokens, proposal.length

  def read(weights, rows, params, gamma, max_len):
    del weights, params
    texts = []
    for row in rows:
      begin = int(np.argmax(row.mask))
      padded = np.pad(row.tokens, (0, max_len - row.tokens.size))
      drafts, lengths = jax.device_get(propose(padded, begin))
      num = row.tokens.size - begin
      coming = np.pad(row.tokens[begin:], (0, gamma), constant_values=-1)
      coming = np.lib.stride_tricks.sliding_window_view(coming, gamma)
      texts.append(
        Text(
          (drafts[:num, :gamma] == coming[:num]).astype(float),
          np.minimum(lengths[:num], gamma),
        )
      )
    return texts

  return read


def run(texts, budget, gamma, trials=256, seed=0) -> Replayed:
  """Plays the rounds of a batch again and again.

  Args:
    texts: a list of B Text of at least gamma drafts, each not empty.
    budget: most new tokens of a row.
    gamma: most drafts of a round.
    trials: plays; the figures are their means.
    seed: of the coins, an int or several; another one for each batch.

  Returns:
    Replayed.
  """
  ends = np.array([len(text.kept) for text in texts])
  kept = np.zeros((len(texts), ends.max(), gamma))
  proposed = np.zeros((len(texts), ends.max()), int)
  for row, text in enumerate(texts):
    kept[row, : ends[row]] = text.kept[:, :gamma]
    proposed[row, : ends[row]] = text.proposed
  draws, slots = np.random.default_rng(seed), np.arange(gamma)
  rows = np.arange(len(texts))[None]
  at = np.zeros((trials, len(texts)), int)
  calls, rounds = np.zeros(gamma + 1), np.zeros(len(texts))
  drafted_at, accepted_at = np.zeros((2, gamma))
  while (alive := at < ends).any():
    here = np.minimum(at, ends - 1)
    # As in the loop: a budget of r tokens has no use for more than r - 1.
    drafts = np.minimum(
      np.minimum(proposed[rows, here], gamma), budget - at - 1
    )
    drafts = np.where(alive, drafts, 0)
    drafted = slots < drafts[..., None]
    accepted = drafted & (draws.random(drafted.shape) < kept[rows, here])
    accepted = np.logical_and.accumulate(accepted, -1)
    at += np.where(alive, accepted.sum(-1) + 1, 0)
    going = alive.any(-1)
    calls += np.bincount(drafts.max(-1)[going], minlength=gamma + 1)
    rounds += alive.sum(0)
    drafted_at += drafted.sum((0, 1))
    accepted_at += accepted.sum((0, 1))
  return Replayed(
    *(x / trials for x in (calls, rounds, drafted_at, accepted_at))
  )


def reader(config, decoding, max_new_tokens):
  """The reader of a config's drafter.

  Args:
    config: setup.DecodeConfig of the longest rounds.
    decoding: setup.Decoding, of that config.
    max_new_tokens: of a reply.

  Returns:
    See `model_reader`.
  """
  config = dataclasses.replace(config, policy='fixed', rule='token')
  vocab_size = decoding.target.vocab_size
  if config.drafter == 'ngram':
    drafter = drafting.drafter_of(config, None, vocab_size)
    return point_reader(drafter, max_new_tokens)
  if decoding.draft is None:
    one = dataclasses.replace(config, gamma=1)
    drafter = drafting.drafter_of(one, None, vocab_size)
    of_draft = overlap.of_drafter(drafter, vocab_size)
  else:
    of_draft = overlap.of_model(decoding.draft)
  compare = overlap.build(overlap.of_model(decoding.target), of_draft)
  return model_reader(compare, config.batch_size)
