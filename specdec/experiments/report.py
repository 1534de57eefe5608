"""What the generate experiment shows in the terminal.

Accepted drafts are green; where there is no colour they stand in ‹ ›. All
other tokens are the target's own: corrections and bonus tokens.
"""

from rich import text as rich_text

from specdec.decode import stats
from specdec.experiments import tables

OPEN, CLOSE = '‹', '›'


def show_text(console, row):
  """Prints one output, with accepted drafts told apart.

  Args:
    console: rich.console.Console.
    row: a row of metrics.jsonl.
  """
  head = (
    f'[{row["row"]}] {row["kind"]} · {row["tokens"]} tokens in'
    f' {row["rounds"]} rounds · {row["accepted"]} of {row["drafted"]} drafts'
    f' accepted · ended by {row["finish_reason"]}'
  )
  console.print()
  console.print(rich_text.Text(head, style='bold'))
  console.print(rich_text.Text(_first_line(row['prompt']), style='dim'))
  console.print(
    coloured(row) if console.color_system else rich_text.Text(marked(row))
  )


def coloured(row):
  """The output, accepted drafts in green."""
  text = rich_text.Text()
  for piece, drafted in zip(row['pieces'], row['from_draft'], strict=True):
    text.append(piece, style='green' if drafted else None)
  return text


def marked(row):
  """The output as plain text, accepted drafts in ‹ ›."""
  parts, inside = [], False
  for piece, drafted in zip(row['pieces'], row['from_draft'], strict=True):
    if drafted != inside:
      parts.append(OPEN if drafted else CLOSE)
    parts.append(piece)
    inside = drafted
  return ''.join(parts) + (CLOSE if inside else '')


def kind_figures(rows):
  """Figures of a group of rows, as a dict; times only at batch size 1."""
  sums = {
    name: sum(row[name] for row in rows)
    for name in ('tokens', 'rounds', 'drafted', 'accepted')
  }
  figures = {
    'rows': len(rows),
    **sums,
    'block_efficiency': stats.rate(sums['tokens'], sums['rounds']),
    'accept_rate': stats.rate(sums['accepted'], sums['drafted']),
    'autoregressive_tokens_per_s': _speed(
      rows, 'autoregressive_tokens', 'autoregressive_s'
    ),
    'speculative_tokens_per_s': _speed(rows, 'tokens', 'speculative_s'),
    'speedup': None,
    'differ': sum(r['differs'] for r in rows) if 'differs' in rows[0] else None,
  }
  if figures['autoregressive_tokens_per_s']:
    figures['speedup'] = stats.rate(
      figures['speculative_tokens_per_s'],
      figures['autoregressive_tokens_per_s'],
    )
  return figures


def show_tables(console, rows, summary):
  """Prints the figures of each kind of prompt and of all."""
  table = tables.build(
    'prompts', 'rows', 'tokens', 'rounds', 'block\neff.', 'accept\nrate',
    'tokens/s\nplain', 'tokens/s\nspec.', 'speedup', 'differ',
  )  # fmt: skip
  total = {**summary, 'differ': summary['mismatches']}
  for kind, figures in (*summary['kinds'].items(), ('all', total)):
    table.add_row(
      kind,
      *(str(figures[name]) for name in ('rows', 'tokens', 'rounds')),
      tables.number(figures['block_efficiency'], 2),
      tables.number(figures['accept_rate'], 3),
      tables.number(figures['autoregressive_tokens_per_s'], 1),
      tables.number(figures['speculative_tokens_per_s'], 1),
      tables.number(figures['speedup'], 2),
      tables.number(figures['differ'], 0),
      style='bold' if kind == 'all' else None,
    )
  console.print()
  tables.show(console, table)
  by_position = ' '.join(
    tables.number(value, 2) for value in summary['accept_rate_by_position']
  )
  console.print(f'\naccept rate by position: {by_position or "-"}')
  if summary['mismatches']:
    console.print(
      f'{summary["mismatches"]} of {summary["rows"]} rows differ from'
      f' the autoregressive ones, {summary["ties"]} of them at a tie of the'
      ' two most likely tokens'
    )
  if not summary['lossless']:
    console.print(f'the rule {summary["rule"]} is lossy')


def _speed(rows, tokens, seconds):
  if any(seconds not in row for row in rows):
    return None
  return stats.rate(
    sum(row[tokens] for row in rows), sum(row[seconds] for row in rows)
  )


def _first_line(text):
  line = text.strip().splitlines()[0]
  return line if len(line) <= 78 else line[:77] + '…'
