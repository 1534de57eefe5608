"""Lays finished runs side by side; nothing but flags.

  python scripts/compare.py W1 W2 ... [--figures=speedup,accept_rate]

Each W is the workdir of a run. What their summaries share is printed with its
differences to the first, and written to --out with a figure. Bad input ends
with one line that says what to do, and exit code 2.
"""

import sys

from absl import app, flags

from specdec.base import UsageError
from specdec.experiments import compare

OUT = flags.DEFINE_string('out', 'runs/compare', 'Where results go.')
FIGURES = flags.DEFINE_list(
  'figures', [], 'Names of figures to print; without any, those of note.'
)


def parse(argv):
  """Parses the flags; what they get wrong is one line."""
  try:
    return flags.FLAGS(argv)
  except flags.Error as error:
    fail(error)


def main(argv):
  """Compares the runs that the arguments name."""
  try:
    compare.run(argv[1:], OUT.value, FIGURES.value)
  except UsageError as error:
    fail(error)


def fail(message):
  """One line on stderr; exit code 2."""
  print('error:', ' '.join(str(message).split()), file=sys.stderr)
  sys.exit(2)


if __name__ == '__main__':
  app.run(main, flags_parser=parse)
