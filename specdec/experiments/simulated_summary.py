"""From counters and times of the simulated experiment to cells and a table."""

import jax
import numpy as np
from rich import table as rich_table

from specdec import metrics, theory
from specdec.experiments import setup

STANDARD_ERRORS = 3


def counts(overlap, gamma, counters):
  """Tokens a round as counted, beside the closed form.

  Rounds are independent and alike, whatever came before, so that the standard
  error follows from how often each number of drafts was accepted.

  Args:
    overlap: alpha, of every prefix.
    gamma: drafts of a round.
    counters: list of Counters.

  Returns:
    A dict.
  """
  num = sum(int(part.rounds.sum()) for part in counters)
  at_least = sum(np.asarray(part.accepted_at).sum(0) for part in counters)
  mean = at_least.sum() / num
  # E[tau^2] is the sum of (2 i - 1) P(tau >= i).
  square = at_least @ (2 * np.arange(gamma) + 1) / num
  error = float(np.sqrt(max(square - mean**2, 0.0) / num))
  exact = float(theory.expected_tokens(overlap, gamma))
  tokens = 1 + float(mean)
  return {
    'rounds': num,
    'tokens_per_round': tokens,
    'standard_error': error,
    'closed_form': exact,
    'agrees': abs(tokens - exact) <= STANDARD_ERRORS * error,
  }


def speeds(overlap, gamma, batch_size, tokens_per_round, calls):
  """Speed as measured, beside what the measured costs predict.

  Args:
    overlap: alpha.
    gamma: drafts of a round.
    batch_size: B.
    tokens_per_round: as counted.
    calls: {name: Times of one call, in seconds}, a round among them.

  Returns:
    A dict. c is the mean draft step of a round: its first one feeds two tokens
    and costs more. `outside` is the share of a round that no forward explains.
  """
  single = calls['target 1'].median_s
  drafting = calls['draft 2'].median_s
  drafting += (gamma - 1) * calls['draft 1'].median_s
  verification = calls['verification'].median_s
  spread = calls['round']
  c, v = drafting / gamma / single, verification / single
  plain = batch_size / calls['step'].median_s
  measured, slow, fast = (
    batch_size * tokens_per_round / value
    for value in (spread.median_s, spread.high_s, spread.low_s)
  )
  predicted = float(theory.speedup(overlap, gamma, c, v))
  return {
    'c': c,
    'v': v,
    'autoregressive_tokens_per_s': plain,
    'speculative_tokens_per_s': measured,
    'speedup': measured / plain,
    'speedup_quartiles': [slow / plain, fast / plain],
    'predicted_speedup': predicted,
    'measured_over_predicted': measured / plain / predicted,
    'outside': 1 - (drafting + verification) / spread.median_s,
    'ms': {name: 1e3 * value.median_s for name, value in calls.items()},
  }


def summarize(config, rows):
  """What summary.json holds.

  Args:
    config: dict of the experiment's fields.
    rows: of metrics.jsonl.

  Returns:
    A dict; `cells` are the rows, in the order of the config.
  """
  ratios = [row['measured_over_predicted'] for row in rows]
  return {
    'device': jax.devices()[0].device_kind,
    'dtype': setup.dtype_of(config['dtype']),
    'versions': metrics.versions(),
    'vocab_size': config['vocab_size'],
    'batch_size': config['batch_size'],
    'num_params': {
      row[name]: row[f'{name}_params']
      for row in rows
      for name in ('target', 'draft')
    },
    'agreeing_cells': sum(row['agrees'] for row in rows),
    'measured_over_predicted': {
      'least': min(ratios),
      'median': float(np.median(ratios)),
      'greatest': max(ratios),
    },
    'compile_s': sum(row['compile_s'] for row in rows),
    'cells': rows,
  }


def line(row):
  """One cell, while the run goes on."""
  return (
    f'{row["target"]} / {row["draft"]}  gamma {row["gamma"]}'
    f'  overlap {row["overlap"]:g}  {row["tokens_per_round"]:.2f} tokens'
    f'  speedup {row["speedup"]:.2f} ({row["predicted_speedup"]:.2f})'
  )


def report(console, summary):
  """Prints a table for each pair of sizes."""
  cells, sizes = summary['cells'], summary['num_params']
  for pair in dict.fromkeys((c['target'], c['draft']) for c in cells):
    target, draft = (f'{x} ({sizes[x] / 1e6:.1f} million)' for x in pair)
    console.print(f'\ntarget {target}, draft {draft}')
    console.print(
      _table([c for c in cells if (c['target'], c['draft']) == pair])
    )
  ratios = summary['measured_over_predicted']
  console.print(
    f'\n{summary["agreeing_cells"]} of {len(cells)} cells within'
    f' {STANDARD_ERRORS} standard errors of the closed form\n'
    f'measured / predicted: median {ratios["median"]:.3f},'
    f' {ratios["least"]:.3f} to {ratios["greatest"]:.3f}'
  )


def _table(cells):
  table = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
  for name in (
    'gamma', 'over-\nlap', 'tokens\na round', 'std.\nerr.', 'closed\nform',
    'in 3\ns.e.', 'c', 'v', 'speed-\nup', 'pre-\ndicted', 'ratio',
    'out-\nside',
  ):  # fmt: skip
    table.add_column(name, justify='right')
  for cell in cells:
    table.add_row(
      str(cell['gamma']),
      f'{cell["overlap"]:g}',
      f'{cell["tokens_per_round"]:.3f}',
      f'{cell["standard_error"]:.3f}',
      f'{cell["closed_form"]:.3f}',
      'yes' if cell['agrees'] else 'no',
      f'{cell["c"]:.2f}',
      f'{cell["v"]:.2f}',
      f'{cell["speedup"]:.2f}',
      f'{cell["predicted_speedup"]:.2f}',
      f'{cell["measured_over_predicted"]:.2f}',
      f'{cell["outside"]:.0%}',
    )
  return table
