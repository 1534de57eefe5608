"""Exact laws of a round, by enumeration.

A tree is a list of conditionals: tree[d], [V] * d + [V], is the distribution
of the next token after each string of d tokens. Summed over all drafts x,
weighted with q(x), `VerifyRule.law` gives the law of what a round puts out;
a rule is lossless when that is the target's, whatever p, q and the lengths.
Everything is small (V <= 5, gamma <= 4), and in float64 exact to 1e-12.
"""

import functools
import itertools
from typing import NamedTuple

import jax
import numpy as np

from specdec.base import Proposal

# Compiling a law takes longer than running it; half of that is saved.
QUICK = {'xla_backend_optimization_level': 0}


def tree(rng, vocab, depth, zeros=0.0):
  """Random conditionals for strings of `depth` tokens.

  Args:
    rng: numpy Generator.
    vocab: V.
    depth: levels of the tree.
    zeros: probability that an entry is 0.

  Returns:
    A tree.
  """
  levels = []
  for d in range(depth):
    level = rng.dirichlet(np.ones(vocab), (vocab,) * d)
    level = np.where(rng.random(level.shape) < zeros, 0, level)
    # A row that lost everything becomes a point mass.
    level[..., 0] += level.sum(-1) == 0
    levels.append(level / level.sum(-1, keepdims=True))
  return levels


def point_masses(levels):
  """The tree of argmaxes."""
  return [np.eye(level.shape[-1])[level.argmax(-1)] for level in levels]


def pairs(rng, vocab, gamma):
  """Trees of target and draft, by what is peculiar about them.

  Args:
    rng: numpy Generator.
    vocab: V, at least 2.
    gamma: drafts.

  Yields:
    (name, p of depth gamma + 1, q of depth gamma), ten of them.
  """
  p = tree(rng, vocab, gamma + 1)
  q = tree(rng, vocab, gamma)
  yield 'dense', p, q
  yield 'equal', p, p[:-1]
  yield 'uniform target', [np.full_like(level, 1 / vocab) for level in p], q
  yield 'target is a point mass', point_masses(p), q
  yield 'draft is a point mass', p, point_masses(q)
  yield 'two point masses', point_masses(p), point_masses(q)
  yield (
    'zeros',
    tree(rng, vocab, gamma + 1, zeros=0.5),
    tree(rng, vocab, gamma, zeros=0.5),
  )
  # Multiples of 1/8 sum and divide without rounding, and often meet.
  yield (
    'ties',
    *([_eighths(rng, level.shape) for level in levels] for levels in (p, q)),
  )
  yield 'nearly equal', p, [_blend(p[d], q[d], 1e-9) for d in range(gamma)]
  even = np.arange(vocab) % 2
  yield (
    'disjoint',
    *(
      [level / level.sum(-1, keepdims=True) for level in levels]
      for levels in ([a * even for a in p], [b * (1 - even) for b in q])
    ),
  )


def joint(levels):
  """The law of whole strings, [V] * depth."""
  total = np.ones(())
  for level in levels:
    total = total[..., None] * level
  return total


class Paths(NamedTuple):
  """All drafts of a pair of trees, and the rows that they meet."""

  drafts: np.ndarray  # int32 [N, G], N = V**G
  probs: np.ndarray  # float [N, G, V], what each token was drawn from
  target_probs: np.ndarray  # float [N, G+1, V]


def paths(p, q):
  """Every draft under a pair of trees.

  Args:
    p: the target's tree, of depth gamma + 1.
    q: the draft's, of depth gamma.

  Returns:
    Paths, in the order of `itertools.product`.
  """
  gamma, vocab = len(q), p[0].size
  rows = list(itertools.product(range(vocab), repeat=gamma))
  drafts = np.array(rows, np.int32).reshape(vocab**gamma, gamma)
  probs = _along(q, drafts) if gamma else np.zeros((1, 0, vocab))
  return Paths(drafts, probs, _along(p, drafts))


def draft_lengths(policy, paths):
  """How many drafts each path has under an early-stopping policy.

  Args:
    policy: drafters.policies.policy.Policy, in a round that its limit leaves
      at full length.
    paths: Paths of N drafts.

  Returns:
    int [N].
  """
  count, gamma = paths.drafts.shape
  before, after = jax.jit(policy.before), jax.jit(policy.after)
  going, lengths = np.ones(count, bool), np.zeros(count, int)
  for slot in range(gamma):
    probs = paths.probs[:, slot]
    going = going & ~np.asarray(before(probs))
    lengths += going
    chosen = probs[np.arange(count), paths.drafts[:, slot]]
    going = going & ~np.asarray(after(chosen))
  return lengths


def path_laws(rule, paths, lengths=None, point=False):
  """`rule.law` on every path.

  Args:
    rule: base.VerifyRule.
    paths: Paths of N drafts.
    lengths: int [N], valid drafts of each path; None is all.
    point: declare point masses instead of q.

  Returns:
    float [N, G+1, V].
  """
  count, gamma = paths.drafts.shape
  if lengths is None:
    lengths = np.full(count, gamma)
  proposal = Proposal(
    paths.drafts, None if point else paths.probs, np.asarray(lengths, np.int32)
  )
  return np.asarray(_batched_law(rule.law)(proposal, paths.target_probs))


def output_law(law, p, q):
  """The law of the first gamma + 1 output tokens of a round.

  Args:
    law: of `path_laws`.
    p: the target's tree; it completes a shorter output.
    q: the draft's.

  Returns:
    float [V] * (gamma + 1).
  """
  gamma, vocab = len(q), p[0].size
  law = law.reshape(*(vocab,) * gamma, gamma + 1, vocab)
  weight = joint(q)[..., None]
  total = np.zeros(())
  for n in range(gamma + 1):
    ended = (weight * law[..., n, :]).sum(tuple(range(n, gamma)))
    total = total[..., None] * p[n] + ended
  return total


def text_law(rule, limit, p, q):
  """The law of whole texts, round after round until the budget is spent.

  Args:
    rule: base.VerifyRule.
    limit: (history) -> int, the most drafts of the next round; history is a
      tuple of (drafted, accepted), one for each round so far.
    p: the target's tree, as deep as the budget.
    q: the draft's, one level less deep.

  Returns:
    float [V] * len(p).
  """
  vocab = p[0].size

  def rest(prefix, history):
    """The law of what follows a prefix, [V] * what is left."""
    depth = len(prefix)
    left = len(p) - depth
    if left == 0:
      return np.ones(())
    gamma = min(limit(history), left - 1)
    drafts = [level[prefix] for level in q[depth : depth + gamma]]
    here = [level[prefix] for level in p[depth : depth + gamma + 1]]
    law = path_laws(rule, paths(here, drafts))
    law = law.reshape(*(vocab,) * gamma, gamma + 1, vocab)
    law = joint(drafts)[..., None, None] * law
    total = np.zeros((vocab,) * left)
    for n in range(gamma + 1):
      mass = law[..., n, :].sum(tuple(range(n, gamma)))
      for tokens in np.argwhere(mass > 0):
        tokens = tuple(map(int, tokens))
        after = rest(prefix + tokens, (*history, (gamma, n)))
        total[tokens] += mass[tokens] * after
    return total

  return rest((), ())


def expected_accepted(law, q):
  """E[tau], the mean number of accepted drafts of a round.

  Args:
    law: of `path_laws`.
    q: the draft's tree.
  """
  accepted = law.sum(-1) @ np.arange(law.shape[1])
  return float(joint(q).ravel() @ accepted)


def accepted_bound(p, q):
  """The most that E[tau] can be, for drafts of full length.

  No lossless rule accepts the first i drafts with a higher probability than
  1 - TV of the joints of i tokens = sum_x min(p(x), q(x)).
  """
  return sum(
    float(np.minimum(joint(p[:i]), joint(q[:i])).sum())
    for i in range(1, len(q) + 1)
  )


@functools.cache
def _batched_law(law):
  return jax.jit(jax.vmap(law), compiler_options=QUICK)


def _along(levels, drafts):
  """Each level's row at the prefix of each draft, [N, depth, V]."""
  rows = [
    level[tuple(drafts[:, :d].T)] if d else np.tile(level, (len(drafts), 1))
    for d, level in enumerate(levels)
  ]
  return np.stack(rows, 1)


def _eighths(rng, shape):
  """Rows of multiples of 1/8 that sum to 1."""
  counts = rng.multinomial(8, np.full(shape[-1], 1 / shape[-1]), shape[:-1])
  return counts / 8


def _blend(p, q, weight):
  return (1 - weight) * p + weight * q
