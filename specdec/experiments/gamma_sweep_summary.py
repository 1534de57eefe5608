"""From the rows of a gamma sweep to its figures and its tables."""

from specdec.experiments import intervals, sweep_cells, tables

ALL = 'all'  # prompts of every kind, and those of a file that names none


def summarize(config, rows):
  """What summary.json holds.

  Args:
    config: dict of the experiment's fields.
    rows: of metrics.jsonl.

  Returns:
    A dict; `cells` has one entry for each draft, rule, temperature and loop;
    `policies` compares what chooses its gamma with fixed ones.
  """
  prices = {row['draft']: row for row in rows if 'costs' in row}
  groups = {}
  for row in rows:
    if 'costs' not in row:
      key = row['draft'], row['rule'], row['temperature']
      groups.setdefault(key, []).append(row)
  cells, policies = [], []
  for key, group in groups.items():
    group.sort(key=lambda row: row['start'])
    label = dict(zip(('draft', 'rule', 'temperature'), key, strict=True))
    for number, loop in enumerate(group[0]['loops']):
      cell = label | sweep_cells.cell(group, number)
      cell |= {'lossless': group[0]['lossless'], 'predicted': None}
      if loop['policy'] == 'fixed' and is_predicted(group[0]):
        cell |= sweep_cells.predicted(
          group, prices[key[0]], label['temperature'], cell
        )
      cells.append(cell)
    policies += [label | row for row in _policies(group)]
  return {
    **sweep_cells.head(config, rows),
    'drafts': dict(zip(prices, config['drafts'], strict=True)),
    'prompts': sum(len(r['kinds']) for r in next(iter(groups.values()))),
    'batch_size': config['batch_size'],
    'num_params': {n: price['num_params'] for n, price in prices.items()},
    'costs': {name: price['measured'] for name, price in prices.items()},
    **sweep_cells.totals(cells),
    'cells': cells,
    'policies': policies,
  }


def is_predicted(row):
  """Do the token rule's rounds hold for a row of metrics.jsonl?"""
  is_greedy = row['temperature'] == 0 and row['lossless']
  return row['rule'] == 'token' or is_greedy


def _policies(rows):
  """What chooses its gamma, beside the best fixed one, by kind of prompt.

  The best is found on the same prompts and clocks, so its speed is flattered
  by luck, and what is compared with it is not.
  """
  loops = rows[0]['loops']
  chosen = {
    loop['policy']: number
    for number, loop in enumerate(loops)
    if loop['policy'] != 'fixed'
  }
  fixed = [n for n, loop in enumerate(loops) if loop['policy'] == 'fixed']
  kinds = list(dict.fromkeys(kind for row in rows for kind in row['kinds']))
  # A batch of several kinds has one clock.
  apart = all(len(set(row['kinds'])) == 1 for row in rows)
  for kind in dict.fromkeys([ALL, *kinds] if apart else [ALL]):
    here = [row for row in rows if kind in (ALL, *row['kinds'])]
    speeds = [
      sweep_cells.speed([row['loops'][n] for row in here])
      for n in range(len(loops))
    ]
    plain = sweep_cells.speed([row['plain'] for row in here])
    best = max(fixed, key=lambda n: sum(speeds[n][0]) / sum(speeds[n][1]))
    for policy, number in chosen.items():
      others = {
        f'over_{other}': sweep_cells.quotient(speeds[number], speeds[n])
        for other, n in chosen.items()
        if other != policy
      }
      yield {
        'policy': policy,
        'kind': kind,
        'prompts': sum(len(row['kinds']) for row in here),
        'best_gamma': loops[best]['gamma'],
        'speedup': sweep_cells.quotient(speeds[number], plain),
        'best_speedup': sweep_cells.quotient(speeds[best], plain),
        'of_best': sweep_cells.quotient(speeds[number], speeds[best]),
        **others,
      }


def line(row):
  """One row, while the run goes on."""
  if 'costs' in row:
    return sweep_cells.costs_line(row['draft'], row)
  return (
    f'{row["draft"]}  {row["rule"]}  T {row["temperature"]:g}'
    f'  from prompt {row["start"]}: {sweep_cells.gains(row)}'
  )


def report(console, summary):
  """Prints the tables."""
  table = tables.build(
    'draft', 'rule', 'T', 'gamma', 'block\neff.', 'pre-\ndicted', 'speed-\nup',
    '\n95 %', 'one\nalpha', 'by posi-\ntion', 'with\ncosts', 'effi-\nciency',
  )  # fmt: skip
  for cell in summary['cells']:
    predicted = cell['predicted'] or {}
    gain = intervals.Interval(*cell['speedup'])
    is_fixed = cell['policy'] == 'fixed'
    table.add_row(
      cell['draft'],
      cell['rule'],
      f'{cell["temperature"]:g}',
      str(cell['gamma']) if is_fixed else cell['policy'],
      f'{cell["block_efficiency"][0]:.2f}',
      tables.number(predicted.get('block_efficiency')),
      f'{gain.value:.2f}',
      tables.bounds(gain),
      *(
        tables.number(predicted.get(name))
        for name in ('constant_alpha', 'by_position', 'measured_costs')
      ),
      tables.number(cell.get('efficiency')),
    )
  console.print()
  tables.show(console, table)
  found = summary['efficiency']
  if found:
    console.print(
      'efficiency, measured over predicted with costs: median'
      f' {found["median"]:.3f}, {found["least"]:.3f} to {found["greatest"]:.3f}'
      f' in {found["cells"]} cells'
    )
  if summary['policies']:
    console.print()
    tables.show(console, _policy_table(summary['policies']))


def _policy_table(policies):
  table = tables.build(
    'draft', 'rule', 'T', 'policy', 'prompts', 'speed-\nup', '\n95 %',
    'best\ngamma', 'its\nspeedup', 'of\nit', '\n95 %',
  )  # fmt: skip
  for row in policies:
    gain, best, share = (
      intervals.Interval(*row[name])
      for name in ('speedup', 'best_speedup', 'of_best')
    )
    table.add_row(
      row['draft'],
      row['rule'],
      f'{row["temperature"]:g}',
      row['policy'],
      row['kind'],
      f'{gain.value:.2f}',
      tables.bounds(gain),
      str(row['best_gamma']),
      f'{best.value:.2f}',
      f'{share.value:.3f}',
      tables.bounds(share, 3),
    )
  return table
