"""Programs to be timed: model calls and rounds, again and again.

Each is a function without arguments that runs `steps` times the same work at
the same cached length, as one compiled loop. Its state lives on from run to
run, so that nothing is allocated and no prompt is fed while the clock runs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import RUNNING


class Call(NamedTuple):
  """One model call."""

  model: int  # index into the models of `forwards`
  tokens: int  # fed to each row
  logits: bool = True  # are they asked for? If not, they are not computed


class Place(NamedTuple):
  """Where a program works."""

  batch: int
  length: int  # cached tokens of each row, at least 1
  steps: int  # times that the work is done in one run


def caches(models, place, room):
  """A box for `forwards`: it holds caches that several of them share.

  Args:
    models: list of (base.Model, params).
    place: Place.
    room: tokens that each cache has room for, those of the longest call
      beyond the others'.
  """
  empty = tuple(
    # A length of its own for each: what is donated must not be shared.
    model.init_cache(place.batch, room)._replace(
      length=jnp.full(place.batch, place.length, jnp.int32)
    )
    for model, _ in models
  )
  return [(empty, jnp.int32(0))]


def forwards(models, calls, place, rows, box=None):
  """Model calls and no more.

  Args:
    models: list of (base.Model, params).
    calls: list of Call, made in turn in each step.
    place: Place.
    rows: tokens that the caches have room for.
    box: of `caches`, of the same models and place; None is one of its own.

  Returns:
    A function without arguments.
  """

  def loop(params, carry):
    def step(_, carry):
      held, token = list(carry[0]), carry[1]
      for call in calls:
        cache = held[call.model]
        tokens = jnp.full((place.batch, call.tokens), token)
        apply = models[call.model][0].apply
        output = apply(params[call.model], tokens, cache)
        held[call.model] = output.cache._replace(length=cache.length)
        # The next call depends on this one, so that none can be dropped.
        token = _zero(output, call)
      return tuple(held), token

    return jax.lax.fori_loop(0, place.steps, step, carry)

  room = rows + max(call.tokens for call in calls)
  box = caches(models, place, room) if box is None else box
  return again(loop, [params for _, params in models], box)


def rounds(decoder, weights, place, rows, **fields):
  """Steps of a decoder, each from the same prompts.

  Args:
    decoder: decode.decoder.Decoder.
    weights: base.Weights.
    place: Place; the prompts are of its length.
    rows: tokens that every row has room for.
    **fields: of sampling.params.

  Returns:
    A function without arguments.
  """

  def step(weights, state):
    start = state.prompt_length
    state, _ = decoder.step(weights, state)
    # Back to the prompt, which repeats one token: every step does the same
    # work, and prompt lookup drafts in each.
    return state._replace(
      length=start,
      cache=state.cache._replace(length=start - 1),
      finish_reason=jnp.full_like(state.finish_reason, RUNNING),
    )

  def loop(weights, state):
    return jax.lax.fori_loop(
      0, place.steps, lambda _, state: step(weights, state), state
    )

  state = decoder.init(
    weights,
    [[7] * place.length] * place.batch,
    rng.sequence_keys(0, place.batch),
    sampling.params(place.batch, **fields),
    rows - place.length,
    max_len=rows,
  )
  return again(loop, weights, [state])


def again(loop, weights, box):
  """A function without arguments whose state lives on from run to run.

  Args:
    loop: (weights, state) -> state.
    weights: of every run.
    box: a list with the state, which no run keeps to itself.
  """
  jitted = jax.jit(loop, donate_argnums=1)

  def run():
    box[0] = jitted(weights, box[0])
    return box[0]

  return run


def _zero(output, call):
  """The token 0, as a number that follows from a call's output."""
  if call.logits:
    return (jnp.max(output.logits) > 1e9).astype(jnp.int32)
  leaf = jax.tree.leaves(output.cache)[0]
  return (leaf[(0,) * leaf.ndim] > 1e9).astype(jnp.int32)
