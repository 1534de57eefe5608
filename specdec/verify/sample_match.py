"""Sample from the target, and accept a draft that equals the sample.

What assisted generation does without a draft's probabilities: every emitted
token is the target's own sample, so the law is p whatever the draft; a draft x
is accepted with probability p(x). For drafts x ~ q that is sum_x p(x) q(x) in
the mean, never more than the overlap sum_x min(p(x), q(x)).
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Proposal, Verdict, VerifyRule
from specdec.verify import drafts


def verify(key, position, proposal: Proposal, target_probs) -> Verdict:
  """Accepts the drafts up to the first that is not the sample."""
  keys = jax.vmap(rng.draw_key, (None, None, None, 0))(
    key, position, rng.BONUS, jnp.arange(target_probs.shape[0])
  )
  samples = jax.vmap(sampling.categorical)(keys, target_probs)
  return match(proposal, samples)


def match(proposal: Proposal, samples) -> Verdict:
  """The verdict on drafts given the target's samples, int32 [G+1]."""
  valid = jnp.arange(proposal.tokens.shape[0]) < proposal.length
  n = drafts.num_leading((samples[:-1] == proposal.tokens) & valid)
  return Verdict(n, samples[n])


def law(proposal: Proposal, target_probs):
  """P(num_accepted = n, next_token = x | drafts), as float [G+1, V]."""
  p, _ = drafts.drafted_probs(proposal, target_probs)
  valid = jnp.arange(p.size) < proposal.length
  accept = jnp.where(valid, p, 0)
  # The sample of a rejected slot is any token but its draft.
  slots = jnp.arange(p.size)
  others = target_probs.at[slots, proposal.tokens].multiply(1 - valid)
  left = 1 - jnp.append(accept, 0)
  rows = others / jnp.where(left > 0, left, 1)[:, None]
  return drafts.end_probs(accept, proposal.length)[:, None] * rows


RULE = VerifyRule(verify, law, lossless=True)
