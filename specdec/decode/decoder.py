"""One step, two drivers: `generate` on the device, `stream` for people."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec.base import RUNNING, DecodeState, RoundInfo
from specdec.decode import prefill


class Decoder(NamedTuple):
  """A way to decode, as pure functions over Weights and DecodeState."""

  init: Callable[..., DecodeState]
  # (weights, prompts, keys, sampling, max_new_tokens, stops=(), max_len=None)
  step: Callable[..., tuple[DecodeState, RoundInfo]]
  # (weights, state), one round; not jitted
  generate: Callable[..., DecodeState]
  # (weights, state) until every row is finished; jitted, consumes the state
  stream: Callable[..., Iterator[tuple[DecodeState, RoundInfo]]]
  # (weights, state), a round at a time; consumes the state


def drive(target, drafter, step):
  """Puts the drivers around a step.

  Args:
    target: base.Model.
    drafter: base.Drafter.
    step: (weights, state) -> (state, info).

  Returns:
    Decoder. Each of its functions compiles once for a batch size and a
    buffer; prompts, keys, sampling, stops and budgets may change freely.
  """
  start = jax.jit(functools.partial(prefill.state, target, drafter))

  def init(
    weights, prompts, keys, sampling, max_new_tokens, stops=(), max_len=None
  ):
    prefill.check_rows(len(prompts), keys, sampling)
    arrays = prefill.arrays(
      target, drafter.gamma, prompts, max_new_tokens, stops, max_len
    )
    return start(weights, *arrays, keys, sampling)

  @functools.partial(jax.jit, donate_argnums=1)
  def generate(weights, state):
    return jax.lax.while_loop(
      lambda state: jnp.any(state.finish_reason == RUNNING),
      lambda state: step(weights, state)[0],
      state,
    )

  jitted_step = jax.jit(step, donate_argnums=1)

  def stream(weights, state):
    while bool(jnp.any(state.finish_reason == RUNNING)):
      state, info = jitted_step(weights, state)
      yield state, info

  return Decoder(init, step, generate, stream)
