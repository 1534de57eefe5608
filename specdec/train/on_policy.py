"""Distillation in phases, each on prefixes that are written when it begins.

With s steps a phase, phase i trains steps i s + 1 .. (i + 1) s on a pool that
is made with the student as it is after i s of them. The steps inside a phase
are those of train.loop; a phase that was cut off, while it trained or while
its pool was made, goes on bit for bit, because the pool is stored, and the
checkpoint after i s steps still holds the student that writes the rest of it.
"""

import dataclasses
import pathlib

import jax
import numpy as np

from specdec import checkpoint
from specdec.base import UsageError
from specdec.data import packing
from specdec.train import loop, prefixes


@dataclasses.dataclass(frozen=True)
class PoolConfig:
  """What a phase is trained on.

  Attributes:
    rows: of a pool.
    refresh_steps: s, steps of a phase.
    batch_size: B, rows of a step.
    seed: int >= 0, of the order of prompts and rows.
  """

  rows: int
  refresh_steps: int
  batch_size: int
  seed: int


class Pools:
  """The rows of every phase, whoever writes them.

  Phase i has the prompts i R .. (i + 1) R of an endless shuffled order, the
  same for every mixture of authors.
  """

  def __init__(self, config, windows, shares, authors):
    """Nothing is written yet.

    Args:
      config: PoolConfig.
      windows: packing.Batch, see prefixes.windows.
      shares: {author: share}, see prefixes.check_shares.
      authors: {author: prefixes.Author}.
    """
    self.config = config
    self._prompts = packing.Batches(windows, config.rows, config.seed)
    self._blocks = prefixes.blocks(shares, config.rows)
    self._authors = authors

  def rows(self, phase, params):
    """The pool of a phase.

    Args:
      phase: from 0.
      params: the student's when the phase begins; None if it has begun.

    Returns:
      packing.Batch of R rows, an author's after the other's.
    """
    asked = self._prompts.at(phase)
    parts = [
      self._authors[name](
        phase,
        block.start,
        packing.Batch(*(x[block] for x in asked)),
        params,
      )
      for name, block in self._blocks.items()
    ]
    return packing.Batch(*map(np.concatenate, zip(*parts, strict=True)))

  def data(self, phase, params):
    """The batches of a phase, as loop.run reads them; see `rows`."""
    config = self.config
    rows = self.rows(phase, params)
    return _Phase(phase, packing.Batches(rows, config.batch_size, config.seed))


class _Phase:
  """Batches whose position names their phase."""

  def __init__(self, phase, batches):
    self._phase = phase
    self._batches = batches

  def __iter__(self):
    return self

  def __next__(self):
    return next(self._batches)

  def get_state(self):
    return {'phase': self._phase, 'batches': self._batches.get_state()}

  def set_state(self, state):
    """Goes to a position; the end of the phase before is where it begins."""
    if state['phase'] == self._phase - 1:
      return
    try:
      self._batches.set_state(state['batches'])
    except UsageError as error:
      raise UsageError(
        f'the pool of phase {self._phase} is not the one that the run has read;'
        ' bring its rollouts and its documents back, or begin again in another'
        ' workdir'
      ) from error


def run(
  config, workdir, step, state, pools, validate=None, fixed=(), console=None
):
  """Trains in phases; a loop.run whose data follow the student.

  Each phase ends with a checkpoint.

  Args:
    config: LoopConfig of the whole run.
    workdir: pathlib.Path, which exists.
    step: see train.step.build; it is compiled once for all phases.
    state: TrainState before the first step, see loop.run.
    pools: Pools.
    validate: see loop.run.
    fixed: see loop.run.
    console: see loop.run.

  Returns:
    TrainState after the last step.

  Raises:
    UsageError: see loop.run; the rollouts of a phase that has begun are lost,
      or not its own.
    SystemExit: SIGTERM came.
  """
  folder = pathlib.Path(workdir) / loop.CHECKPOINTS
  done = max(checkpoint.steps(folder), default=0)
  loop.check_steps(config, workdir, done)
  # What is restored is bound to its devices; what is not, would have the step
  # and the decoder compiled anew after the first phase.
  state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, state))
  if done:
    state = checkpoint.restore(folder, state).state
  while done < config.steps:
    phase, begun = divmod(done, pools.config.refresh_steps)
    done = min((phase + 1) * pools.config.refresh_steps, config.steps)
    state = loop.run(
      dataclasses.replace(config, steps=done),
      workdir,
      step,
      state,
      pools.data(phase, None if begun else state.params),
      validate,
      fixed,
      console,
    )
  return state
