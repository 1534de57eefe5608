"""Markov tables behind the signatures of a model: a target of known law.

The next token depends on the last one alone, so that exact laws of whole
strings can be written down. Most tests of the decode loop use such a pair. A
large vocabulary shares few states: token x is in state x mod N, of N.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec.base import Model, ModelOutput, UsageError


class MarkovCache(NamedTuple):
  """A table needs no memory but its length."""

  length: jax.Array  # int32 [B]


def build(vocab_size):
  """A Markov model; its params are logits, float [N, V], by last state.

  Args:
    vocab_size: V.

  Returns:
    base.Model.
  """

  def apply(params, tokens, cache, positions=None, mask=None):
    del positions, mask
    return ModelOutput(
      params[tokens % params.shape[0]],
      jnp.zeros((*tokens.shape, 0)),
      MarkovCache(cache.length + tokens.shape[1]),
    )

  def init_cache(batch, rows):
    del rows
    return MarkovCache(jnp.zeros(batch, jnp.int32))

  return Model(apply, init_cache, vocab_size, 0, 2**30)


def pair(key, vocab_size, overlap, sharpness=1.0, states=None):
  """A target and a draft with one overlap at every prefix.

  The draft is q = (1 - w) p + w e, where e is the point mass on the target's
  least likely token m, so that sum_x min(p, q) = 1 - w (1 - p(m)).

  Args:
    key: typed key; it is consumed.
    vocab_size: V.
    overlap: sum_x min(p(x), q(x)), in [1 / V, 1].
    sharpness: scale of the target's normal logits.
    states: N; None is V, a state for each token.

  Returns:
    The logits of target and draft, float32 [N, V] each (float64 where that is
    JAX's default).

  Raises:
    UsageError: no such draft exists.
  """
  if not 1 / vocab_size <= overlap <= 1:
    raise UsageError(f'overlap = {overlap}: it must be in [1 / vocab_size, 1]')
  shape = (states or vocab_size, vocab_size)
  logits = sharpness * jax.random.normal(key, shape)
  target = jax.nn.softmax(logits, -1)
  least = jnp.min(target, -1, keepdims=True)
  weight = (1 - overlap) / (1 - least)
  point = jax.nn.one_hot(jnp.argmin(target, -1), vocab_size)
  draft = (1 - weight) * target + weight * point
  return jnp.log(target), jnp.log(draft)
