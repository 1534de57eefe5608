"""Token-level verification, the classical rule.

Leviathan et al., https://arxiv.org/abs/2211.17192, Algorithm 1; Chen et al.,
https://arxiv.org/abs/2302.01318, Algorithm 2. A draft x is accepted with
probability min(1, p(x) / q(x)); the first rejection is replaced by a draw from
the residual max(p - q, 0), normalised. The identity behind it:
min(p, q) + max(p - q, 0) = p.
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Proposal, Verdict, VerifyRule


def verify(key, position, proposal: Proposal, target_probs) -> Verdict:
  """Accepts a prefix of the drafts and draws one more token.

  Args:
    key: the sequence's key; draws are keyed by `rng.draw_key`.
    position: int32 [], position of the first draft.
    proposal: of G drafts.
    target_probs: float [G+1, V], p after each number of drafts.

  Returns:
    The verdict. Only one row of V enters the residual.
  """
  gamma = proposal.tokens.shape[0]
  slots = jnp.arange(gamma)
  p, q = _drafted_probs(proposal, target_probs)
  keys = jax.vmap(rng.draw_key, (None, None, None, 0))(
    key, position, rng.ACCEPT, slots
  )
  u = jax.vmap(lambda k: jax.random.uniform(k, dtype=p.dtype))(keys)
  # Strict, with u in [0, 1): a token with p = 0 is never accepted.
  accepted = (u * q < p) & (slots < proposal.length)
  n = jnp.sum(jnp.cumprod(accepted.astype(jnp.int32)))

  rejected = n < proposal.length
  stream = jnp.where(rejected, rng.RESIDUAL, rng.BONUS)
  row = target_probs[n]
  if gamma > 0:
    row = jnp.where(rejected, _residual_at(proposal, row, n), row)
  draw = rng.draw_key(key, position, stream, n)
  return Verdict(n.astype(jnp.int32), sampling.categorical(draw, row))


def law(proposal: Proposal, target_probs):
  """P(num_accepted = n, next_token = x | drafts), as float [G+1, V]."""
  gamma = proposal.tokens.shape[0]
  p, q = _drafted_probs(proposal, target_probs)
  valid = jnp.arange(gamma) < proposal.length
  accept = jnp.where(valid, sampling.acceptance(p, q), 0)
  one = jnp.ones(1, target_probs.dtype)
  reach = jnp.cumprod(jnp.concatenate([one, accept]))
  reject = jnp.concatenate([1 - accept, one])
  ends = jnp.arange(gamma + 1) <= proposal.length
  weights = jnp.where(ends, reach * reject, 0)

  slots = jnp.arange(gamma)
  residuals = jax.vmap(lambda i: _residual_at(proposal, target_probs[i], i))
  rows = target_probs
  if gamma > 0:
    rejected = jnp.where(valid[:, None], residuals(slots), target_probs[:-1])
    rows = jnp.concatenate([rejected, target_probs[-1:]])
  return weights[:, None] * rows


def _drafted_probs(proposal, target_probs):
  """p and q of the drafted tokens, each float [G]."""
  slots = jnp.arange(proposal.tokens.shape[0])
  p = target_probs[slots, proposal.tokens]
  if proposal.probs is None:
    return p, jnp.ones_like(p)
  return p, proposal.probs[slots, proposal.tokens]


def _residual_at(proposal, p, n):
  """The residual of row n, float [V], for n < G."""
  n = jnp.minimum(n, proposal.tokens.shape[0] - 1)
  if proposal.probs is None:
    q = jax.nn.one_hot(proposal.tokens[n], p.shape[-1], dtype=p.dtype)
  else:
    q = proposal.probs[n]
  return sampling.residual(p, q)


RULE = VerifyRule(verify, law, lossless=True)
