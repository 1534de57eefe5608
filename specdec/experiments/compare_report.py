"""What a comparison of runs shows in the terminal."""

from rich import table as rich_table

from specdec.experiments import compared_runs as runs_lib

# What is printed unless figures are named.
OF_NOTE = (
  'overlap',
  'block_efficiency',
  'law_block_efficiency',
  'tokens_per_round',
  'accept_rate',
  'speedup',
  'speculative_tokens_per_s',
  'measured_over_predicted',
)


def show(console, summary, shown):
  """Prints what differs, then each run beside the first.

  Args:
    console: rich.console.Console.
    summary: of compare.summarize.
    shown: names of figures.
  """
  names = summary['runs']
  if summary['config']:
    table = _table('differs', *names)
    for field in summary['config']:
      table.add_row(
        field['field'],
        *('-' if value is None else str(value) for value in field['values']),
      )
    console.print(table)
  lines = [line for line in summary['lines'] if line['figure'] in shown]
  for number, name in enumerate(names[1:], 1):
    console.print(f'\n{name} beside {names[0]}')
    groups = {}
    for line in lines:
      group = line['figure'] if line['cell'] else 'whole run'
      groups.setdefault(group, []).append(line)
    for group, members in groups.items():
      console.print(_group(group, members, number))
  if summary['unpaired']:
    console.print(f'\nno paired intervals: {summary["unpaired"]}')
  for name, number in zip(names, summary['unmatched'], strict=True):
    if number:
      console.print(f'{number} cells of {name} have no counterpart')
  hidden = len(summary['lines']) - len(lines)
  if hidden:
    console.print(f'{hidden} more shared figures are in summary.json')


def _group(name, lines, number):
  """One figure of all cells, or the figures of whole runs."""
  table = _table(name, 'first', 'other', 'change', '%', 'paired 95 %')
  for line in lines:
    first, other = (runs_lib.value(line['values'][i]) for i in (0, number))
    pair = line['paired'][number - 1]
    table.add_row(
      ' '.join(_word(*x) for x in line['cell'].items()) or line['figure'],
      f'{first:.4g}',
      f'{other:.4g}',
      f'{other - first:+.3g}',
      f'{100 * (other / first - 1):+.1f}' if first else '-',
      f'{pair[1]:+.3g} {pair[2]:+.3g}' if pair else '-',
    )
  return table


def _word(name, value):
  """A cell's key, as short as it can be."""
  return value if isinstance(value, str) else f'{name} {value:g}'


def _table(*names):
  table = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
  for number, name in enumerate(names):
    table.add_column(name, justify='right' if number else 'left')
  return table
