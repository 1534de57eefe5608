"""The training loop: steps, metrics, checkpoints, and going on after a cut.

Step n + 1 is dispatched before the metrics of step n are read, so that the
device never waits for the host. What the next step needs is the state and the
position in the data, and a checkpoint holds both: a run that was killed and
resumed is, bit for bit, the run that was not.
"""

import contextlib
import dataclasses
import math
import pathlib
import signal
import threading
import time
from typing import NamedTuple

import jax
from rich import console as rich_console
from rich import progress

from specdec import checkpoint, metrics
from specdec.base import UsageError
from specdec.train.step import Metrics

CHECKPOINTS = 'checkpoints'  # the folder inside the workdir
TERMINATED = 128 + signal.SIGTERM  # exit code of a run that SIGTERM ended
# A step that leaves one of these infinite or NaN has spoilt the weights.
_FINITE = ('loss', 'gradient_norm', 'parameter_norm')


@dataclasses.dataclass(frozen=True)
class LoopConfig:
  """How long a run is, and what it keeps.

  Attributes:
    steps: of the whole run, those before an interruption included.
    checkpoint_every: steps between checkpoints; the last step has one too.
    keep_last: newest checkpoints that are kept.
    keep_best: checkpoints with the least validation value kept besides.
  """

  steps: int
  checkpoint_every: int
  keep_last: int = 2
  keep_best: int = 1

  def __post_init__(self):
    for field, least in (
      ('steps', 1),
      ('checkpoint_every', 1),
      ('keep_last', 1),
      ('keep_best', 0),
    ):
      if getattr(self, field) < least:
        raise UsageError(
          f'{field} = {getattr(self, field)!r}: it must be at least {least}'
        )


class _Running(NamedTuple):
  """A step that was dispatched, and may still be computed."""

  number: int
  metrics: Metrics


def run(
  config, workdir, step, state, data, validate=None, fixed=(), console=None
):
  """Trains, from the newest checkpoint of the workdir where there is one.

  A row of metrics.jsonl holds a step's Metrics, `tokens_per_s` (None for the
  first step, which compiles) and, where it was measured, `validation`.

  On SIGTERM the run saves and raises SystemExit(TERMINATED); run again, it goes
  on from there.

  Args:
    config: LoopConfig.
    workdir: pathlib.Path, which exists.
    step: see train.step.build.
    state: TrainState before the first step; it is consumed. A resumed run
      takes its structure and shardings alone.
    data: an iterator over batches that has get_state() and set_state().
    validate: params -> float, the less the better, called before a checkpoint
      is saved. None measures nothing.
    fixed: passed on to every step.
    console: rich.console.Console of the progress bar; None is stdout.

  Returns:
    TrainState after the last step.

  Raises:
    UsageError: a loss or norm is infinite or NaN; the data ended; a checkpoint
      cannot be read or written.
    SystemExit: SIGTERM came.
  """
  workdir = pathlib.Path(workdir)
  folder = workdir / CHECKPOINTS
  state = _resume(folder, state, data)
  start = saved = int(state.step)
  check_steps(config, workdir, start)
  metrics.cut(workdir, start)
  if start == config.steps:
    return state
  console = console or rich_console.Console()
  with (
    _termination() as asked,
    checkpoint.writer(folder, config.keep_last, config.keep_best) as save,
    _progress(console) as bar,
  ):
    task = bar.add_task('training', total=config.steps, completed=start)

    def publish(row):
      metrics.append(workdir, row)
      bar.update(task, completed=row['step'], description=_describe(row))

    running = since = None
    for number in range(start + 1, config.steps + 1):
      state, figures = step(state, _next(data, number), *fixed)
      if running is not None:
        row, since = _read(running, since, folder, saved)
        publish(row)
      running = _Running(number, figures)
      stop = asked.is_set()
      due = number % config.checkpoint_every == 0 or number == config.steps
      if due or stop:
        # Nothing is saved before it is known to be finite.
        row, _ = _read(running, since, folder, saved)
        if validate is not None and due:
          row['validation'] = float(validate(state.params))
          _check(row, 'validation', folder, saved)
        publish(row)
        save(number, state, data.get_state(), row.get('validation'))
        running, since, saved = None, time.perf_counter(), number
      if stop:
        console.print(f'SIGTERM: saved step {number}; run again to go on')
        raise SystemExit(TERMINATED)
  return state


def check_steps(config, workdir, done):
  """Refuses to end a run before the step that it has reached."""
  if done > config.steps:
    raise UsageError(
      f'steps = {config.steps}: the run in {workdir} has done {done}; give'
      ' more, or another workdir'
    )


def _resume(folder, state, data):
  """The newest state that was saved, and the data set to its place."""
  if not checkpoint.steps(folder):
    return state
  saved = checkpoint.restore(folder, state)
  data.set_state(saved.position)
  return saved.state


def _next(data, number):
  """The next batch, for step `number`."""
  for batch in data:
    return batch
  raise UsageError(
    f'data: no batch is left for step {number}; give more data, or fewer steps'
  )


def _read(running, since, folder, saved):
  """Waits for a step.

  Args:
    running: _Running.
    since: when the device began with it, None if that is not known.
    folder: of the checkpoints.
    saved: the step of the newest one, 0 is none.

  Returns:
    Its row, and the time.

  Raises:
    UsageError: the step went wrong.
  """
  figures = jax.device_get(running.metrics)
  now = time.perf_counter()
  row = {'step': running.number}
  row |= {name: float(value) for name, value in figures._asdict().items()}
  for name in _FINITE:
    _check(row, name, folder, saved)
  row['tokens_per_s'] = since and row['tokens'] / (now - since)
  return row, now


def _check(row, name, folder, saved):
  """Refuses a figure that is infinite or NaN."""
  if not math.isfinite(row[name]):
    last = (
      f'the last good one is {folder / str(saved)}' if saved else 'none yet'
    )
    raise UsageError(
      f'step {row["step"]}: {name} = {row[name]}; no checkpoint is saved of it'
      f' ({last}); lower the learning rate, or look at the data'
    )


@contextlib.contextmanager
def _termination():
  """An event that SIGTERM sets. Only the main thread hears signals."""
  asked = threading.Event()
  if threading.current_thread() is not threading.main_thread():
    yield asked
    return
  before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
  try:
    yield asked
  finally:
    signal.signal(signal.SIGTERM, before)


def _progress(console):
  return progress.Progress(
    progress.TextColumn('{task.description}'),
    progress.BarColumn(),
    progress.MofNCompleteColumn(),
    progress.TimeRemainingColumn(),
    console=console,
    transient=True,
    disable=not console.is_terminal,
  )


def _describe(row):
  speed = row['tokens_per_s']
  rate = '' if speed is None else f' · {speed:,.0f} tokens/s'
  return f'training · loss {row["loss"]:.3f}{rate}'
