"""Exact laws of strings, by enumeration, and the chi-square test beside them.

A tree is a list of conditionals: tree[d], [V] * d + [V], is the distribution
of the next token after each string of d tokens.
"""

import functools
import itertools

import jax
import numpy as np
from scipy import stats

from specdec.base import Proposal


def tree(rng, vocab, depth, zeros=0.0):
  """Random conditionals for strings of `depth` tokens.

  Args:
    rng: numpy Generator.
    vocab: V.
    depth: levels of the tree.
    zeros: probability that an entry is 0.
  """
  levels = []
  for d in range(depth):
    level = rng.dirichlet(np.ones(vocab), (vocab,) * d)
    level = np.where(rng.random(level.shape) < zeros, 0, level)
    # A row that lost everything becomes a point mass.
    level[..., 0] += level.sum(-1) == 0
    levels.append(level / level.sum(-1, keepdims=True))
  return levels


def joint(levels):
  """The law of whole strings, [V] * depth."""
  total = np.ones(())
  for level in levels:
    total = total[..., None] * level
  return total


def paths(vocab, gamma):
  """All drafts of gamma tokens, int32 [V**gamma, gamma]."""
  rows = list(itertools.product(range(vocab), repeat=gamma))
  return np.array(rows, np.int32).reshape(vocab**gamma, gamma)


def along(levels, drafts):
  """Each level's row at the prefix of each draft, [N, depth, V]."""
  rows = [
    level[tuple(drafts[:, :d].T)] if d else np.tile(level, (len(drafts), 1))
    for d, level in enumerate(levels)
  ]
  return np.stack(rows, 1)


def output_law(rule, p, q, lengths=None, point=False):
  """The law of the first gamma + 1 output tokens of a round.

  Args:
    rule: base.VerifyRule.
    p: the target's tree, of depth gamma + 1.
    q: the draft's, of depth gamma.
    lengths: int [V**gamma], valid drafts of each path; None is all.
    point: declare point masses instead of q.

  Returns:
    float [V] * (gamma + 1). A shorter output is completed by p.
  """
  gamma, vocab = len(q), p[0].size
  drafts = paths(vocab, gamma)
  if lengths is None:
    lengths = np.full(len(drafts), gamma)
  probs = np.zeros((1, 0, vocab)) if gamma == 0 else along(q, drafts)
  probs = None if point else probs
  law = laws(rule, drafts, probs, lengths, along(p, drafts))
  law = law.reshape(*(vocab,) * gamma, gamma + 1, vocab)
  weight = joint(q)[..., None]
  total = np.zeros(())
  for n in range(gamma + 1):
    ended = (weight * law[..., n, :]).sum(tuple(range(n, gamma)))
    total = total[..., None] * p[n] + ended
  return total


def laws(rule, drafts, probs, lengths, target_probs):
  """`rule.law` of many drafts, as numpy."""
  proposal = Proposal(drafts, probs, np.asarray(lengths, np.int32))
  return np.asarray(_batched_law(rule.law)(proposal, target_probs))


@functools.cache
def _batched_law(law):
  return jax.jit(jax.vmap(law))


def p_value(counts, probs):
  """Chi-square p-value of counts under a law of the same shape.

  Cells that expect fewer than 5 are put together. A count where the law has
  no mass has p-value 0.
  """
  counts, probs = (np.ravel(x).astype(np.float64) for x in (counts, probs))
  if counts[probs == 0].any():
    return 0.0
  expected = probs / probs.sum() * counts.sum()
  rare = expected < 5
  counts = np.append(counts[~rare], counts[rare].sum())
  expected = np.append(expected[~rare], expected[rare].sum())
  some = expected > 0
  return stats.chisquare(counts[some], expected[some]).pvalue


def markov_joint(first, table, length):
  """The law of strings of a Markov chain.

  Args:
    first: [V], law of the first token.
    table: [V, V], by last token.
    length: tokens of a string.
  """
  total = np.asarray(first, float)
  for _ in range(length - 1):
    total = total[..., None] * table
  return total


def count_strings(strings, vocab):
  """How often each string of [N, length] occurs, [V] * length."""
  strings = np.asarray(strings)
  index = np.ravel_multi_index(tuple(strings.T), (vocab,) * strings.shape[1])
  counts = np.bincount(index, minlength=vocab ** strings.shape[1])
  return counts.reshape((vocab,) * strings.shape[1])


def sorted_transform(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
  """`sampling.transform` of one row of logits [V], by sorting, in float64."""
  logits = np.asarray(logits, np.float64)
  if temperature < 1e-5:
    return np.eye(logits.size)[logits.argmax()]
  scaled = (logits - logits.max()) / temperature
  probs = np.exp(scaled) / np.exp(scaled).sum()
  order = np.argsort(-probs, kind='stable')  # ties: lowest id first
  if 0 < top_k < logits.size:
    probs[order[top_k:]] = 0
    probs /= probs.sum()
  if top_p < 1:
    ahead = np.cumsum(probs[order]) - probs[order]
    probs[order[ahead >= top_p]] = 0
    probs /= probs.sum()
  if min_p > 0:
    probs[probs < min_p * probs.max()] = 0
    probs /= probs.sum()
  return probs
