"""Verification rules that only tests know: wrong ones, and one slow right one.

The wrong ones are the negative controls of every test of a law.
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Verdict, VerifyRule
from specdec.verify import token


def _gather(proposal):
  slots = jnp.arange(proposal.tokens.shape[0])
  return slots, proposal.tokens


def _end(proposal, target_probs, n):
  """What the n-th token is drawn from after n kept drafts, [V]."""
  p = target_probs[n]
  gamma = proposal.tokens.shape[0]
  if gamma == 0:
    return p
  rest = sampling.residual(p, proposal.probs[jnp.minimum(n, gamma - 1)])
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
  slots, tokens = _gather(proposal)
  best = jnp.argmax(target_probs[:-1], -1) == tokens
  kept = jnp.cumprod((best & (slots < proposal.length)).astype(jnp.int32))
  return jnp.sum(kept).astype(jnp.int32)


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
    slots, tokens = _gather(proposal)
    likely = proposal.probs[slots, tokens] >= threshold
    length = jnp.sum(jnp.cumprod(likely.astype(jnp.int32)))
    return proposal._replace(length=jnp.minimum(length, proposal.length))

  def verify(key, position, proposal, target_probs):
    return token.verify(key, position, shorten(proposal), target_probs)

  def law(proposal, target_probs):
    return token.law(shorten(proposal), target_probs)

  return VerifyRule(verify, law, False)


# Right, and slower: the target samples, and a draft counts if it is the sample.
def _match(key, position, proposal, target_probs):
  slots, tokens = _gather(proposal)
  keys = jax.vmap(rng.draw_key, (None, None, None, 0))(
    key, position, rng.BONUS, jnp.arange(target_probs.shape[0])
  )
  samples = jax.vmap(sampling.categorical)(keys, target_probs)
  same = (samples[:-1] == tokens) & (slots < proposal.length)
  n = jnp.sum(jnp.cumprod(same.astype(jnp.int32))).astype(jnp.int32)
  return Verdict(n, samples[n])


def _match_law(proposal, target_probs):
  slots, tokens = _gather(proposal)
  p = target_probs[slots, tokens]
  p = jnp.where(slots < proposal.length, p, 0)
  one = jnp.ones(1, target_probs.dtype)
  reach = jnp.cumprod(jnp.concatenate([one, p]))
  drafted = jax.nn.one_hot(tokens, target_probs.shape[-1], dtype=p.dtype)
  drafted *= (slots < proposal.length)[:, None]
  others = target_probs * jnp.pad(
    1 - drafted, ((0, 1), (0, 0)), 'constant', constant_values=1
  )
  return reach[:, None] * others


MATCH = VerifyRule(_match, _match_law, True)
