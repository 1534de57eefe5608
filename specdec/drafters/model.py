"""A second model of the same vocabulary, with a cache of its own.

Leviathan et al., https://arxiv.org/abs/2211.17192. The draft's distribution is
the same transform of its logits as the target's, and the very array that a
token is drawn from is what the verifier divides by.
"""

import jax
import jax.numpy as jnp

from specdec import cache as cache_lib
from specdec import rng, sampling
from specdec.base import Drafter, Proposal, UsageError


def build(model, gamma):
  """A drafter that decodes `gamma` tokens with a model.

  Args:
    model: base.Model, of the target's vocabulary.
    gamma: G, drafts of a round.

  Returns:
    base.Drafter; its params are the model's, its state the model's cache.

  Raises:
    UsageError: gamma is negative.
  """
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')

  def init(params, tokens, length, features):
    del features
    return cache_lib.fill(model, params, tokens, length)[0]

  def propose(params, cache, tokens, length, keys, sampling_params):
    batch = tokens.shape[0]
    proposal = Proposal(
      jnp.zeros((batch, gamma), jnp.int32),
      jnp.zeros((batch, gamma, model.vocab_size)),
      jnp.full(batch, gamma, jnp.int32),
    )
    if gamma == 0:
      return proposal, cache

    def draw(slot, logits, proposal):
      """Draws the draft of one slot from logits [B, V]."""
      probs = sampling.transform(logits[:, None], sampling_params)[:, 0]
      slot_keys = jax.vmap(rng.draw_key, (0, 0, None, None))(
        keys, length, rng.DRAFT, slot
      )
      drafts = jax.vmap(sampling.categorical)(slot_keys, probs)
      return proposal._replace(
        tokens=proposal.tokens.at[:, slot].set(drafts),
        probs=proposal.probs.at[:, slot].set(probs),
      )

    def extend(slot, carry):
      cache, proposal = carry
      last = jax.lax.dynamic_slice_in_dim(proposal.tokens, slot - 1, 1, 1)
      output = model.apply(params, last, cache)
      return output.cache, draw(slot, output.logits[:, 0], proposal)

    # After full acceptance the cache lags by one token, so the first step
    # feeds the last two; writing a row again is harmless. A row of one token
    # is fed junk behind it, which the next step overwrites.
    start = jnp.maximum(length - 2, 0)
    rows = jnp.arange(batch)[:, None]
    last_two = tokens[rows, start[:, None] + jnp.arange(2)[None]]
    output = model.apply(params, last_two, cache._replace(length=start))
    logits = output.logits[rows[:, 0], length - 1 - start]
    cache = output.cache._replace(length=length)
    cache, proposal = jax.lax.fori_loop(
      1, gamma, extend, (cache, draw(0, logits, proposal))
    )
    return proposal, cache

  def commit(params, cache, tokens, length, features):
    del params, tokens, length, features
    return cache  # propose sets the length

  return Drafter(init, propose, commit, gamma)
