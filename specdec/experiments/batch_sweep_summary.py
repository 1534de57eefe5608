"""From the rows of a batch sweep to its figures and its table."""

import math

from specdec.experiments import intervals, sweep_cells, tables
from specdec.plots import batch_sweep as plot

CLOSE = 0.1  # as near as this to a prediction, relative


def summarize(config, rows):
  """What summary.json holds.

  Args:
    config: dict of the experiment's fields.
    rows: of metrics.jsonl.

  Returns:
    A dict; `cells` has one entry for each draft, gamma and batch size;
    `crossings` one for each draft and gamma.
  """
  costs, groups = {}, {}
  for row in rows:
    key = row['draft'], row['batch_size']
    if 'costs' in row:
      costs[key] = row
    else:
      groups.setdefault(key, []).append(row)
  cells = []
  for key in sorted(groups, key=lambda key: key[1]):
    group = sorted(groups[key], key=lambda row: row['start'])
    for number in range(len(config['gammas'])):
      cells.append(_cell(group, costs[key], number, config['temperature']))
  labels = list(dict.fromkeys(label for label, _ in costs))
  series = [(label, gamma) for label in labels for gamma in config['gammas']]
  cells = [
    cell
    for key in series
    for cell in cells
    if key == (cell['draft'], cell['gamma'])
  ]
  ratios = [cell['efficiency'] for cell in cells]
  return {
    **sweep_cells.head(config, rows),
    'drafts': dict(zip(labels, config['drafts'], strict=True)),
    'temperature': config['temperature'],
    'batch_sizes': sorted(config['batch_sizes']),
    'rows': config['rows'],
    'num_params': {name: p['num_params'] for (name, _), p in costs.items()},
    'costs': {
      label: {
        str(size): price['measured']
        for (name, size), price in costs.items()
        if name == label
      }
      for label in labels
    },
    **sweep_cells.totals(cells),
    'close': {
      'within': CLOSE,
      'cells': sum(abs(ratio - 1) <= CLOSE for ratio in ratios),
      'of': len(ratios),
    },
    'cells': cells,
    'crossings': [
      {'draft': label, 'gamma': gamma}
      | _crossings(
        [c for c in cells if (label, gamma) == (c['draft'], c['gamma'])]
      )
      for label, gamma in series
    ],
  }


def _cell(rows, price, number, temperature):
  """One loop at one batch size."""
  found = sweep_cells.cell(rows, number)
  del found['policy']
  measured = price['measured']
  return {
    'draft': rows[0]['draft'],
    'batch_size': rows[0]['batch_size'],
    'batches': len(rows),
    **found,
    'c': measured['c'],
    'v': measured['v'][str(found['gamma'])],
    **sweep_cells.predicted(rows, price, temperature, found),
  }


def _crossings(cells):
  """Where the measured and the predicted speedup fall below 1."""
  sizes = [cell['batch_size'] for cell in cells]
  return {
    'measured': crossing(sizes, [cell['speedup'].value for cell in cells]),
    'predicted': crossing(
      sizes, [cell['predicted']['measured_costs'] for cell in cells]
    ),
  }


def crossing(sizes, gains):
  """From which batch size on a speedup stays below 1.

  Between two sizes it is taken to be linear in the logarithm of the size.

  Args:
    sizes: batch sizes, ascending.
    gains: speedups at them.

  Returns:
    A dict: `batch_size`, a float, or None where no such size is in the range;
    then `side` is 'above' if the speedup at the greatest size is 1 or more,
    'below' if it is less at all sizes. Else `side` is None.
  """
  paying = [place for place, gain in enumerate(gains) if gain >= 1]
  if not paying:
    return {'batch_size': None, 'side': 'below'}
  last = paying[-1]
  if last == len(sizes) - 1:
    return {'batch_size': None, 'side': 'above'}
  share = (gains[last] - 1) / (gains[last] - gains[last + 1])
  low, high = (math.log2(size) for size in sizes[last : last + 2])
  return {'batch_size': 2 ** (low + share * (high - low)), 'side': None}


def line(row):
  """One row, while the run goes on."""
  name = f'{row["draft"]}  batch {row["batch_size"]}'
  if 'costs' in row:
    return sweep_cells.costs_line(name, row)
  return f'{name}  from row {row["start"]}: {sweep_cells.gains(row)}'


def report(console, summary):
  """Prints the table, the crossings, and how near predictions were."""
  table = tables.build(
    'draft', 'gamma', 'batch', 'block\neff.', '\n95 %', 'c', 'v',
    'tokens/s\nautoreg.', '\nspec.', '\npredicted', 'speed-\nup', '\n95 %',
    'pre-\ndicted', 'effi-\nciency',
  )  # fmt: skip
  for cell in summary['cells']:
    block, gain = (
      intervals.Interval(*cell[name])
      for name in ('block_efficiency', 'speedup')
    )
    predicted = cell['predicted']
    table.add_row(
      cell['draft'],
      str(cell['gamma']),
      str(cell['batch_size']),
      f'{block.value:.2f}',
      tables.bounds(block),
      f'{cell["c"]:.2f}',
      f'{cell["v"]:.2f}',
      f'{cell["autoregressive_tokens_per_s"]:.1f}',
      f'{cell["tokens_per_s"]:.1f}',
      f'{predicted["tokens_per_s"]:.1f}',
      f'{gain.value:.2f}',
      tables.bounds(gain),
      f'{predicted["measured_costs"]:.2f}',
      f'{cell["efficiency"]:.2f}',
    )
  console.print()
  tables.show(console, table)
  console.print()
  for found in summary['crossings']:
    measured, predicted = (
      plot.limit(found[name], summary['batch_sizes'])
      for name in ('measured', 'predicted')
    )
    console.print(
      f'{found["draft"]}, gamma {found["gamma"]}: pays {measured}; predicted:'
      f' {predicted}'
    )
  close = summary['close']
  console.print(
    f'within {100 * close["within"]:.0f} % of the prediction in'
    f' {close["cells"]} of {close["of"]} cells'
  )
