"""One training step: batch in, weights moved, what a person plots out.

A loss is a sum over tokens, never a mean. The gradient of the mean is then

  sum over parts of grad(sum of the part) / sum over parts of weight,

so that a batch in several parts, one after the other, gives what the whole
batch gives at once, however the padding falls.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from specdec.base import Params, UsageError
from specdec.train.optimiser import Optimiser

LossFn = Callable[..., tuple[jax.Array, jax.Array]]
# (params, batch, key, *fixed) -> (sum of the tokens' losses, float32 [],
#                                  sum of their weights, float32 [])


class TrainState(NamedTuple):
  """All that the next step needs."""

  params: Params  # float32
  optimiser: Any  # the state of the optimiser
  step: jax.Array  # int32 [], steps done
  key: jax.Array  # typed key [], the run's; a step's is folded from it


class Metrics(NamedTuple):
  """One step, for people and plots. All float32 []."""

  loss: jax.Array  # mean over the tokens that count
  gradient_norm: jax.Array  # before it is clipped
  parameter_norm: jax.Array  # after the step
  update_norm: jax.Array
  learning_rate: jax.Array
  tokens: jax.Array  # sum of the tokens' weights


def init(params, optimiser: Optimiser, key) -> TrainState:
  """The state before the first step.

  Args:
    params: initial weights. They are copied, since a step consumes its state,
      and kept in float32 at least: small updates vanish in bfloat16.
    optimiser: Optimiser.
    key: typed key, the run's.
  """
  params = jax.tree.map(
    lambda leaf: jnp.array(leaf, jnp.promote_types(leaf.dtype, jnp.float32)),
    params,
  )
  rest = optimiser.transform.init(params), jnp.int32(0), jnp.copy(key)
  return TrainState(params, *_beside(params, rest))


def build(loss_fn: LossFn, optimiser: Optimiser, accumulation=1):
  """A jitted training step.

  Args:
    loss_fn: LossFn. Its key is folded from the run's key, the step and the
      part of the batch.
    optimiser: Optimiser.
    accumulation: parts of a batch, taken one after the other to save memory.

  Returns:
    (state, batch, *fixed) -> (state, Metrics). The state is consumed: its
    buffers become the next one's. batch is a pytree of [B, ...], B divisible by
    `accumulation`; fixed is passed on to the loss, for what is not trained,
    such as a teacher's weights.
  """
  if accumulation < 1:
    raise UsageError(f'accumulation = {accumulation}: it must be at least 1')

  def step(state, batch, *fixed):
    key = jax.random.fold_in(state.key, state.step)
    parts = jax.tree.map(lambda leaf: _in_parts(leaf, accumulation), batch)

    def add_part(sums, number_and_part):
      number, part = number_and_part
      (loss, weight), gradient = jax.value_and_grad(loss_fn, has_aux=True)(
        state.params, part, jax.random.fold_in(key, number), *fixed
      )
      added = jax.tree.map(
        lambda total, new: total + new.astype(total.dtype),
        sums,
        (loss, weight, gradient),
      )
      return added, None

    zero = jnp.zeros((), jnp.float32)
    zeros = (zero, zero, jax.tree.map(jnp.zeros_like, state.params))
    (loss, weight, gradient), _ = jax.lax.scan(
      add_part, zeros, (jnp.arange(accumulation), parts)
    )
    # A batch of padding alone moves nothing, and is no 0 / 0.
    scale = jnp.where(weight > 0, 1 / jnp.where(weight > 0, weight, 1), 0)
    gradient = jax.tree.map(lambda leaf: leaf * scale, gradient)

    updates, moments = optimiser.transform.update(
      gradient, state.optimiser, state.params
    )
    params = optax.apply_updates(state.params, updates)
    metrics = Metrics(
      loss * scale,
      optax.tree.norm(gradient),
      optax.tree.norm(params),
      optax.tree.norm(updates),
      optimiser.rate(state.step),
      weight,
    )
    return TrainState(params, moments, state.step + 1, state.key), metrics

  return jax.jit(step, donate_argnums=0)


def validation(loss_fn: LossFn, batches, fixed=()):
  """The mean of a loss over batches that are not trained on.

  Args:
    loss_fn: LossFn. Every batch has the same key, so that what changes from
      one call to the next is the params' doing.
    batches: a list of batches of one shape.
    fixed: passed on to the loss.

  Returns:
    params -> float, what loop.run takes as `validate`.
  """
  measure = jax.jit(loss_fn)

  def validate(params):
    sums = [measure(params, b, jax.random.key(0), *fixed) for b in batches]
    loss, weight = np.sum(jax.device_get(sums), 0)
    return loss / weight

  return validate


def _beside(params, tree):
  """A tree on the devices of the params, if these are bound to theirs.

  A step binds all that it returns, and what had been free before would have
  the next one compiled anew.
  """
  first = jax.tree.leaves(params)[0]
  if not first.committed:
    return tree
  home = first.sharding
  if isinstance(home, jax.sharding.NamedSharding):
    home = jax.sharding.NamedSharding(home.mesh, jax.sharding.PartitionSpec())
  return jax.tree.map(
    lambda leaf: leaf if leaf.committed else jax.device_put(leaf, home), tree
  )


def _in_parts(leaf, parts):
  """[B, ...] as [parts, B / parts, ...]."""
  if leaf.shape[0] % parts:
    raise UsageError(
      f'accumulation = {parts}: it must divide the batch of {leaf.shape[0]}'
    )
  return leaf.reshape(parts, -1, *leaf.shape[1:])
