"""Finished runs as their files tell them: figures, cells, rows by prompt."""

import json
import pathlib
from typing import NamedTuple

from specdec.base import UsageError

# What tells cells apart, where it is in them.
KEYS = (
  'target', 'draft', 'drafter', 'policy', 'rule', 'kind', 'part', 'name',
  'temperature', 'batch_size', 'gamma', 'overlap',
)  # fmt: skip


class Run(NamedTuple):
  """One finished run; nested fields are joined by dots."""

  name: str
  config: dict
  versions: dict
  figures: dict  # of the whole run
  cells: list[dict]  # of its summary
  rows: list[dict]  # of metrics.jsonl, those with figures by prompt


def read(workdirs):
  """Reads runs.

  Args:
    workdirs: folders, two or more.

  Returns:
    A list of Run.

  Raises:
    UsageError: a folder is given twice, or holds no finished run.
  """
  paths = [pathlib.Path(workdir) for workdir in workdirs]
  if len(paths) < 2 or len({path.resolve() for path in paths}) < len(paths):
    raise UsageError(
      f'workdirs = {", ".join(map(str, paths))}: give two or more, all'
      ' different'
    )
  names = [path.resolve().name for path in paths]
  if len(set(names)) < len(names):
    names = list(map(str, paths))
  return [_read(path, name) for path, name in zip(paths, names, strict=True)]


def flat(tree, head=''):
  """A nested dict as a flat one, {'a.b': value}."""
  leaves = {}
  for name, value in tree.items():
    if isinstance(value, dict):
      leaves |= flat(value, f'{head}{name}.')
    else:
      leaves[f'{head}{name}'] = value
  return leaves


def is_number(value):
  """Is it a number, and no truth value?"""
  return isinstance(value, int | float) and not isinstance(value, bool)


def is_interval(value):
  """Is it [value, low, high]?"""
  return (
    isinstance(value, list)
    and len(value) == 3
    and all(map(is_number, value))
    and value[1] <= value[0] <= value[2]
  )


def value(figure):
  """The number that a figure is, whether it has an interval or not."""
  return figure[0] if isinstance(figure, list) else figure


def key(run, cell, name):
  """What a cell is called by one of KEYS; None where it has no such name.

  What all cells of a run have in common, as its gamma, is in the config.
  """
  # Chosen in one experiment, and measured in all others.
  if name == 'overlap' and 'overlaps' not in run.config:
    return None
  found = cell.get(name, run.config.get(name))
  return found if isinstance(found, str) or is_number(found) else None


def by_place(run, keys, cells):
  """Cells by their values of `keys`.

  Args:
    run: Run.
    keys: names.
    cells: its cells, or its rows.

  Returns:
    {values: cell}; two cells of the same values are told apart by something
    that other runs lack, and both are left out.
  """
  found = {}
  for cell in cells:
    found.setdefault(tuple(key(run, cell, name) for name in keys), []).append(
      cell
    )
  return {place: these[0] for place, these in found.items() if len(these) == 1}


def _read(path, name):
  try:
    summary = json.loads((path / 'summary.json').read_text())
  except OSError as error:
    raise UsageError(
      f'workdir = {str(path)!r}: it has no summary.json; give the folder of a'
      ' finished run'
    ) from error
  except ValueError as error:
    raise UsageError(
      f'workdir = {str(path)!r}: its summary.json is no JSON; run it again'
    ) from error
  cells = summary.get('cells', summary.get('rows'))
  if not isinstance(cells, list) or not all(isinstance(c, dict) for c in cells):
    cells = []
  rows = []
  if (path / 'metrics.jsonl').exists():
    lines = (path / 'metrics.jsonl').read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if 'by_prompt' in row]
  config, versions = (
    flat(json.loads((path / file).read_text()))
    if (path / file).exists()
    else {}
    for file in ('config.json', 'versions.json')
  )
  summary.pop('versions', None)  # they stand in versions.json
  return Run(
    name, config, versions, flat(summary), list(map(flat, cells)), rows
  )
