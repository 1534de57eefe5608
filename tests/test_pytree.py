"""Trees in folders: what is read fits, or one line says what does not."""

import errno
import os
import resource
import shutil
import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_array_equal

from specdec import pytree
from specdec.base import UsageError


class Pair(NamedTuple):
  weights: dict
  key: jax.Array


def tree():
  noise = jax.random.normal(jax.random.key(1), (40, 30))
  weights = {'a': noise, 'b': (jnp.int32(7), noise[0].astype(jnp.bfloat16))}
  return Pair(weights, jax.random.key(5))


def bits(pair):
  return [*jax.tree.leaves(pair.weights), jax.random.key_data(pair.key)]


def refusal(act):
  with pytest.raises(UsageError) as caught:
    act()
  assert '\n' not in str(caught.value)
  return str(caught.value)


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  folder = tmp_path_factory.mktemp('saved') / 'tree'
  pytree.save(folder, tree())
  return folder


def test_a_tree_comes_back_bit_for_bit_with_its_types_and_keys(saved):
  found, note = pytree.load(saved, tree())
  assert jax.tree.structure(found) == jax.tree.structure(tree())
  assert note == {}
  for a, b in zip(bits(found), bits(tree()), strict=True):
    assert a.dtype == b.dtype
    assert_array_equal(a, b)
  # Shapes alone are enough.
  found, _ = pytree.load(saved, jax.eval_shape(tree))
  assert_array_equal(found.weights['a'], tree().weights['a'])


@pytest.mark.parametrize(
  'change, line',
  [
    (lambda t: t | {'c': t['a']}, 'missing: weights/c;'),
    (lambda t: {'a': t['a']}, 'unexpected: weights/b/0, weights/b/1;'),
    (
      lambda t: t | {'a': t['a'].T},
      'weights/a float32[40, 30] instead of float32[30, 40]',
    ),
    (
      lambda t: t | {'a': t['a'].astype(jnp.bfloat16)},
      'weights/a float32[40, 30] instead of bfloat16[40, 30]',
    ),
  ],
)
def test_a_tree_that_does_not_fit_is_refused_and_named(saved, change, line):
  other = tree()._replace(weights=change(tree().weights))
  message = refusal(lambda: pytree.load(saved, other))
  assert message.startswith(str(saved)) and line in message


def test_many_faults_stay_one_readable_line(saved):
  more = {f'w{i}': jnp.zeros(1) for i in range(9)}
  message = refusal(lambda: pytree.load(saved, more))
  assert 'missing: w0, w1, w2 and 6 more; unexpected: ' in message


@pytest.mark.parametrize(
  'file',
  [
    '_CHECKPOINT_METADATA',
    'state/_METADATA',
    'state/manifest.ocdbt',
    'state/ocdbt.process_0/d/*',
  ],
)
def test_a_truncated_file_is_one_line(saved, file, tmp_path, capfd):
  folder = shutil.copytree(saved, tmp_path / 'cut')
  for path in folder.glob(file):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
  assert f'{folder}: not a whole checkpoint' in refusal(
    lambda: pytree.load(folder, tree())
  )
  assert 'Traceback' not in capfd.readouterr().err


def test_absent_empty_and_foreign_folders_are_one_line(tmp_path):
  assert 'no such folder' in refusal(
    lambda: pytree.load(tmp_path / 'nowhere', tree())
  )
  assert 'not a whole checkpoint' in refusal(
    lambda: pytree.load(tmp_path, tree())
  )
  (tmp_path / 'model.safetensors').write_bytes(b'junk')
  assert 'not a whole checkpoint' in refusal(
    lambda: pytree.load(tmp_path, tree())
  )


def test_what_is_there_is_not_overwritten(saved):
  before = {path: path.stat().st_mtime_ns for path in saved.rglob('*')}
  assert 'exists: give another folder' in refusal(
    lambda: pytree.save(saved, tree())
  )
  assert before == {path: path.stat().st_mtime_ns for path in saved.rglob('*')}


def test_a_full_disk_is_one_line_and_leaves_no_folder(tmp_path, monkeypatch):
  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  pytree.save(tmp_path / 'good', tree())
  before = set(threading.enumerate())
  monkeypatch.setattr(os, 'mkdir', full)
  message = refusal(lambda: pytree.save(tmp_path / 'tree', tree()))
  monkeypatch.undo()
  assert f'{tmp_path / "tree"}: not written (No space left on' in message
  assert not (tmp_path / 'tree').exists()
  # A thread that waits for the folder would do so for five minutes.
  for thread in set(threading.enumerate()) - before:
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_a_disk_that_fills_up_on_the_way_is_one_line(tmp_path, capfd):
  # A limit on the size of files fails as a full disk does, inside a write.
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
  try:
    message = refusal(lambda: pytree.save(tmp_path / 'tree', tree()))
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert f'{tmp_path / "tree"}: not written (File too large)' in message
  assert not (tmp_path / 'tree').exists()
  assert 'Traceback' not in capfd.readouterr().err
