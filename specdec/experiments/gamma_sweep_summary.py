"""From the rows of a gamma sweep to its figures and its tables."""

import jax
import numpy as np
from rich import table as rich_table

from specdec import metrics
from specdec.decode import stats
from specdec.experiments import intervals, setup, sweeping

ALL = 'all'  # prompts of every kind


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
      cell = label | _cell(group, number)
      if loop['policy'] == 'fixed':
        cell |= _predicted(group, prices[key[0]], loop['gamma'])
        if cell['predicted']:
          gain = cell['speedup'].value
          cell['efficiency'] = gain / cell['predicted']['measured_costs']
      cells.append(cell)
    policies += [label | row for row in _policies(group)]
  found = [c['efficiency'] for c in cells if c.get('efficiency')]
  return {
    'target': config['target'],
    'drafts': dict(zip(prices, config['drafts'], strict=True)),
    'device': jax.devices()[0].device_kind,
    'dtype': setup.dtype_of(config['dtype']),
    'versions': metrics.versions(),
    'prompts': sum(len(r['kinds']) for r in next(iter(groups.values()))),
    'max_new_tokens': config['max_new_tokens'],
    'batch_size': config['batch_size'],
    'costs': {name: price['measured'] for name, price in prices.items()},
    'efficiency': {
      'cells': len(found),
      'least': min(found),
      'median': float(np.median(found)),
      'greatest': max(found),
    }
    if found
    else None,
    'differ': sum(cell['differ'] or 0 for cell in cells),
    'cells': cells,
    'policies': policies,
  }


def _cell(rows, number):
  """One loop beside the autoregressive one."""
  loops = [row['loops'][number] for row in rows]
  plain = [row['plain'] for row in rows]
  drafted, accepted = (
    np.sum([loop[name] for loop in loops], 0)
    for name in ('drafted_at', 'accepted_at')
  )
  differ = [loop['differ'] for loop in loops if loop['differ'] is not None]
  return {
    'gamma': loops[0]['gamma'],
    'policy': loops[0]['policy'],
    'lossless': rows[0]['lossless'],
    'block_efficiency': intervals.ratio(
      _column(loops, 'tokens'), _column(loops, 'rounds')
    ),
    'accept_rate_by_position': list(map(stats.rate, accepted, drafted)),
    'tokens_per_s': stats.rate(*(sum(x) for x in _speed(loops))),
    'autoregressive_tokens_per_s': stats.rate(*(sum(x) for x in _speed(plain))),
    'speedup': intervals.ratio_quotient(_speed(loops), _speed(plain)),
    'differ': sum(differ) if differ else None,
    'predicted': None,
  }


def _predicted(rows, price, gamma):
  """The predictions of a fixed gamma, where the token rule's hold."""
  first = rows[0]
  is_greedy = first['temperature'] == 0 and first['lossless']
  if first['rule'] != 'token' and not is_greedy:
    return {'predicted': None}
  found = sweeping.predict(rows, price, first['temperature'], gamma)
  return {'predicted': found._asdict()}


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
  for kind in [ALL, *kinds] if apart else [ALL]:
    here = [row for row in rows if kind in (ALL, *row['kinds'])]
    speeds = [
      _speed([row['loops'][n] for row in here]) for n in range(len(loops))
    ]
    plain = _speed([row['plain'] for row in here])
    best = max(fixed, key=lambda n: sum(speeds[n][0]) / sum(speeds[n][1]))
    for policy, number in chosen.items():
      others = {
        f'over_{other}': intervals.ratio_quotient(speeds[number], speeds[n])
        for other, n in chosen.items()
        if other != policy
      }
      yield {
        'policy': policy,
        'kind': kind,
        'prompts': sum(len(row['kinds']) for row in here),
        'best_gamma': loops[best]['gamma'],
        'speedup': intervals.ratio_quotient(speeds[number], plain),
        'best_speedup': intervals.ratio_quotient(speeds[best], plain),
        'of_best': intervals.ratio_quotient(speeds[number], speeds[best]),
        **others,
      }


def _speed(loops):
  """Tokens and seconds, one a batch."""
  return _column(loops, 'tokens'), _column(loops, 'seconds')


def _column(loops, name):
  return np.array([loop[name] for loop in loops], float)


def line(row):
  """One row, while the run goes on."""
  if 'costs' in row:
    costs = row['costs']
    return (
      f'{row["draft"]}: a target call takes {1e3 * costs["target_s"][0]:.1f} ms'
      f' for 1 token and {1e3 * costs["target_s"][-1]:.1f} for'
      f' {len(costs["target_s"])}, a draft {1e3 * costs["draft_s"]:.1f} ms'
    )
  plain = row['plain']['tokens'] / row['plain']['seconds']
  gains = ' '.join(
    f'{loop["tokens"] / loop["seconds"] / plain:.2f}' for loop in row['loops']
  )
  return (
    f'{row["draft"]}  {row["rule"]}  T {row["temperature"]:g}'
    f'  from prompt {row["start"]}: {gains}'
  )


def report(console, summary):
  """Prints the tables."""
  table = _table(
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
      _number(predicted.get('block_efficiency')),
      f'{gain.value:.2f}',
      f'{gain.low:.2f}-{gain.high:.2f}',
      *(
        _number(predicted.get(name))
        for name in ('constant_alpha', 'by_position', 'measured_costs')
      ),
      _number(cell.get('efficiency')),
    )
  console.print()
  console.print(table)
  found = summary['efficiency']
  if found:
    console.print(
      'efficiency, measured over predicted with costs: median'
      f' {found["median"]:.3f}, {found["least"]:.3f} to {found["greatest"]:.3f}'
      f' in {found["cells"]} cells'
    )
  if summary['policies']:
    console.print()
    console.print(_policy_table(summary['policies']))


def _policy_table(policies):
  table = _table(
    'draft', 'T', 'policy', 'prompts', 'speed-\nup', '\n95 %', 'best\ngamma',
    'its\nspeedup', 'of\nit', '\n95 %',
  )  # fmt: skip
  for row in policies:
    gain, best, share = (
      intervals.Interval(*row[name])
      for name in ('speedup', 'best_speedup', 'of_best')
    )
    table.add_row(
      row['draft'],
      f'{row["temperature"]:g}',
      row['policy'],
      row['kind'],
      f'{gain.value:.2f}',
      f'{gain.low:.2f}-{gain.high:.2f}',
      str(row['best_gamma']),
      f'{best.value:.2f}',
      f'{share.value:.3f}',
      f'{share.low:.3f}-{share.high:.3f}',
    )
  return table


def _table(*names):
  table = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
  for number, name in enumerate(names):
    table.add_column(name, justify='right' if number else 'left')
  return table


def _number(value):
  return '-' if value is None else f'{value:.2f}'
