"""Finished runs side by side: what their summaries share, and by how much.

Cells are matched by what tells them apart, such as draft, temperature and
gamma. Where two runs hold figures by prompt for the same prompts, the
difference of a ratio has an interval in which how hard a prompt is cancels,
see intervals.ratio_difference. A difference is always to the first run.
"""

import pathlib

import numpy as np
from rich import console as rich_console

from specdec import metrics
from specdec.base import UsageError
from specdec.experiments import compare_report as report_lib
from specdec.experiments import compared_runs as runs_lib
from specdec.experiments import intervals
from specdec.plots import compare as plot

# Sums over prompts whose ratio a figure is, as rows of metrics.jsonl hold them.
PARTS = {
  'overlap': (('survived',), 'starts'),
  'accept_rate': (('accepted',), 'drafted'),
  'block_efficiency': (('rounds', 'accepted'), 'rounds'),
  'law_block_efficiency': (('rounds', 'expected'), 'rounds'),
}


def run(workdirs, out, figures=()):
  """Compares runs, prints tables, and writes summary.json and a figure.

  Args:
    workdirs: two or more folders of finished runs.
    out: folder of the results.
    figures: names of the figures to print; () is compare_report.OF_NOTE, or
      all where none of those is shared.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a folder holds no finished run, or nothing is shared.
  """
  runs = runs_lib.read(workdirs)
  summary = summarize(runs)
  names = {line['figure'] for line in summary['lines']}
  for name in figures:
    if name not in names:
      raise UsageError(
        f'figures = {name!r}: the runs share no such figure; give some of'
        f' {", ".join(sorted(names))}'
      )
  shown = set(figures) or names & set(report_lib.OF_NOTE) or names
  out = pathlib.Path(out).resolve()
  try:
    out.mkdir(parents=True, exist_ok=True)
    metrics.summarize(out, summary)
  except OSError as error:
    raise UsageError(
      f'out = {str(out)!r}: {error.strerror}; give a folder that can be written'
    ) from error
  drawn = plot.draw(out)
  console = rich_console.Console(highlight=False, soft_wrap=True, markup=False)
  report_lib.show(console, summary, shown)
  for path in (out / 'summary.json', *drawn):
    console.print(path)
  return summary


def summarize(runs):
  """What the runs share.

  Args:
    runs: a list of compared_runs.Run.

  Returns:
    A dict: `runs`, their names; `unmatched`, how many cells of each are left
    out; `keys`, what cells are matched by; `config`, the fields that differ;
    `unpaired`, why there are no paired intervals, or None; `lines`, one a
    figure of a cell, see `matched`, each with `paired`: for every run after the
    first [difference, low, high], or None.

  Raises:
    UsageError: they share no figure.
  """
  keys, lines = matched(runs)
  unpaired = why_unpaired(runs)
  rows = [runs_lib.by_place(run, keys, run.rows) for run in runs]
  for line in lines:
    place = tuple(line['cell'].values())
    here = [found.get(place) if place else None for found in rows]
    line['paired'] = [
      None if unpaired else _paired(line, here, other)
      for other in range(1, len(runs))
    ]
  cells = {tuple(line['cell'].items()) for line in lines if line['cell']}
  return {
    'runs': [run.name for run in runs],
    'unmatched': [len(run.cells) - len(cells) for run in runs],
    'keys': list(keys),
    'config': differences(runs),
    'unpaired': unpaired,
    'lines': lines,
  }


def matched(runs):
  """The figures that all runs have.

  Args:
    runs: a list of compared_runs.Run.

  Returns:
    The keys that cells are matched by, and a list of dicts: `cell`, its keys
    ({} for a figure of a whole run); `figure`, its name; `values`, one a run,
    a number or [value, low, high].

  Raises:
    UsageError: there is none.
  """

  def known(run, name):
    return bool(run.cells) and all(
      runs_lib.key(run, cell, name) is not None for cell in run.cells
    )

  keys = tuple(
    name
    for name in runs_lib.KEYS
    if any(name in cell for run in runs for cell in run.cells)
    and all(known(run, name) for run in runs)
  )
  parts = [((), [run.figures for run in runs])]
  if keys:
    cells = [runs_lib.by_place(run, keys, run.cells) for run in runs]
    parts += [
      (place, [found[place] for found in cells])
      for place in cells[0]
      if all(place in found for found in cells)
    ]
  lines = []
  for place, found in parts:
    cell = dict(zip(keys, place, strict=False))
    for name in found[0]:
      values = [figures.get(name) for figures in found]
      if name in cell or _is_setting(runs, name):
        continue
      if all(_is_figure(name, value) for value in values):
        lines.append({'cell': cell, 'figure': name, 'values': values})
  if not lines:
    raise UsageError(
      f'workdirs = {", ".join(run.name for run in runs)}: their summaries share'
      ' no figure; give runs of one experiment, or with cells of the same names'
    )
  return keys, lines


def why_unpaired(runs):
  """Why differences have no paired intervals, or None: one line."""
  for run in runs:
    if not run.rows:
      return f'{run.name} holds no figures by prompt'
  asked = [_prompts(run) for run in runs]
  for run, other in zip(runs[1:], asked[1:], strict=True):
    if other != asked[0]:
      return f'{run.name} and {runs[0].name} decoded different prompts'
  return None


def differences(runs):
  """Fields of configs and versions that differ, a list of dicts."""
  tables = [
    run.config | {f'versions.{name}': x for name, x in run.versions.items()}
    for run in runs
  ]
  names = dict.fromkeys(name for table in tables for name in table)
  found = [
    {'field': name, 'values': [table.get(name) for table in tables]}
    for name in names
  ]
  return [x for x in found if any(v != x['values'][0] for v in x['values'])]


def _paired(line, rows, other):
  """[difference, low, high] of a figure to the first run, or None.

  None, too, where a row's sums do not give the figure of the summary.
  """
  if line['figure'] not in PARTS or not rows[0] or not rows[other]:
    return None
  names, whole = PARTS[line['figure']]
  sums = []
  for row in (rows[other], rows[0]):
    by_prompt = row['by_prompt']
    if not {*names, whole} <= set(by_prompt):
      return None
    parts = sum(_first_column(by_prompt[name]) for name in names)
    sums.append((parts, _first_column(by_prompt[whole])))
    if not sums[-1][1].any():
      return None
  found = intervals.ratio_difference(*sums)
  wanted = runs_lib.value(line['values'][other]) - runs_lib.value(
    line['values'][0]
  )
  return list(found) if abs(found.value - wanted) < 1e-9 else None


def _first_column(values):
  """Figures by prompt; of those by position, the first position's."""
  values = np.asarray(values, float)
  return values if values.ndim == 1 else values[:, 0]


def _prompts(run):
  """What says which prompts a run decoded: files, side and how many."""
  files = run.config.get('prompts')
  side = run.config.get('side', 'all')
  num = {len(x) for row in run.rows for x in row['by_prompt'].values()}
  return (
    [files] if isinstance(files, str) else files,
    side if side == 'all' else (side, run.config.get('held_out')),
    num,
  )


def _is_figure(name, value):
  # Three positions of a round may look like an interval.
  is_interval = runs_lib.is_interval(value) and not name.endswith(
    '_by_position'
  )
  return runs_lib.is_number(value) or is_interval


def _is_setting(runs, name):
  """Was it chosen, not measured? An overlap is both, see compared_runs.key."""
  return name != 'overlap' and (
    name in runs_lib.KEYS or any(name in run.config for run in runs)
  )
