"""From the files of a pipeline to its figures and its tables."""

import json

from specdec.experiments import intervals, tables
from specdec.experiments import pipeline_phases as phases
from specdec.plots import acceptance as plot

# Of a cell of the acceptance experiment.
_KEPT = (
  'draft', 'temperature', 'overlap', 'overlap_gain', 'accept_rate',
  'accept_rate_gain', 'block_efficiency', 'block_efficiency_gain',
  'speculative_tokens_per_s', 'autoregressive_tokens_per_s', 'speedup',
)  # fmt: skip


def summarize(workdir, limits):
  """What the phases found.

  Args:
    workdir: pathlib.Path.
    limits: see pipeline_phases.find_limits.

  Returns:
    A dict: `curve`, points (tokens seen, overlap on held-out replies);
    `limits`, overlaps and bounds by set of replies; `measured`, the cells of
    each set of prompts. `NAME_gain` is the difference to the distilled draft;
    `round_cost` is what a round costs, in autoregressive steps.
  """
  limits = {
    name: {draft: intervals.ratio(*parts) for draft, parts in found.items()}
    for name, found in limits.items()
  }
  start = limits[phases.HELD_OUT]['undistilled'].value
  return {
    'curve': [(0, start), *_curve(workdir / phases.DISTILLED)],
    'limits': limits,
    'measured': {
      name: [
        _cell(cell) for cell in _read(workdir / phases.MEASURED / name)['cells']
      ]
      for name in phases.SETS
    },
  }


def _curve(folder):
  tokens = 0
  for line in (folder / 'metrics.jsonl').read_text().splitlines():
    row = json.loads(line)
    tokens += int(row['tokens'])
    if 'validation' in row:
      yield tokens, 1 - row['validation']


def _cell(cell):
  cost = None
  if cell['speedup']:
    cost = cell['block_efficiency'][0] / cell['speedup']
  return {**{name: cell[name] for name in _KEPT}, 'round_cost': cost}


def _read(folder):
  return json.loads((folder / 'summary.json').read_text())


def report(console, summary):
  """Prints the tables."""
  table = tables.build(
    'prompts', 'draft', 'T', 'over-\nlap', 'accept\nrate', 'block\neff.',
    'round\ncost', 'speed-\nup',
  )  # fmt: skip
  for name, cells in summary['measured'].items():
    for cell in cells:
      table.add_row(
        name,
        plot.short(cell['draft'], 20),
        f'{cell["temperature"]:g}',
        *(
          tables.number(cell[figure] and cell[figure][0], digits)
          for figure, digits in (
            ('overlap', 3),
            ('accept_rate', 3),
            ('block_efficiency', 2),
          )
        ),
        tables.number(cell['round_cost'], 2),
        tables.number(cell['speedup'], 2),
      )
  console.print()
  tables.show(console, table)
  console.print(
    'round cost: in autoregressive steps; a block efficiency above it is a'
    ' speedup\n'
  )
  table = tables.build(
    'overlap on', 'undistilled', 'distilled', 'mass on the head'
  )
  for name, found in summary['limits'].items():
    table.add_row(
      name.replace('_', ' '),
      *(
        _interval(found.get(draft))
        for draft in ('undistilled', 'distilled', 'head')
      ),
    )
  tables.show(console, table)
  console.print('replies at temperature 1; a draft has no more than the head')
  tokens, overlap = summary['curve'][-1]
  console.print(
    f'{summary["rollouts"]["tokens"]:,} tokens of rollouts, {tokens:,} seen in'
    f' training: overlap {summary["curve"][0][1]:.3f} to {overlap:.3f} on'
    ' held-out replies'
  )


def _interval(found):
  if found is None:
    return '1'
  value, low, high = found
  return f'{value:.3f} ({low:.2f}-{high:.2f})'
