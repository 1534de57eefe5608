"""AdamW under a clipped gradient, with a rate that warms up and decays.

Loshchilov and Hutter, https://arxiv.org/abs/1711.05101, and for the cosine
https://arxiv.org/abs/1608.03983. With s steps done of S, w of them to warm up,

  rate = peak min(1, (s + 1) / (w + 1)) (f + (1 - f) (1 + cos(pi r)) / 2),
  r = max(0, s - w) / (S - 1 - w),

so that the first step already moves, and the last has rate f times the peak.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from specdec.base import UsageError

# Weight decay pulls matrices to 0; norms and biases have no reason to be there.
_NOT_DECAYED = ('scale', 'bias')


@dataclasses.dataclass(frozen=True)
class OptimiserConfig:
  """How weights follow gradients.

  Attributes:
    steps: S, of the whole run.
    peak_rate: the greatest learning rate.
    warmup_steps: w, steps in which the rate rises.
    final_fraction: f, what is left of the rate at the end.
    beta1: decay of the mean of gradients.
    beta2: decay of the mean of their squares.
    epsilon: added to the root of the latter.
    weight_decay: share of a weight that a step of rate 1 would take away.
    clip_norm: global norm to which a larger gradient is scaled down.
  """

  steps: int
  peak_rate: float
  warmup_steps: int = 0
  final_fraction: float = 0.1
  beta1: float = 0.9
  beta2: float = 0.95
  epsilon: float = 1e-8
  weight_decay: float = 0.1
  clip_norm: float = 1.0

  def __post_init__(self):
    for field, good, rule in (
      ('steps', self.steps >= 1, 'at least 1'),
      ('peak_rate', self.peak_rate > 0, 'above 0'),
      (
        'warmup_steps',
        0 <= self.warmup_steps < self.steps,
        f'at least 0 and under steps = {self.steps}',
      ),
      ('final_fraction', 0 <= self.final_fraction <= 1, 'in [0, 1]'),
      ('beta1', 0 <= self.beta1 < 1, 'in [0, 1)'),
      ('beta2', 0 <= self.beta2 < 1, 'in [0, 1)'),
      ('epsilon', self.epsilon > 0, 'above 0'),
      ('weight_decay', self.weight_decay >= 0, 'at least 0'),
      ('clip_norm', self.clip_norm > 0, 'above 0'),
    ):
      if not good:
        raise UsageError(
          f'{field} = {getattr(self, field)!r}: it must be {rule}'
        )


class Optimiser(NamedTuple):
  """Gradients to updates, and the rate that they are made with."""

  transform: optax.GradientTransformation
  rate: Callable[[jax.Array], jax.Array]
  # int32 [], steps done -> float32 [], the next step's learning rate


def build(config: OptimiserConfig) -> Optimiser:
  """The optimiser of a configuration."""

  def rate(step):
    rest = config.steps - config.warmup_steps
    progress = jnp.maximum(step - config.warmup_steps, 0) / max(rest - 1, 1)
    cosine = (1 + jnp.cos(jnp.pi * jnp.minimum(progress, 1))) / 2
    decay = config.final_fraction + (1 - config.final_fraction) * cosine
    warmup = jnp.minimum((step + 1) / (config.warmup_steps + 1), 1)
    return config.peak_rate * warmup * decay

  transform = optax.chain(
    optax.clip_by_global_norm(config.clip_norm),
    optax.adamw(
      rate,
      config.beta1,
      config.beta2,
      config.epsilon,
      weight_decay=config.weight_decay,
      mask=decayed,
    ),
  )
  return Optimiser(transform, rate)


def decayed(params):
  """Which weights decay, as a tree of bools: all but norms and biases."""

  def decays(path, _):
    names = jax.tree_util.keystr(path, simple=True, separator='/').split('/')
    return not any(name in _NOT_DECAYED for name in names)

  return jax.tree.map_with_path(decays, params)
