"""A second model of the same vocabulary, with a cache of its own.

Leviathan et al., https://arxiv.org/abs/2211.17192. The draft's distribution is
the same transform of its logits as the target's, and the very array that a
token is drawn from is what the verifier divides by. The draft model runs only
as often as the longest draft of the batch asks for, and not at all in a round
without one; what was committed meanwhile is fed when a row drafts again.
"""

import jax
import jax.numpy as jnp

from specdec import cache as cache_lib
from specdec import rng, sampling
from specdec.base import Drafter, Proposal, UsageError
from specdec.drafters import paced
from specdec.drafters.policies import fixed
from specdec.verify import coupled


def build(model, gamma, policy=None, shares_noise=False):
  """A drafter that decodes up to `gamma` tokens with a model.

  Args:
    model: base.Model, of the target's vocabulary.
    gamma: G, most drafts of a round.
    policy: policies.policy.Policy; None drafts gamma tokens in every round.
      The model is not called again once every row of the batch has stopped.
    shares_noise: draw with the target's noise, for the rule `coupled`.

  Returns:
    base.Drafter; its params are the model's, its state a paced.Paced around
    the model's cache, whose length is that of the valid rows.

  Raises:
    UsageError: gamma is negative.
  """
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')
  policy = fixed.build(gamma) if policy is None else policy
  draw = coupled.draw if shares_noise else draw_own

  def init(params, tokens, length, features):
    del features
    return cache_lib.fill(model, params, tokens, length)[0]

  def catch_up(params, cache, tokens, length, going):
    """Feeds what was committed while a row did not draft."""
    rows = jnp.arange(length.size)[:, None]

    def feed(cache):
      # As wide as a round: the buffer has room for that behind every row.
      places = cache.length[:, None] + jnp.arange(gamma + 1)[None]
      output = model.apply(params, tokens[rows, places], cache)
      fed = jnp.minimum(cache.length + gamma + 1, length)
      return output.cache._replace(length=fed)

    return jax.lax.while_loop(
      lambda cache: jnp.any(going & (cache.length < length - 2)), feed, cache
    )

  def propose(params, cache, tokens, length, keys, sampling_params, limit):
    batch = tokens.shape[0]
    proposal = Proposal(
      jnp.zeros((batch, gamma), jnp.int32),
      jnp.zeros((batch, gamma, model.vocab_size)),
      jnp.zeros(batch, jnp.int32),
    )
    if gamma == 0:
      return proposal, cache

    def extend_proposal(slot, logits, going, proposal):
      """Draws the draft of one slot from logits [B, V], where rows go on."""
      probs = sampling.transform(logits[:, None], sampling_params)[:, 0]
      going &= ~policy.before(probs)
      tokens = jax.vmap(draw, (0, 0, None, 0))(keys, length, slot, probs)
      chosen = jnp.take_along_axis(probs, tokens[:, None], 1)[:, 0]
      proposal = Proposal(
        proposal.tokens.at[:, slot].set(tokens),
        proposal.probs.at[:, slot].set(probs),
        proposal.length + going,
      )
      going &= ~policy.after(chosen) & (slot + 1 < limit)
      return going, proposal

    def first(carry):
      # After full acceptance the cache lags by one token, so the first step
      # feeds the last two; writing a row again is harmless. A row of one token
      # is fed junk behind it, which the next step overwrites.
      slot, going, cache, proposal = carry
      start = jnp.maximum(length - 2, 0)
      rows = jnp.arange(batch)[:, None]
      last_two = tokens[rows, start[:, None] + jnp.arange(2)[None]]
      output = model.apply(params, last_two, cache._replace(length=start))
      logits = output.logits[rows[:, 0], length - 1 - start]
      going, proposal = extend_proposal(slot, logits, going, proposal)
      return slot + 1, going, output.cache._replace(length=length), proposal

    def step(carry):
      slot, going, cache, proposal = carry
      last = jax.lax.dynamic_slice_in_dim(proposal.tokens, slot - 1, 1, 1)
      output = model.apply(params, last, cache)
      going, proposal = extend_proposal(
        slot, output.logits[:, 0], going, proposal
      )
      return slot + 1, going, output.cache, proposal

    going = limit > 0
    if policy.pauses:
      cache = catch_up(params, cache, tokens, length, going)
    # A loop that runs once or not at all: a `lax.cond` would copy the cache.
    carry = jax.lax.while_loop(
      lambda carry: (carry[0] == 0) & jnp.any(carry[1]),
      first,
      (jnp.int32(0), going, cache, proposal),
    )
    _, _, cache, proposal = jax.lax.while_loop(
      lambda carry: (carry[0] > 0) & jnp.any(carry[1]),
      step,
      carry,
    )
    return proposal, cache

  def commit(params, cache, tokens, length, features):
    del params, tokens, features
    # Of what the draft steps wrote, the accepted drafts stay.
    return cache._replace(length=jnp.minimum(cache.length, length - 1))

  drafter = Drafter(init, propose, commit, gamma, shares_noise)
  return paced.build(drafter, policy)


def draw_own(key, position, slot, probs):
  """A draft with noise of the round's own.

  Args:
    key: the sequence's key.
    position: int32 [], position of the round's first draft.
    slot: int32 [], of this draft.
    probs: float [V].

  Returns:
    int32 [].
  """
  draw_key = rng.draw_key(key, position, rng.DRAFT, slot)
  return sampling.categorical(draw_key, probs)
