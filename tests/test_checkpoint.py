"""Checkpoints of a run: which are kept, what they hold, what is refused."""

import errno
import functools
import os
import resource
import shutil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_array_equal

from specdec import checkpoint
from specdec.base import UsageError


class State(NamedTuple):
  params: Any
  step: jax.Array
  key: jax.Array


def state(step=0):
  key = jax.random.key(3)
  params = {'w': step + jax.random.normal(key, (60, 40))}
  return State(params, jnp.int32(step), key)


def refusal(act):
  with pytest.raises(UsageError) as caught:
    act()
  assert '\n' not in str(caught.value)
  return str(caught.value)


def write(folder, *numbers, values=None, **keep):
  with checkpoint.writer(folder, **keep) as save:
    for number in numbers:
      value = values and values.get(number)
      save(number, state(number), {'next': number}, value)


def assert_whole(folder, number):
  found = checkpoint.restore(folder, state(), number)
  assert_array_equal(found.state.params['w'], state(number).params['w'])
  assert found.state.step == found.step == number


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  folder = tmp_path_factory.mktemp('run')
  values = {1: 3.0, 2: 1.0, 3: 2.0, 4: 4.0, 5: None}
  write(folder, *values, values=values, keep_last=2, keep_best=1)
  return folder


def test_the_last_and_the_best_are_kept(run):
  assert checkpoint.steps(run) == [2, 4, 5]
  for number in (2, 4, 5):
    assert_whole(run, number)


def test_latest_and_best_are_found(run):
  assert checkpoint.restore(run, state()).step == 5
  best = checkpoint.restore(run, state(), 'best')
  assert (best.step, best.value, best.position) == (2, 1.0, {'next': 2})


@pytest.mark.parametrize('position', [b'\x00\xff{"', {'a': [1, None]}, None])
def test_a_position_of_bytes_or_json_comes_back(position, tmp_path):
  with checkpoint.writer(tmp_path) as save:
    save(1, state(), position)
  assert checkpoint.restore(tmp_path, state()).position == position


def test_a_state_that_is_consumed_while_it_is_written_is_saved_whole(tmp_path):
  @functools.partial(jax.jit, donate_argnums=0)
  def advance(state):
    return jax.tree.map(lambda x: x + 1, state)

  now = {'w': jnp.zeros((1000, 1000))}
  with checkpoint.writer(tmp_path, keep_last=3) as save:
    for number in range(1, 4):
      save(number, now)
      for _ in range(5):
        now = advance(now)
  for number in range(1, 4):
    found = checkpoint.restore(tmp_path, now, number).state
    assert_array_equal(found['w'], 5.0 * (number - 1))


def test_what_an_interrupted_save_left_is_no_checkpoint(tmp_path):
  write(tmp_path, 1)
  (tmp_path / '2.orbax-checkpoint-tmp').mkdir()
  assert checkpoint.steps(tmp_path) == [1]
  write(tmp_path, 2)
  assert_whole(tmp_path, 2)


def test_an_error_of_the_run_itself_is_what_is_raised(tmp_path):
  with pytest.raises(ZeroDivisionError):
    with checkpoint.writer(tmp_path) as save:
      save(1, state(1))
      raise ZeroDivisionError
  assert_whole(tmp_path, 1)


@pytest.mark.parametrize('number', [3, 5])
def test_no_step_is_overwritten_or_put_before_another(run, number, tmp_path):
  folder = shutil.copytree(run, tmp_path / 'copy')
  message = refusal(lambda: write(folder, number))
  assert f'has a checkpoint of step 5 already, and step {number}' in message
  assert checkpoint.steps(folder) == [2, 4, 5]
  assert_whole(folder, 5)


def test_a_full_disk_is_one_line_and_the_earlier_checkpoint_stays(
  tmp_path, monkeypatch
):
  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  write(tmp_path, 1, keep_last=1)
  monkeypatch.setattr(os, 'mkdir', full)
  message = refusal(lambda: write(tmp_path, 2, 3, keep_last=1, keep_best=0))
  monkeypatch.undo()
  assert message == (
    f'{tmp_path}: not written (No space left on device); free some space or'
    ' give a folder that can be written'
  )
  assert checkpoint.steps(tmp_path) == [1]
  assert_whole(tmp_path, 1)


def test_a_disk_that_fills_up_in_the_background_is_one_line(tmp_path, capfd):
  write(tmp_path, 1, keep_last=1)
  # A limit on the size of files fails as a full disk does, inside a write.
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
  try:
    message = refusal(lambda: write(tmp_path, 2, 3, keep_last=1, keep_best=0))
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert message.startswith(f'{tmp_path}: not written (File too large);')
  assert capfd.readouterr().err == ''
  assert checkpoint.steps(tmp_path) == [1]
  assert_whole(tmp_path, 1)
  # With room again the run goes on.
  write(tmp_path, 2, keep_last=1)
  assert_whole(tmp_path, 2)


def test_a_broken_newest_checkpoint_is_named_and_not_passed_over(run, tmp_path):
  folder = shutil.copytree(run, tmp_path / 'copy')
  path = folder / '5' / '_CHECKPOINT_METADATA'
  path.write_bytes(path.read_bytes()[:100])
  message = refusal(lambda: checkpoint.restore(folder, state()))
  assert message.startswith(f'{folder / "5"}: not a whole checkpoint')
  # As the line says: remove it, and the one before it is the newest.
  shutil.rmtree(folder / '5')
  assert checkpoint.restore(folder, state()).step == 4


def test_an_empty_or_foreign_step_is_one_line(run, tmp_path):
  folder = shutil.copytree(run, tmp_path / 'copy')
  (folder / '7').mkdir()
  message = refusal(lambda: checkpoint.restore(folder, state()))
  assert message.startswith(f'{folder / "7"}: not a whole checkpoint')
  # The best of the others is still found.
  assert checkpoint.restore(folder, state(), 'best').step == 2


def test_a_state_of_another_shape_is_refused_by_name(run):
  other = state()._replace(params={'w': jnp.zeros((60, 41))})
  message = refusal(lambda: checkpoint.restore(run, other))
  assert f'{run / "5"}: other arrays: params/w float32[60, 40]' in message


@pytest.mark.parametrize(
  'which, line',
  [(9, 'no checkpoint of step 9; there are 2, 4, 5'), ('9', "of step '9'")],
)
def test_a_step_that_is_not_there_is_named(run, which, line):
  assert line in refusal(lambda: checkpoint.restore(run, state(), which))


def test_best_of_none_and_an_empty_folder_are_one_line(tmp_path):
  assert 'no checkpoints; give' in refusal(
    lambda: checkpoint.restore(tmp_path / 'nowhere', state())
  )
  write(tmp_path, 1)
  assert 'no checkpoint has a value' in refusal(
    lambda: checkpoint.restore(tmp_path, state(), 'best')
  )


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
  (tmp_path / 'file').write_text('kept')
  assert 'it must be a folder' in refusal(lambda: write(tmp_path / 'file', 1))
  assert (tmp_path / 'file').read_text() == 'kept'


@pytest.mark.parametrize('keep', [{'keep_last': 0}, {'keep_best': -1}])
def test_a_number_that_keeps_nothing_is_refused(tmp_path, keep):
  field, value = next(iter(keep.items()))
  assert f'{field} = {value}: it must' in refusal(
    lambda: write(tmp_path, 1, **keep)
  )
