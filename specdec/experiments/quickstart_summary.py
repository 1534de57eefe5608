"""What the quickstart compares, and how it prints what came of it."""

from rich import table as rich_table

# What is compared, from the least overlap to the greatest.
UNIGRAM, BIGRAM, DRAFT, TEXT_ALONE, DISTILLED = (
  'unigram', 'bigram', 'draft', 'draft, text alone', 'draft, distilled',
)  # fmt: skip


def report(console, summary):
  """Prints what came of it."""
  target, draft = (summary['parameters'][name] for name in ('target', DRAFT))
  console.print(
    f'\noverlap with a target of {target:,} weights, temperature 1, on'
    f' {summary["held_out_documents"]} held-out documents (the draft:'
    f' {draft:,} weights)'
  )
  shown = _table('draft', 'overlap', '95 %')
  for name, found in summary['overlap'].items():
    shown.add_row(name, *_figures(found, 3))
  console.print(shown)
  for name, found in summary['gain'].items():
    value, span = _figures([100 * x for x in found], 0)
    console.print(f'distillation gains {value} % ({span}) over: {name}')
  console.print('\ntokens a target call commits, bonus token included')
  shown = _table('draft', 'T', 'gamma', 'block eff.', '95 %', 'accept rate')
  for cell in summary['cells']:
    shown.add_row(
      cell['draft'],
      f'{cell["temperature"]:g}',
      str(cell['gamma']),
      *_figures(cell['block_efficiency'], 2),
      f'{cell["accept_rate"][0]:.3f}',
    )
  console.print(shown)
  console.print(
    f'{summary["greedy_differ"]} of {summary["greedy_rows"]} greedy texts'
    ' differ from the autoregressive ones'
  )


def _table(*names):
  table = rich_table.Table(box=None, pad_edge=False)
  for number, name in enumerate(names):
    table.add_column(name, justify='right' if number else 'left')
  return table


def _figures(interval, digits):
  value, low, high = (f'{x:.{digits}f}' for x in interval)
  return value, f'{low} to {high}'
