"""Checkpoints of a run: one folder a step, the last few and the best kept.

Saving goes on in the background while the next steps run; a step's folder
appears when it is whole. Beside the state it holds where the data iterator
stood, so that a run that was cut off goes on bit for bit.
"""

import base64
import contextlib
import pathlib
from typing import Any, NamedTuple

from orbax.checkpoint import v1 as ocp

from specdec import pytree
from specdec.base import UsageError

_policies = ocp.training.preservation_policies


class Saved(NamedTuple):
  """What a checkpoint holds."""

  step: int
  state: Any  # a pytree
  position: Any  # of the data iterator, as its get_state() gave it
  value: float | None  # of the validation, when there was one


@contextlib.contextmanager
def writer(folder, keep_last=2, keep_best=1):
  """Opens a folder to save into; on leaving, everything is on disk.

  Args:
    folder: made when absent. What an interrupted save left is removed.
    keep_last: newest checkpoints that are kept.
    keep_best: checkpoints with the least value that are kept besides.

  Yields:
    save(step, state, position=None, value=None). It returns when the state is
    copied: the state may be consumed, the position changed. The disk may still
    be busy, and what goes wrong there the next call says.

  Raises:
    UsageError: a checkpoint could not be written. Earlier ones stay.
  """
  folder = pathlib.Path(folder).resolve()
  if keep_last < 1:
    raise UsageError(f'keep_last = {keep_last}: it must be at least 1')
  if keep_best < 0:
    raise UsageError(f'keep_best = {keep_best}: it must be at least 0')
  with pytree.quiet():
    manager = _open(folder, keep_last, keep_best)
    pending = []  # the last save's response

    def save(step, state, position=None, value=None):
      latest = manager.latest
      if latest is not None and step <= latest.step:
        raise UsageError(
          f'{folder}: it has a checkpoint of step {latest.step} already, and'
          f' step {step} is not after it; give another folder'
        )
      response = _attempt(
        folder,
        lambda: manager.save_async(
          step,
          state,
          metrics=None if value is None else {'value': value},
          custom_metadata={'position': _pack(position), 'value': value},
        ),
      )
      pending[:] = [response]

    try:
      yield save
      _attempt(folder, manager.close)
    finally:
      # What went wrong first is what is said; nothing goes on behind it.
      for end in (manager.close, *(response.result for response in pending)):
        with contextlib.suppress(Exception):
          end()


def steps(folder):
  """The steps that have a checkpoint, ascending."""
  folder = pathlib.Path(folder)
  if not folder.is_dir():
    return []
  return sorted(
    int(path.name)
    for path in folder.iterdir()
    if path.name.isdecimal() and path.is_dir()
  )


def restore(folder, like, which='latest') -> Saved:
  """Reads a checkpoint.

  Args:
    folder: that `writer` filled.
    like: a state, or its shapes; see pytree.load.
    which: 'latest', 'best' (the least value), or a step.

  Raises:
    UsageError: there is no such checkpoint, or it is broken, or does not fit.
  """
  folder = pathlib.Path(folder).resolve()
  step = _choose(folder, which)
  path = folder / str(step)
  state, note = pytree.load(path, like)
  if 'position' not in note:
    raise UsageError(
      f'{path}: not a checkpoint of a run; remove it, or give another folder'
    )
  return Saved(step, state, _unpack(note['position']), note['value'])


def _open(folder, keep_last, keep_best):
  """Orbax's manager of a folder."""
  if folder.exists() and not folder.is_dir():
    raise UsageError(f'{folder}: it must be a folder')
  keep = [_policies.LatestN(keep_last)]
  if keep_best:
    best = _policies.BestN(
      get_metric_fn=lambda metrics: metrics['value'],
      reverse=True,  # the last of the order are kept
      n=keep_best,
      keep_checkpoints_without_metrics=False,
    )
    keep.append(best)
  return _attempt(
    folder,
    lambda: ocp.training.Checkpointer(
      folder,
      context=pytree.context(),
      save_decision_policy=(
        ocp.training.save_decision_policies.FixedIntervalPolicy(1)
      ),
      preservation_policy=_policies.AnyPreservationPolicy(keep),
      cleanup_tmp_directories=True,
    ),
  )


def _attempt(folder, act):
  """What `act` returns; what it raises becomes one line."""
  try:
    return act()
  except Exception as error:  # orbax, tensorstore, the disk: no common class
    raise pytree.unwritten(folder, error) from error


def _choose(folder, which):
  """The step that is asked for."""
  there = steps(folder)
  if not there:
    raise UsageError(f'{folder}: no checkpoints; give the folder of a run')
  if which == 'latest':
    return there[-1]
  if which == 'best':
    values = {step: _value(folder / str(step)) for step in there}
    valued = [step for step in there if values[step] is not None]
    if not valued:
      raise UsageError(
        f"{folder}: no checkpoint has a value to be best by; give 'latest'"
      )
    return min(valued, key=values.get)
  if which not in there:
    raise UsageError(
      f'{folder}: no checkpoint of step {which!r}; there are'
      f' {", ".join(map(str, there))}'
    )
  return which


def _value(path):
  """The value that a checkpoint was saved with, None when it had none."""
  with pytree.quiet():
    try:
      return (ocp.metadata(path).custom_metadata or {}).get('value')
    except Exception:  # broken: it is not the best, and `restore` would say so
      return None


def _pack(position):
  """A position as JSON; iterators give JSON values, or bytes."""
  if isinstance(position, bytes):
    return {'bytes': base64.b64encode(position).decode('ascii')}
  return {'json': position}


def _unpack(packed):
  if 'bytes' in packed:
    return base64.b64decode(packed['bytes'])
  return packed['json']
