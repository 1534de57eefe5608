"""A pytree of arrays in a folder: read back whole and fitting, or not at all.

Orbax (https://orbax.readthedocs.io) writes it, under another name that is
changed at the end, so that a folder is whole or absent. It also reads more
than it should: it casts, and of a foreign folder it says a page. Here what is
read has the paths, shapes and dtypes that were asked for, or one line says
which it has not.
"""

import contextlib
import pathlib
import re

import absl.logging
import jax
from orbax.checkpoint import v1 as ocp

from specdec.base import UsageError

# A message names so many arrays of each fault.
_NAMED = 3


def save(path, tree):
  """Writes a tree of arrays into a folder that must not exist yet.

  Raises:
    UsageError: there is something already, or it cannot be written.
  """
  path = pathlib.Path(path).resolve()
  if path.exists():
    raise UsageError(f'{path} exists: give another folder, or remove it')
  with quiet(), context():
    try:
      ocp.save(path, tree)
    except Exception as error:  # orbax, tensorstore, the disk: no common class
      raise unwritten(path, error) from error


def load(path, like):
  """Reads a tree.

  Args:
    path: the folder.
    like: a tree of arrays or of their shapes, whose structure, shapes, dtypes
      and, where it has them, shardings the result gets.

  Returns:
    The tree, and the note that was saved with it: a dict, perhaps empty.

  Raises:
    UsageError: the folder is absent, cut short or foreign, or holds a tree
      that is not like `like`.
  """
  path = pathlib.Path(path).resolve()
  if not path.is_dir():
    raise UsageError(f'{path}: no such folder; give one with a checkpoint')
  like = abstract(like)
  broken = UsageError(
    f'{path}: not a whole checkpoint: cut short, or written by something else;'
    ' remove it, or give another'
  )
  with quiet():
    try:
      saved = ocp.metadata(path)
    except Exception as error:  # see save
      raise broken from error
    # What orbax cannot parse it leaves out.
    if saved.metadata is None or saved.commit_timestamp_nsecs is None:
      raise broken
    check(saved.metadata, like, path)
    try:
      return ocp.load(path, like), saved.custom_metadata or {}
    except Exception as error:  # see save
      raise broken from error


def abstract(tree):
  """A tree's shapes, dtypes and shardings; the first device has the rest."""
  device = jax.sharding.SingleDeviceSharding(jax.devices()[0])

  def describe(leaf):
    sharding = getattr(leaf, 'sharding', None) or device
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

  return jax.tree.map(describe, tree)


def check(found, wanted, where):
  """Compares two trees by the paths, shapes and dtypes of their arrays.

  Args:
    found: the tree that is there.
    wanted: the one asked for.
    where: what the message begins with.

  Raises:
    UsageError: they differ.
  """
  found, wanted = _arrays(found), _arrays(wanted)
  missing = [name for name in wanted if name not in found]
  unexpected = [name for name in found if name not in wanted]
  other = [
    f'{name} {found[name]} instead of {wanted[name]}'
    for name in wanted
    if name in found and found[name] != wanted[name]
  ]
  faults = [
    f'{kind}: {_some(names)}'
    for kind, names in (
      ('missing', missing),
      ('unexpected', unexpected),
      ('other arrays', other),
    )
    if names
  ]
  if faults:
    raise UsageError(
      f'{where}: {"; ".join(faults)}; give the configuration that it was saved'
      ' with, or another folder'
    )


def unwritten(path, error):
  """The UsageError of a write that failed."""
  reason = getattr(error, 'strerror', None)
  if reason is None:
    # tensorstore: 'CODE: ...: No space left on device [os_error_code=...]'.
    text = ' '.join(str(error).split())
    reason = re.sub(r' \[.*', '', text).rpartition(': ')[2] or repr(error)
  return UsageError(
    f'{path}: not written ({reason}); free some space or give a folder that can'
    ' be written'
  )


def context():
  """What orbax saves under.

  Made in the background, a folder that cannot be made keeps threads waiting
  for it, and the process alive for five minutes.
  """
  return ocp.Context(
    async_options=ocp.options.AsyncOptions(
      create_directories_asynchronously=False
    )
  )


@contextlib.contextmanager
def quiet():
  """Silences what orbax logs, a page of it, beside what it raises."""
  before = absl.logging.get_verbosity()
  absl.logging.set_verbosity(absl.logging.FATAL)
  try:
    yield
  finally:
    absl.logging.set_verbosity(before)


def _arrays(tree):
  """{path: 'dtype[shape]'} of a tree; a typed key is what it is made of."""
  arrays = {}
  for path, leaf in jax.tree.leaves_with_path(tree):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.eval_shape(jax.random.key_data, leaf)
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    shape = ', '.join(map(str, leaf.shape))
    arrays[name.removesuffix('/value')] = f'{leaf.dtype}[{shape}]'
  return arrays


def _some(names):
  rest = len(names) - _NAMED
  named = ', '.join(names[:_NAMED])
  return f'{named} and {rest} more' if rest > 0 else named
