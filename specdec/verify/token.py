"""Token-level verification, the classical rule.

Leviathan et al., https://arxiv.org/abs/2211.17192, Algorithm 1; Chen et al.,
https://arxiv.org/abs/2302.01318, Algorithm 2. A draft x is accepted with
probability min(1, p(x) / q(x)); the first rejection is replaced by a draw from
the residual max(p - q, 0), normalised. The identity behind it:
min(p, q) + max(p - q, 0) = p.
"""

import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Proposal, Verdict, VerifyRule
from specdec.verify import drafts


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
  p, q = drafts.drafted_probs(proposal, target_probs)
  u = rng.uniforms(key, position, gamma, p.dtype)
  # Strict, with u in [0, 1): a token with p = 0 is never accepted.
  n = drafts.num_leading((u * q < p) & (jnp.arange(gamma) < proposal.length))

  rejected = n < proposal.length
  stream = jnp.where(rejected, rng.RESIDUAL, rng.BONUS)
  row = target_probs[n]
  if gamma > 0:
    # Not normalised: a draw does not need it.
    rest = sampling.excess(row, drafts.draft_row(proposal, n, row))
    row = jnp.where(rejected, rest, row)
  draw = rng.draw_key(key, position, stream, n)
  return Verdict(n, sampling.categorical(draw, row))


def law(proposal: Proposal, target_probs):
  """P(num_accepted = n, next_token = x | drafts), as float [G+1, V]."""
  gamma = proposal.tokens.shape[0]
  p, q = drafts.drafted_probs(proposal, target_probs)
  valid = jnp.arange(gamma) < proposal.length
  accept = jnp.where(valid, sampling.acceptance(p, q), 0)
  rows = target_probs
  if gamma > 0:
    p = target_probs[:-1]
    residuals = sampling.residual(p, drafts.draft_rows(proposal, target_probs))
    rejected = jnp.where(valid[:, None], residuals, p)
    rows = jnp.concatenate([rejected, target_probs[-1:]])
  return drafts.end_probs(accept, proposal.length)[:, None] * rows


RULE = VerifyRule(verify, law, lossless=True)
