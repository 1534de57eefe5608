"""Cells of a sweep: one loop beside the autoregressive one, in figures.

What is resampled for an interval is the batch: it has one clock. Of a single
batch no spread is known, so its figures have no bounds.
"""

import jax
import numpy as np

from specdec import metrics
from specdec.decode import stats
from specdec.experiments import intervals, setup, sweeping


def cell(rows, number):
  """What one loop did.

  Args:
    rows: of sweeping.measure, one a batch.
    number: of the loop among those of a row.

  Returns:
    A dict.
  """
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
    'block_efficiency': _bounded(
      intervals.ratio(_column(loops, 'tokens'), _column(loops, 'rounds')),
      len(rows),
    ),
    'accept_rate_by_position': list(map(stats.rate, accepted, drafted)),
    'tokens_per_s': stats.rate(*(sum(x) for x in speed(loops))),
    'autoregressive_tokens_per_s': stats.rate(*(sum(x) for x in speed(plain))),
    'speedup': quotient(speed(loops), speed(plain)),
    'differ': sum(differ) if differ else None,
  }


def predicted(rows, price, temperature, found):
  """What was to be expected of a loop of a fixed gamma by the token rule.

  Args:
    rows: of `cell`.
    price: of sweeping.prices.
    temperature: of the rows.
    found: of `cell`.

  Returns:
    A dict: `predicted`, and `efficiency`, the measured speedup over it.
  """
  said = sweeping.predict(rows, price, temperature, found['gamma'])
  return {
    'predicted': said._asdict(),
    'efficiency': found['speedup'].value / said.measured_costs,
  }


def head(config, rows):
  """Where a summary's figures come from.

  Args:
    config: dict of the experiment's fields.
    rows: of metrics.jsonl.

  Returns:
    A dict.
  """
  return {
    'target': config['target'],
    'device': jax.devices()[0].device_kind,
    'dtype': setup.dtype_of(config['dtype']),
    'versions': metrics.versions(),
    'max_new_tokens': config['max_new_tokens'],
    'compile_s': sum(row.get('compile_s', 0.0) for row in rows),
  }


def totals(cells):
  """Efficiencies of those cells that have one, and texts that differ."""
  found = [cell['efficiency'] for cell in cells if 'efficiency' in cell]
  return {
    'efficiency': {
      'cells': len(found),
      'least': min(found),
      'median': float(np.median(found)),
      'greatest': max(found),
    }
    if found
    else None,
    'differ': sum(cell['differ'] or 0 for cell in cells),
  }


def quotient(first, second):
  """How many times another speed one is.

  Args:
    first: of `speed`.
    second: of `speed`, of the same batches.

  Returns:
    intervals.Interval; of a single batch without bounds, None each.
  """
  return _bounded(intervals.ratio_quotient(first, second), len(first[0]))


def speed(loops):
  """Tokens and seconds, one a batch."""
  return _column(loops, 'tokens'), _column(loops, 'seconds')


def costs_line(name, row):
  """A row of costs, while the run goes on."""
  costs = row['costs']
  return (
    f'{name}: a target call takes {1e3 * costs["target_s"][0]:.1f} ms for 1'
    f' token and {1e3 * costs["target_s"][-1]:.1f} for'
    f' {len(costs["target_s"])}, a draft {1e3 * costs["draft_s"]:.1f} ms'
  )


def gains(row):
  """The speedups of a batch, one a loop, while the run goes on."""
  plain = row['plain']['tokens'] / row['plain']['seconds']
  return ' '.join(
    f'{loop["tokens"] / loop["seconds"] / plain:.2f}' for loop in row['loops']
  )


def _bounded(interval, batches):
  return interval if batches > 1 else interval._replace(low=None, high=None)


def _column(loops, name):
  return np.array([loop[name] for loop in loops], float)
