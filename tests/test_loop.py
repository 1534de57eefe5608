"""The training loop: cuts and resumptions change no bit; bad ends say so."""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
import trains
from numpy.testing import assert_array_equal

from specdec import checkpoint, metrics
from specdec.base import UsageError
from specdec.data import packing
from specdec.train import loop, step
from specdec.train.loop import LoopConfig

FOLDER = pathlib.Path(__file__).parent


def rows(workdir):
  text = (workdir / 'metrics.jsonl').read_text()
  return [json.loads(line) for line in text.splitlines()]


def numbers(workdir):
  return [row['step'] for row in rows(workdir)]


def bits(state):
  key = jax.random.key_data(state.key)
  return jax.device_get(jax.tree.leaves(state._replace(key=key)))


def assert_same(found, expected):
  for a, b in zip(bits(found), bits(expected), strict=True):
    assert_array_equal(a, b)


def train(workdir, steps, data=None, **options):
  """A run in this process, whose data and weights are those of trains.py."""
  config = LoopConfig(
    steps, options.pop('checkpoint_every', 5), **options.pop('keep', {})
  )
  advance = options.pop('step', compiled)
  data = trains.Draws() if data is None else data
  return loop.run(config, workdir, advance, trains.fresh(), data, **options)


compiled = step.build(trains.loss, trains.OPTIMISER, accumulation=2)


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
  """20 steps without a cut: workdir, state and data after them."""
  workdir, data = tmp_path_factory.mktemp('straight'), trains.Draws()
  return workdir, train(workdir, 20, data), data


def process(*arguments):
  """Runs trains.py; returns its exit code and what it printed."""
  path = os.pathsep.join([str(FOLDER.parent), os.environ.get('PYTHONPATH', '')])
  done = subprocess.run(
    [sys.executable, FOLDER / 'trains.py', *map(str, arguments)],
    env={**os.environ, 'PYTHONPATH': path},
    capture_output=True,
    text=True,
  )
  return done.returncode, done.stdout + done.stderr


def assert_goes_on_as_if_never_cut(workdir, straight):
  _, state, data = straight
  resumed = trains.Draws()
  assert_same(train(workdir, 20, resumed), state)
  assert_array_equal(next(resumed).tokens, next(trains_at(data)).tokens)
  assert numbers(workdir) == list(range(1, 21))
  # The figures, too, are those of the run that was never cut.
  for row, other in zip(rows(workdir), rows(straight[0]), strict=True):
    assert row | {'tokens_per_s': 0} == other | {'tokens_per_s': 0}


def trains_at(data):
  """Another iterator at the same place."""
  copy = trains.Draws()
  copy.set_state(data.get_state())
  return copy


def test_a_killed_run_goes_on_bit_for_bit(tmp_path, straight):
  code, _ = process(tmp_path, 20, 'kill', 14)
  assert code == -signal.SIGKILL
  # Rows run ahead of the checkpoint that the run goes on from.
  assert checkpoint.steps(tmp_path / loop.CHECKPOINTS)[-1] == 10
  assert numbers(tmp_path) == list(range(1, 13))
  assert_goes_on_as_if_never_cut(tmp_path, straight)


def test_a_run_killed_while_it_saves_goes_on_from_a_whole_checkpoint(
  tmp_path, straight
):
  code, _ = process(tmp_path, 20, 'cut', 11)
  assert code == -signal.SIGKILL
  # Whether that of step 10 was done in time is chance.
  assert checkpoint.steps(tmp_path / loop.CHECKPOINTS)[-1] in (5, 10)
  assert_goes_on_as_if_never_cut(tmp_path, straight)


def test_sigterm_saves_and_exits_with_its_own_code(tmp_path, straight):
  code, printed = process(tmp_path, 20, 'term', 8)
  assert code == loop.TERMINATED == 143
  assert printed == 'SIGTERM: saved step 8; run again to go on\n'
  assert checkpoint.steps(tmp_path / loop.CHECKPOINTS)[-1] == 8
  assert numbers(tmp_path) == list(range(1, 9))
  assert_goes_on_as_if_never_cut(tmp_path, straight)


def test_a_run_in_two_halves_is_the_run_in_one(tmp_path, straight):
  train(tmp_path, 10)
  assert_goes_on_as_if_never_cut(tmp_path, straight)


def test_another_position_of_the_data_would_be_seen(tmp_path, straight):
  class Restarts(trains.Draws):
    def set_state(self, state):
      pass

  train(tmp_path, 10)
  found = train(tmp_path, 20, Restarts())
  with pytest.raises(AssertionError):
    assert_same(found, straight[1])


def test_a_finished_run_is_left_alone(straight):
  workdir, state, _ = straight
  before = (workdir / 'metrics.jsonl').read_text()
  assert_same(train(workdir, 20), state)
  assert (workdir / 'metrics.jsonl').read_text() == before


def test_packed_batches_resume_in_the_loop(tmp_path):
  draws = np.random.default_rng(0)
  tokens = draws.integers(trains.VOCAB, size=(9, trains.COUNT + 1))
  table = packing.Batch(tokens.astype(np.int32), tokens > 1)

  def batches():
    return packing.Batches(table, trains.ROWS, seed=3)

  whole = train(tmp_path / 'whole', 8, batches())
  train(tmp_path / 'parts', 3, batches())
  assert_same(train(tmp_path / 'parts', 8, batches()), whole)


def test_every_row_holds_the_figures_of_its_step(straight):
  workdir, state, _ = straight
  fields = {'step', *step.Metrics._fields, 'tokens_per_s'}
  assert all(set(row) == fields for row in rows(workdir))
  speeds = [row['tokens_per_s'] for row in rows(workdir)]
  assert speeds[0] is None and all(speed > 0 for speed in speeds[1:])
  # The row of step n is step n's, although it is read a step later.
  data, before = trains.Draws(), trains.fresh()
  for row in rows(workdir)[:3]:
    before, figures = compiled(before, next(data))
    assert row['loss'] == float(figures.loss)
  assert rows(workdir)[-1]['parameter_norm'] == pytest.approx(
    math.sqrt(sum(float((x**2).sum()) for x in jax.tree.leaves(state.params)))
  )


def test_a_step_is_read_after_the_next_one_is_dispatched(tmp_path, monkeypatch):
  events = []

  def advance(state, batch):
    events.append(('dispatch', int(state.step) + 1))
    return compiled(state, batch)

  append = metrics.append

  def record(workdir, row):
    events.append(('read', row['step']))
    append(workdir, row)

  monkeypatch.setattr(metrics, 'append', record)
  train(tmp_path, 4, step=advance, checkpoint_every=3)
  dispatched = [('dispatch', 1), ('dispatch', 2), ('read', 1)]
  # A checkpoint needs to know that its own step went well.
  saved = [
    ('dispatch', 3),
    ('read', 2),
    ('read', 3),
    ('dispatch', 4),
    ('read', 4),
  ]
  assert events == dispatched + saved


def test_the_best_by_validation_is_kept_and_found(tmp_path):
  values = {2: 3.0, 4: 1.0, 6: 2.0, 8: 4.0, 9: 5.0}
  asked = iter(values.values())
  train(
    tmp_path,
    9,
    checkpoint_every=2,
    keep={'keep_last': 1},
    validate=lambda params: next(asked),
  )
  folder = tmp_path / loop.CHECKPOINTS
  assert checkpoint.steps(folder) == [4, 9]
  best = checkpoint.restore(folder, trains.fresh(), 'best')
  assert (best.step, best.value) == (4, 1.0)
  found = {
    r['step']: r['validation'] for r in rows(tmp_path) if 'validation' in r
  }
  assert found == values


def poisoned(at, name):
  """The step, but that one figure of one step is NaN."""

  def advance(state, batch):
    number = int(state.step) + 1
    state, figures = compiled(state, batch)
    if number == at:
      figures = figures._replace(**{name: np.float32(np.nan)})
    return state, figures

  return advance


@pytest.mark.parametrize('name', ['loss', 'gradient_norm', 'parameter_norm'])
@pytest.mark.parametrize('at, good', [(5, 0), (8, 5), (10, 5)])
def test_nan_ends_the_run_with_its_step_and_is_never_saved(
  tmp_path, name, at, good
):
  with pytest.raises(UsageError) as caught:
    train(tmp_path, 20, step=poisoned(at, name))
  message = str(caught.value)
  assert message.startswith(f'step {at}: {name} = nan; no checkpoint is saved')
  assert '\n' not in message
  folder = tmp_path / loop.CHECKPOINTS
  assert checkpoint.steps(folder) == [good] * (good > 0)
  if good:
    assert f'({folder / str(good)})' in message.replace(
      'the last good one is ', ''
    )
    assert checkpoint.restore(folder, trains.fresh()).step == good
  else:
    assert '(none yet)' in message
  assert numbers(tmp_path) == list(range(1, at))


def test_a_run_goes_on_from_before_its_nan(tmp_path, straight):
  with pytest.raises(UsageError):
    train(tmp_path, 20, step=poisoned(8, 'loss'))
  assert_goes_on_as_if_never_cut(tmp_path, straight)


def test_a_validation_of_nan_is_not_saved(tmp_path):
  with pytest.raises(UsageError, match='step 5: validation = nan'):
    train(tmp_path, 20, validate=lambda params: math.nan)
  assert not checkpoint.steps(tmp_path / loop.CHECKPOINTS)


def test_data_that_end_say_at_which_step(tmp_path):
  class Three(trains.Draws):
    def __next__(self):
      if self.given == 3:
        raise StopIteration
      return super().__next__()

  with pytest.raises(UsageError, match='no batch is left for step 4; give'):
    train(tmp_path, 20, Three())


def test_fewer_steps_than_were_done_are_refused(straight):
  with pytest.raises(UsageError, match='steps = 7: the run in .* has done 20'):
    train(straight[0], 7)


def test_rows_that_a_kill_cut_off_are_dropped(tmp_path):
  path = tmp_path / 'metrics.jsonl'
  path.write_text('{"step": 4}\n{"note": 1}\n{"step": 5}\n{"step": 6}\n{"ste')
  metrics.cut(tmp_path, 5)
  assert path.read_text() == '{"step": 4}\n{"note": 1}\n{"step": 5}\n'


def test_the_signal_is_given_back_and_other_threads_train_too(tmp_path):
  before = signal.getsignal(signal.SIGTERM)
  thread = threading.Thread(target=train, args=(tmp_path, 2))
  thread.start()
  thread.join()
  assert checkpoint.steps(tmp_path / loop.CHECKPOINTS) == [2]
  train(tmp_path, 3)
  assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
  'field, value',
  [('steps', 0), ('checkpoint_every', 0), ('keep_last', 0)],
)
def test_an_impossible_field_is_named(field, value):
  fields = {'steps': 10, 'checkpoint_every': 5, field: value}
  with pytest.raises(
    UsageError, match=f'{field} = {value}: it must be at least'
  ):
    LoopConfig(**fields)
