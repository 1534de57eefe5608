"""The law of one model at the cost of another.

A speculative loop is to be timed with sizes for which there are no weights,
and its acceptance known. So the logits come from a model of known law, such as
Markov tables, and a second model, such as a transformer of random weights, is
run for its time on the same tokens:

  logits = law's where work's are finite, NaN where they are not.

That they always are finite is nothing that a compiler can know. It has to
compute every logit of the work, and with them every layer and the cache.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec.base import Cache, Model, ModelOutput, Params, UsageError


class CostlyParams(NamedTuple):
  """The params of both models; other tables do not retrace."""

  law: Params
  work: Params


class CostlyCache(NamedTuple):
  """The caches of both models, under one length."""

  law: Cache
  work: Cache
  length: jax.Array  # int32 [B]; the lengths inside follow it


def build(law: Model, work: Model) -> Model:
  """A model with the probabilities of `law` and the cost of `work`.

  Args:
    law: says what is sampled.
    work: is run on the same tokens; its features are the model's.

  Returns:
    base.Model over CostlyParams.

  Raises:
    UsageError: the models have vocabularies of unequal size.
  """
  if law.vocab_size != work.vocab_size:
    raise UsageError(
      f'vocab_size = {law.vocab_size} of the law, {work.vocab_size} of the'
      ' work: give both the same'
    )

  def apply(params, tokens, cache, positions=None, mask=None):
    def run(model, params, cache, length):
      cache = cache._replace(length=length)
      return model.apply(params, tokens, cache, positions, mask)

    wanted = run(law, params.law, cache.law, cache.length)
    paid = run(work, params.work, cache.work, cache.length)
    return ModelOutput(
      jnp.where(jnp.isfinite(paid.logits), wanted.logits, jnp.nan),
      paid.features,
      CostlyCache(wanted.cache, paid.cache, cache.length + tokens.shape[1]),
    )

  def init_cache(batch, rows):
    return CostlyCache(
      law.init_cache(batch, rows),
      work.init_cache(batch, rows),
      jnp.zeros(batch, jnp.int32),
    )

  return Model(
    apply,
    init_cache,
    work.vocab_size,
    work.feature_width,
    min(law.max_length, work.max_length),
  )
