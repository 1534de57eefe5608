"""What a run writes into its workdir.

config.json and versions.json at the start, metrics.jsonl a row at a time,
summary.json at the end: the figures that people quote. Plots read these files.
"""

import importlib.metadata
import json
import os
import pathlib
import platform

import jax
import numpy as np

from specdec.base import UsageError

PACKAGES = ('jax', 'jaxlib', 'flax', 'numpy', 'specdec')


def start(workdir, config):
  """Opens a workdir; what an earlier run left there is set aside, not lost.

  Args:
    workdir: pathlib.Path.
    config: a mapping that json can write.

  Returns:
    The absolute path of the workdir, which exists and holds config.json and
    versions.json.

  Raises:
    UsageError: no folder can be made there.
  """
  left = pathlib.Path(workdir) / 'metrics.jsonl'
  has_run = left.exists() and left.stat().st_size > 0
  has_run |= left.with_name('summary.json').exists()
  return _open(workdir, config, has_run)


def resume(workdir, config):
  """Opens a workdir, and goes on where an interrupted run of it stopped.

  An earlier run of another config is set aside, finished or not.

  Args:
    workdir: pathlib.Path.
    config: a mapping that json can write.

  Returns:
    The workdir, absolute, and the rows of metrics.jsonl; none, in a new
    workdir, unless an unfinished run of the same config is there.
  """
  workdir = pathlib.Path(workdir).resolve()
  written = json.loads(json.dumps(config, default=_plain))
  try:
    before = json.loads((workdir / 'config.json').read_text())
    lines = (workdir / 'metrics.jsonl').read_text().splitlines(keepends=True)
  except (OSError, ValueError):
    return start(workdir, config), []
  done = (workdir / 'summary.json').exists()
  if before != written or done:
    return _open(workdir, config, has_run=done or bool(lines)), []
  # A line that was cut off by the interruption is not a row.
  rows = [json.loads(line) for line in lines if line.endswith('\n')]
  write_lines(workdir / 'metrics.jsonl', rows)
  return workdir, rows


def append(workdir, row):
  """Adds one row to metrics.jsonl."""
  with open(pathlib.Path(workdir) / 'metrics.jsonl', 'a') as file:
    file.write(json.dumps(row, default=_plain) + '\n')


def cut(workdir, step):
  """Drops the rows of metrics.jsonl after a step, to go on from there.

  A last line that was cut off is dropped too; rows without a step stay.
  """
  path = pathlib.Path(workdir) / 'metrics.jsonl'
  if not path.exists():
    return
  kept = []
  for line in path.read_text().splitlines(keepends=True):
    if line.endswith('\n') and json.loads(line).get('step', step) <= step:
      kept.append(line)
  part = path.with_suffix('.part')
  part.write_text(''.join(kept))
  os.replace(part, path)


def summarize(workdir, summary):
  """Writes summary.json."""
  write_json(pathlib.Path(workdir) / 'summary.json', summary)


def write_json(path, value):
  """Writes a file that is either whole or absent."""
  path = pathlib.Path(path)
  part = path.with_suffix('.part')
  part.write_text(json.dumps(value, indent=2, default=_plain) + '\n')
  os.replace(part, path)


def write_lines(path, rows):
  """Writes a JSON Lines file that is either whole or absent."""
  part = pathlib.Path(path).with_suffix('.part')
  part.write_text(
    ''.join(json.dumps(row, default=_plain) + '\n' for row in rows)
  )
  os.replace(part, path)


def versions():
  """What the run stands on: packages, Python, device."""
  device = jax.devices()[0]
  return {
    **{name: importlib.metadata.version(name) for name in PACKAGES},
    'python': platform.python_version(),
    'platform': device.platform,
    'device': device.device_kind,
    'devices': jax.device_count(),
    'cpu_count': os.cpu_count(),
  }


def _open(workdir, config, has_run):
  """A workdir for a run; the one that is there, if any, is set aside."""
  workdir = pathlib.Path(workdir).resolve()
  try:
    if has_run:
      _set_aside(workdir)
    (workdir / 'figures').mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise UsageError(
      f'workdir = {str(workdir)!r}: {error.strerror}; give a folder that can'
      ' be written'
    ) from error
  (workdir / 'metrics.jsonl').unlink(missing_ok=True)
  write_json(workdir / 'config.json', config)
  write_json(workdir / 'versions.json', versions())
  return workdir


def _plain(value):
  """NumPy and JAX values as plain ones."""
  if isinstance(value, pathlib.Path):
    return str(value)
  array = np.asarray(value)
  return array.item() if array.ndim == 0 else array.tolist()


def _set_aside(workdir):
  number = 1
  while (aside := workdir.with_name(f'{workdir.name}.{number}')).exists():
    number += 1
  workdir.rename(aside)
