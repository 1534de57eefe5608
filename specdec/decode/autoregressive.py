"""The baseline: one target call, one token.

Kept plain and apart from speculation, which it is the reference for: with the
same keys a speculative decoder of gamma = 0 emits the same tokens.
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import RUNNING, Drafter, RoundInfo
from specdec.decode import commit
from specdec.decode.decoder import Decoder, drive

NO_DRAFTS = Drafter(
  init=lambda params, tokens, length, features: (),
  propose=None,
  commit=None,
  gamma=0,
)


def build(target, draw=sampling.categorical) -> Decoder:
  """The autoregressive decoder of a target; it takes Weights(params, None).

  Args:
    target: base.Model.
    draw: (key, probs [V]) -> token; `sampling.race` draws what the rule
      `coupled` draws.

  Returns:
    Decoder.
  """

  def step(weights, state):
    alive = state.finish_reason == RUNNING
    rows = jnp.arange(alive.size)
    last = state.tokens[rows, state.length - 1][:, None]
    output = target.apply(weights.target, last, state.cache)
    probs = sampling.transform(output.logits, state.sampling)[:, 0]
    keys = jax.vmap(rng.token_key)(state.key, state.length)
    token = jax.vmap(draw)(keys, probs)[:, None]
    logprob = commit.token_logprobs(output.logits, token)
    state, emitted = commit.append(
      state, token, logprob, jnp.zeros_like(token, bool), jnp.ones_like(rows)
    )
    state = state._replace(
      cache=output.cache._replace(length=state.length - 1),
      counters=state.counters._replace(
        rounds=state.counters.rounds + alive,
        committed=state.counters.committed + emitted,
      ),
      calls=state.calls.at[1].add(1),
    )
    none = jnp.zeros_like(emitted)
    return state, RoundInfo(token, logprob, emitted, none, none, jnp.int32(1))

  return drive(target, NO_DRAFTS, step)
