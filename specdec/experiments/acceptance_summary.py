"""From the rows of the acceptance experiment to its figures and its table.

Every figure is a ratio of sums over prompts, so that each has its interval and
its paired difference to the first draft. A ratio without a denominator, as the
accept rate of a draft that never proposes, is None.
"""

import numpy as np

from specdec.decode import stats
from specdec.experiments import intervals, tables
from specdec.plots import acceptance as plot

FIGURES = ('overlap', 'accept_rate', 'block_efficiency', 'law_block_efficiency')


def ratios(row):
  """Numerators and denominators of FIGURES, by prompt.

  Drafts that a stop or the budget cut off count as accepted; the last rounds
  before the budget draft less, whatever the draft.

  Args:
    row: of metrics.jsonl.

  Returns:
    {name: ([N], [N])}.
  """
  by_prompt = {name: np.array(v) for name, v in row['by_prompt'].items()}
  rounds = by_prompt['rounds']
  return {
    'overlap': (by_prompt['survived'][:, 0], by_prompt['starts'][:, 0]),
    'accept_rate': (by_prompt['accepted'], by_prompt['drafted']),
    'block_efficiency': (rounds + by_prompt['accepted'], rounds),
    'law_block_efficiency': (rounds + by_prompt['expected'], rounds),
  }


def summarize(config, rows):
  """What summary.json holds.

  Args:
    config: dict of the experiment's fields.
    rows: of metrics.jsonl.

  Returns:
    A dict; `cells` has one entry for each draft and temperature. `NAME_gain`
    is the difference to the first draft.
  """
  labels = list(dict.fromkeys(row['draft'] for row in rows))
  first = {r['temperature']: r for r in rows if r['draft'] == labels[0]}
  return {
    'target': config['target'],
    'drafts': dict(zip(labels, config['drafts'], strict=True)),
    'gamma': config['gamma'],
    'prompts': len(rows[0]['by_prompt']['rounds']),
    'side': config['side'],
    'max_new_tokens': config['max_new_tokens'],
    'batch_size': config['batch_size'],
    'cells': [_cell(row, first[row['temperature']]) for row in rows],
  }


def _cell(row, first):
  cell = {name: value for name, value in row.items() if name != 'by_prompt'}
  ours, base = ratios(row), ratios(first)
  for name in FIGURES:
    cell[name] = cell[f'{name}_gain'] = None
    if ours[name][1].any():
      cell[name] = intervals.ratio(*ours[name])
      if base[name][1].any():
        gain = intervals.ratio_difference(ours[name], base[name])
        cell[f'{name}_gain'] = gain
  reached, survived, starts = (
    np.sum(row['by_prompt'][name], 0)
    for name in ('reached', 'survived', 'starts')
  )
  cell['overlap_by_position'] = list(map(stats.rate, survived, reached))
  forecast = list(map(stats.rate, survived, starts))
  cell['forecast_accept_rate_by_position'] = forecast
  cell['forecast_block_efficiency'] = 1 + sum(filter(None, forecast))
  return cell


def line(row):
  """One row, while the run goes on."""
  parts, wholes = ratios(row)['overlap']
  return (
    f'{row["draft"]}  T {row["temperature"]:g}'
    f'  overlap {parts.sum() / wholes.sum():.3f}'
    f'  {row["block_efficiency"]:.2f} tokens a call'
  )


def report(console, summary):
  """Prints the table."""
  table = tables.build(
    'draft', 'T', 'over-\nlap', '\n95 %', 'gain\n95 %', 'accept\nrate',
    'block\neff.', 'fore-\ncast', 'speed-\nup',
  )  # fmt: skip
  for cell in summary['cells']:
    overlap, gain, accepted, block = (
      cell[name]
      for name in ('overlap', 'overlap_gain', 'accept_rate', 'block_efficiency')
    )
    table.add_row(
      plot.short(cell['draft'], 20),
      f'{cell["temperature"]:g}',
      f'{overlap.value:.3f}',
      tables.bounds(overlap),
      f'{gain.low:+.3f} {gain.high:+.3f}',
      '-' if accepted is None else f'{accepted.value:.3f}',
      f'{block.value:.2f}',
      f'{cell["forecast_block_efficiency"]:.2f}',
      '-' if cell['speedup'] is None else f'{cell["speedup"]:.2f}',
    )
  tables.show(console, table)
  console.print(
    f'{summary["prompts"]} prompts, gamma {summary["gamma"]}; gain: of overlap,'
    ' over the first draft;\nforecast: block efficiency that follows from'
    ' overlaps alone'
  )
