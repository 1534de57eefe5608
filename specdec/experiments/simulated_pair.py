"""Two models whose overlap and cost are chosen, and what is timed of them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import rng, sampling
from specdec.base import Model, Weights
from specdec.experiments import calls, setup
from specdec.models import costly, functional, markov
from specdec.models.weights import Checkpoint


class Pair(NamedTuple):
  """Target and draft, whose tables are still to choose."""

  target: Model
  draft: Model
  work: Weights  # of the transformers
  num_params: Weights  # of the transformers


def build(config, sizes):
  """Transformers of random weights under the law of Markov tables.

  Args:
    config: simulated.Config.
    sizes: training.SizeConfig of target and draft.

  Returns:
    Pair.
  """
  dtype = setup.dtype_of(config.dtype)
  law = markov.build(config.vocab_size)
  models, work, counts = [], [], []
  for size, seed in zip(sizes, (config.seed, config.seed + 1), strict=True):
    shape = size.model(config.vocab_size, config.max_length)

    @jax.jit  # so that weights of float32 never exist beside those of `dtype`
    def init(key, shape=shape):
      fresh = functional.init(shape, key)
      return jax.tree.map(lambda leaf: leaf.astype(dtype), fresh)

    params = init(jax.random.key(seed))
    counts.append(functional.num_params(params))
    model, params = setup.model_of(
      Checkpoint('random', shape, params, None, ()), config.vocab_size
    )
    models.append(costly.build(law, model))
    work.append(params)
  return Pair(*models, Weights(*work), Weights(*counts))


def weights(config, pair, overlap):
  """The params of a pair, with tables of one overlap at every prefix."""
  tables = markov.pair(
    jax.random.key(config.seed),
    config.vocab_size,
    overlap,
    states=config.states,
  )
  both = zip(tables, pair.work, strict=True)
  return Weights(*(costly.CostlyParams(*parts) for parts in both))


def rounds(config, decoder, params, gamma):
  """A function that runs whole rounds, the same number every time.

  No row stops and no budget ends: each round verifies gamma drafts, so that
  none is cut and the mean over rounds has no bias.

  Args:
    config: simulated.Config.
    decoder: Decoder.
    params: base.Weights.
    gamma: drafts of a round, 0 for the autoregressive loop.

  Returns:
    (weights, number) -> Counters of B rows over `config.rounds` rounds from
    the same prompts, with keys that belong to the number. Not compiled yet.
  """
  batch = config.batch_size
  budget = config.rounds * (gamma + 1) + 1
  prompts = np.random.default_rng(config.seed).integers(
    config.vocab_size, size=(batch, config.prompt_tokens)
  )
  box = [
    decoder.init(
      params,
      prompts.tolist(),
      rng.sequence_keys(config.seed, batch),
      sampling.params(batch, temperature=1.0),
      budget,
    )
  ]

  @functools.partial(jax.jit, donate_argnums=1)
  def loop(params, state, number):
    start = state.prompt_length
    state = state._replace(
      key=rng.sequence_keys(config.seed, batch, number * batch),
      counters=jax.tree.map(jnp.zeros_like, state.counters),
    )
    state = jax.lax.fori_loop(
      0, config.rounds, lambda _, state: decoder.step(params, state)[0], state
    )
    counters = state.counters
    return state._replace(
      length=start, cache=state.cache._replace(length=start - 1)
    ), counters

  def run(params, number):
    box[0], counters = loop(params, box[0], number)
    return counters

  return run


def forwards(config, model, params, feed):
  """A function that runs as many bare forwards as a run has rounds.

  Args:
    config: simulated.Config.
    model: base.Model.
    params: its params.
    feed: tokens a row of each forward.

  Returns:
    A function without arguments. Not compiled yet.
  """
  # The middle of a run of plain steps.
  middle = config.prompt_tokens + config.rounds // 2
  place = calls.Place(config.batch_size, middle, config.rounds)
  one = [calls.Call(0, feed)]
  return calls.forwards([(model, params)], one, place, config.max_length)
