"""A loss made ready to train with, and the phases that it trains.

What is compiled belongs to the loss, not to a phase: any number of phases, of
other weights, seeds or data of one shape, share a Learner and its programs.
"""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from specdec.models import reduced, store
from specdec.train import loop, optimiser, step

MODEL = 'model'  # the folder inside a phase's


class Learner(NamedTuple):
  """What one loss compiles to."""

  config: loop.LoopConfig
  optimiser: optimiser.Optimiser
  step: Callable[..., Any]  # see step.build
  validate: Callable[..., float] | None  # params -> held-out loss


def build(config, loss_fn, held_out=(), fixed=()) -> Learner:
  """Makes a loss ready to train with.

  Args:
    config: training.FitConfig.
    loss_fn: LossFn.
    held_out: batches that the loss is measured on before a checkpoint; without
      any nothing is measured.
    fixed: passed on to the loss where it is measured.
  """
  follow = optimiser.build(config.optimiser)
  return Learner(
    config.loop,
    follow,
    step.build(loss_fn, follow, config.accumulation),
    step.validation(loss_fn, held_out, fixed) if held_out else None,
  )


def steps(
  folder, learner, params, data, seed, fixed=(), console=None, run=loop.run
):
  """Runs a phase, or the rest of it.

  Args:
    folder: the phase's, which exists.
    learner: Learner.
    params: to begin with.
    data: what `run` trains on.
    seed: int >= 0, of the run's key.
    fixed: passed on to the loss.
    console: of the progress bar.
    run: loop.run, or another of its signature, such as on_policy.run.

  Returns:
    The params after the last step.

  Raises:
    UsageError: see loop.run.
  """
  state = run(
    learner.config,
    folder,
    learner.step,
    step.init(params, learner.optimiser, jax.random.key(seed)),
    data,
    learner.validate,
    fixed,
    console,
  )
  return state.params


def fit(folder, learner, model, *rest, **options):
  """Runs a phase, or the rest of it, or reads what it made.

  Args:
    folder: the phase's; made when absent.
    learner: Learner.
    model: Checkpoint to begin with. Of a reduced.Reduced one the `weights` are
      trained.
    *rest: of `steps`, from data on.
    **options: of `steps`.

  Returns:
    Checkpoint, as store.load gives it.

  Raises:
    UsageError: see loop.run.
  """
  folder = pathlib.Path(folder)
  saved = folder / MODEL
  if not saved.exists():
    folder.mkdir(parents=True, exist_ok=True)
    is_reduced = isinstance(model.params, reduced.Reduced)
    params = model.params.weights if is_reduced else model.params
    params = steps(folder, learner, params, *rest, **options)
    if is_reduced:
      params = model.params._replace(weights=params)
    store.save(model._replace(params=params), saved)
  return store.load(saved)
