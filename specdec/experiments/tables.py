"""Tables that summaries print, and how figures stand in them."""

from rich import table as rich_table


def build(*names):
  """An empty table: the first column to the left, the others to the right."""
  table = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
  for number, name in enumerate(names):
    table.add_column(name, justify='right' if number else 'left')
  return table


def show(console, table):
  """Prints a table whole, also where the console is narrower than it is."""
  wide = console.options.update(max_width=1000)
  table.width = console.measure(table, options=wide).maximum
  console.print(table, crop=False)


def number(value, digits=2):
  """A figure, or a dash where there is none."""
  return '-' if value is None else f'{value:.{digits}f}'


def bounds(interval, digits=2):
  """Both ends of an intervals.Interval, or a dash where it has none."""
  if interval.low is None:
    return '-'
  return f'{interval.low:.{digits}f}-{interval.high:.{digits}f}'
