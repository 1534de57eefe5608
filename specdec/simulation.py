"""Rounds by simulation, and the chi-square test that judges them.

What `VerifyRule.verify` does with a great many keys, beside what
`VerifyRule.law` says about it. Exact laws are in `exact`.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specdec import rng
from specdec.base import Proposal

# Where the first draft stands; any position does.
POSITION = 7


def count_rounds(rule, draw, p, q, num):
  """Runs whole rounds: drafts are drawn, then verified.

  Args:
    rule: base.VerifyRule.
    draw: (key, position, slot, probs [V]) -> token, the drafter's.
    p: the target's tree, of depth gamma + 1; see `exact`.
    q: the draft's, of depth gamma.
    num: rounds, each with a key of its own.

  Returns:
    int [V**gamma, gamma + 1, V], how often each (drafts, num_accepted,
    next_token) came out; its law is joint(q) times `exact.path_laws`.
  """
  gamma, vocab = len(q), p[0].size
  flat = [
    tuple(jnp.asarray(level, jnp.float32).reshape(-1, vocab) for level in tree)
    for tree in (p, q)
  ]
  path, accepted, token = _rounds(rule.verify, draw, num)(*flat)
  counts = np.zeros((vocab**gamma, gamma + 1, vocab), int)
  np.add.at(counts, (np.asarray(path), accepted, token), 1)
  return counts


@functools.cache
def _rounds(verify, draw, num):
  """`num` rounds under trees of flat levels, [V**d, V] each; jitted."""

  def row(p, q, key):
    vocab = p[0].shape[-1]
    path, tokens, rows = jnp.int32(0), [], []
    for slot, level in enumerate(q):
      rows.append(level[path])
      tokens.append(draw(key, POSITION, slot, rows[-1]))
      path = path * vocab + tokens[-1]
    prefixes = [path // vocab ** (len(q) - d) for d in range(len(p))]
    target = jnp.stack(
      [level[at] for level, at in zip(p, prefixes, strict=True)]
    )
    proposal = Proposal(
      jnp.stack(tokens) if tokens else jnp.zeros(0, jnp.int32),
      jnp.stack(rows) if rows else jnp.zeros((0, vocab)),
      jnp.int32(len(q)),
    )
    return path, *verify(key, POSITION, proposal, target)

  def run(p, q):
    keys = rng.sequence_keys(0, num)
    return jax.vmap(row, (None, None, 0))(p, q, keys)

  return jax.jit(run)


def count_verdicts(rule, proposal, target_probs, num=100_000):
  """How often each (num_accepted, next_token) comes out of `rule.verify`.

  Args:
    rule: base.VerifyRule.
    proposal: base.Proposal of G drafts.
    target_probs: float32 [G+1, V].
    num: keys.

  Returns:
    int [G+1, V].
  """
  verdict = verify_many(rule, num)(proposal, target_probs)
  counts = np.zeros(target_probs.shape, int)
  np.add.at(counts, (verdict.num_accepted, verdict.next_token), 1)
  return counts


@functools.cache
def verify_many(rule, num):
  """`rule.verify` of one proposal under many keys.

  Args:
    rule: base.VerifyRule.
    num: keys.

  Returns:
    A function (proposal, target_probs) -> base.Verdict of [num], jitted.
  """

  def run(proposal, target_probs):
    return jax.vmap(rule.verify, (0, None, None, None))(
      rng.sequence_keys(0, num), POSITION, proposal, target_probs
    )

  return jax.jit(run)


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
  counts, expected = counts[some], expected[some]
  statistic = ((counts - expected) ** 2 / expected).sum()
  freedom = counts.size - 1
  if freedom == 0:
    return 1.0
  with jax.enable_x64(True):
    return float(jax.scipy.special.gammaincc(freedom / 2, statistic / 2))
