"""Rules that are wrong on purpose: the controls of every proof.

Each looks right and bends the target's law. A test of losslessness that lets
one of them pass proves nothing.
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Verdict, VerifyRule
from specdec.verify import block, drafts, token


def _end(proposal, target_probs, n):
  """What the n-th token is drawn from after n kept drafts, [V]."""
  p = target_probs[n]
  gamma = proposal.tokens.shape[0]
  if gamma == 0:
    return p
  rest = sampling.residual(p, drafts.draft_row(proposal, n, p))
  return jnp.where(n < proposal.length, rest, p)


# Wrong: the correction is drawn from p instead of the residual.
def _correct_from_p(key, position, proposal, target_probs):
  n = token.verify(key, position, proposal, target_probs).num_accepted
  draw = rng.draw_key(key, position, rng.RESIDUAL, n)
  return Verdict(n, sampling.categorical(draw, target_probs[n]))


def _correct_from_p_law(proposal, target_probs):
  weights = token.law(proposal, target_probs).sum(-1, keepdims=True)
  return weights * target_probs


CORRECT_FROM_P = VerifyRule(_correct_from_p, _correct_from_p_law, False)


# Wrong: a draft is accepted iff it is p's argmax.
def _num_best(proposal, target_probs):
  best = jnp.argmax(target_probs[:-1], -1) == proposal.tokens
  return drafts.num_leading(best & (jnp.arange(best.size) < proposal.length))


def _accept_argmax(key, position, proposal, target_probs):
  n = _num_best(proposal, target_probs)
  draw = rng.draw_key(key, position, rng.RESIDUAL, n)
  return Verdict(n, sampling.categorical(draw, _end(proposal, target_probs, n)))


def _accept_argmax_law(proposal, target_probs):
  n = _num_best(proposal, target_probs)
  ends = jax.nn.one_hot(n, target_probs.shape[0], dtype=target_probs.dtype)
  return ends[:, None] * _end(proposal, target_probs, n)[None]


ACCEPT_ARGMAX = VerifyRule(_accept_argmax, _accept_argmax_law, False)


# Wrong: the correction re-uses the noise of the draft that it replaces.
def _reuse_noise(key, position, proposal, target_probs):
  n = token.verify(key, position, proposal, target_probs).num_accepted
  draw = rng.draw_key(key, position, rng.DRAFT, n)
  return Verdict(n, sampling.categorical(draw, _end(proposal, target_probs, n)))


REUSE_NOISE = VerifyRule(_reuse_noise, token.law, False)


def drop_unlikely(threshold):
  """Wrong: a draft with q(x) under a threshold is dropped, and all behind."""

  def shorten(proposal):
    slots = jnp.arange(proposal.tokens.shape[0])
    likely = proposal.probs[slots, proposal.tokens] >= threshold
    length = drafts.num_leading(likely)
    return proposal._replace(length=jnp.minimum(length, proposal.length))

  def verify(key, position, proposal, target_probs):
    return token.verify(key, position, shorten(proposal), target_probs)

  def law(proposal, target_probs):
    return token.law(shorten(proposal), target_probs)

  return VerifyRule(verify, law, False)


# Wrong: block verification with noise keyed by absolute position alone. What
# a failed draft's uniform said is met again in the next round.
def _by_position(key, position, proposal, target_probs):
  gamma = proposal.tokens.shape[0]
  joint, keep = block.levels(proposal, target_probs)
  places = position + jnp.arange(gamma + 1)
  keys = jax.vmap(rng.draw_key, (None, 0, None, None))(
    key, places, rng.ACCEPT, 0
  )
  u = jax.vmap(lambda k: jax.random.uniform(k, dtype=keep.dtype))(keys[:gamma])
  kept = jnp.where(u < keep[1:], jnp.arange(1, gamma + 1), 0)
  n = jnp.max(kept, initial=0).astype(jnp.int32)
  draw = rng.draw_key(key, position + n, rng.RESIDUAL, 0)
  row = block.end_weights(proposal, target_probs[n], joint[n], n)
  return Verdict(n, sampling.categorical(draw, row))


BLOCK_BY_POSITION = VerifyRule(_by_position, block.law, False)
