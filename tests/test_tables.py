"""Tables are printed whole, and what is not there is a dash."""

import io

from rich import console

from specdec.experiments import intervals, tables


def test_a_table_wider_than_the_console_is_printed_whole():
  narrow = console.Console(width=20, file=io.StringIO())
  table = tables.build('draft', 'speed-\nup', '\n95 %')
  table.add_row('a draft of a long name', '1.00', '0.95-1.05')
  tables.show(narrow, table)
  *_, row = narrow.file.getvalue().splitlines()
  assert row.rstrip() == 'a draft of a long name   1.00 0.95-1.05'


def test_what_is_not_there_is_a_dash():
  assert (tables.number(None), tables.number(1 / 3)) == ('-', '0.33')
  assert tables.bounds(intervals.Interval(2.0, None, None)) == '-'
  assert tables.bounds(intervals.Interval(2.0, 1.5, 2.25), 1) == '1.5-2.2'
