"""Published figures beside ours, source by source, each with a verdict.

A figure is reproduced when ours rounds to it. Where the inputs were themselves
printed rounded, ours is an interval: the values of the formula over all inputs
that round to the printed ones. The figure is within rounding when that interval
meets the interval of values that round to it; else it does not follow.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specdec import metrics, rejection, theory
from specdec.experiments import article, checks

REPRODUCED = 'reproduced'
WITHIN_ROUNDING = 'within rounding'
DOES_NOT_FOLLOW = 'does not follow'
COLOURS = {
  REPRODUCED: 'green',
  WITHIN_ROUNDING: 'yellow',
  DOES_NOT_FOLLOW: 'bold red',
}

LEVIATHAN = 'Leviathan et al. 2023'
TABLE_1 = (  # alpha, gamma, operations, speed; c = c_hat = 0, alpha exact
  (0.6, 2, '1.53', '1.96'),
  (0.7, 3, '1.58', '2.53'),
  (0.8, 2, '1.23', '2.44'),
  (0.8, 5, '1.63', '3.69'),
  (0.9, 2, '1.11', '2.71'),
  (0.9, 10, '1.60', '6.86'),
)
TABLE_4 = (  # gamma, alpha, c, speed: the column "Exp"
  (7, '0.75', '0.02', '3.2'),
  (7, '0.80', '0.04', '3.3'),
  (7, '0.82', '0.11', '2.5'),
  (7, '0.62', '0.02', '2.3'),
  (5, '0.68', '0.04', '2.4'),
  (3, '0.71', '0.11', '2.0'),
  (5, '0.65', '0.02', '2.4'),
  (5, '0.73', '0.04', '2.6'),
  (3, '0.74', '0.11', '2.0'),
  (5, '0.53', '0.02', '1.9'),
  (3, '0.55', '0.04', '1.8'),
  (3, '0.56', '0.11', '1.6'),
)
LENIENCE = (  # alpha, speed, under growing argmax lenience
  ('0.75', '3.3'),
  ('0.75', '3.3'),
  ('0.80', '3.9'),
  ('0.87', '4.9'),
)
UNPACKING_P = (0.50, 0.20, 0.15, 0.10, 0.05)
UNPACKING_Q = (0.38, 0.25, 0.20, 0.10, 0.07)
UNPACKING_BETAS = (0.88, 0.96, 0.65)


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/published.py."""

  experiment: str
  panels: int
  grid_points: int

  def __post_init__(self):
    checks.at_least('panels', self.panels, 1)
    checks.at_least('grid_points', self.grid_points, 2)


class Line(NamedTuple):
  """One published figure."""

  source: str
  setting: str  # what it is, and at which inputs
  printed: str  # as in the source: its digits tell how it was rounded
  formula: Callable[..., jax.Array]  # monotone in each argument
  inputs: tuple[float | str, ...] = ()  # a number is exact, a string is printed


def run(config, workdir):
  """Checks every line and prints the table.

  Args:
    config: of configs/published.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range.
  """
  config = Config(**config)
  workdir = metrics.start(workdir, dataclasses.asdict(config))
  with jax.enable_x64(True):
    rows = [check(line) for line in lines(config)]
  for row in rows:
    metrics.append(workdir, row)
  counts = collections.Counter(row['verdict'] for row in rows)
  summary = {
    'lines': len(rows),
    **{verdict: counts[verdict] for verdict in COLOURS},
    'not_reproduced': [row for row in rows if row['verdict'] != REPRODUCED],
  }
  metrics.summarize(workdir, summary)
  _print_table(rows, summary)
  return summary


def check(line: Line):
  """Our value, its interval over the rounding of the inputs, and a verdict."""
  ours = float(line.formula(*(_interval(x)[1] for x in line.inputs)))
  # A monotone formula is extreme at corners.
  corners = itertools.product(*(_interval(x)[::2] for x in line.inputs))
  values = [float(line.formula(*corner)) for corner in corners]
  low, high = min(values), max(values)
  printed_low, printed, printed_high = _interval(line.printed)
  if printed_low <= ours <= printed_high:
    verdict = REPRODUCED
  elif low <= printed_high and high >= printed_low:
    verdict = WITHIN_ROUNDING
  else:
    verdict = DOES_NOT_FOLLOW
  return {
    'source': line.source,
    'setting': line.setting,
    'printed': line.printed,
    'ours': ours,
    'low': low,
    'high': high,
    'deviation': ours - printed,
    'verdict': verdict,
  }


def lines(config):
  """Every published figure, in the order of the table."""
  return [
    *_table_1_lines(),
    *_table_4_lines(),
    *_lenience_lines(),
    *_unpacking_lines(),
    *_article_lines(config),
  ]


def _table_1_lines():
  source = f'{LEVIATHAN}, table 1'
  for alpha, gamma, operations, speed in TABLE_1:
    at = f'alpha {alpha}, gamma {gamma}'
    yield Line(
      source,
      f'operations, {at}',
      operations,
      lambda alpha, gamma=gamma: theory.operations_factor(alpha, gamma),
      (alpha,),
    )
    yield Line(source, f'speed, {at}', speed, _speedup(gamma), (alpha, 0.0))


def _table_4_lines():
  for gamma, alpha, c, speed in TABLE_4:
    yield Line(
      f'{LEVIATHAN}, table 4',
      f'alpha {alpha}, gamma {gamma}, c {c}',
      speed,
      _speedup(gamma),
      (alpha, c),
    )


def _lenience_lines():
  for alpha, speed in LENIENCE:
    yield Line(
      f'{LEVIATHAN}, A.5',
      f'alpha {alpha}, gamma 8, c 0.015',
      speed,
      _speedup(8),
      (alpha, '0.015'),
    )
  yield Line(
    f'{LEVIATHAN}, bigram',
    'alpha 0.2, gamma 3, c 0',
    '1.25',
    _speedup(3),
    ('0.2', 0.0),
  )


def _unpacking_lines():
  source = 'Unpacking Speculative Decoding'
  p, q = np.asarray(UNPACKING_P), np.asarray(UNPACKING_Q)
  forward = np.asarray(UNPACKING_BETAS)
  for setting, printed, formula in (
    ('overlap of p and q', '0.88', lambda: theory.overlap(p, q)),
    (
      'E[accepted], betas .88 .96 .65',
      '2.274',
      lambda: theory.expected_accepted(forward),
    ),
    (
      'E[tokens], betas .88 .96 .65',
      '3.27',
      lambda: 1 + theory.expected_accepted(forward),
    ),
    (
      'E[accepted], betas .65 .96 .88',
      '1.82',
      lambda: theory.expected_accepted(forward[::-1]),
    ),
  ):
    yield Line(source, setting, printed, formula)


def _article_lines(config):
  def normaliser():
    return rejection.integrate(article.TARGET, config.panels)[1][-1]

  def peak():
    target = article.TARGET
    x = jnp.linspace(target.low, target.high, config.grid_points)
    return jnp.max(rejection.evaluate(target, x))

  for setting, printed, formula in (
    ('Z', '5.73807', normaliser),
    ('acceptance, %, uniform, C 25', '22.95', lambda: 100 * normaliser() / 25),
    ('acceptance, %, normal, C 11', '52.16', lambda: 100 * normaliser() / 11),
    ('peak of f', '3.696', peak),
    (
      'best gamma, alpha 0.7, c 0.1',
      '4',
      lambda: theory.best_gamma(0.7, 0.1),
    ),
    (
      'speed, alpha 0.7, c 0.1, gamma 4',
      '1.98',
      lambda: theory.speedup(0.7, 4, 0.1),
    ),
  ):
    yield Line('The article', setting, printed, formula)


def _speedup(gamma):
  return lambda alpha, c: theory.speedup(alpha, gamma, c)


def _interval(number):
  """(low, value, high): what rounds to a printed number; a float is exact."""
  value = float(number)
  if not isinstance(number, str):
    return value, value, value
  half_unit = 0.5 * 10.0 ** -len(number.partition('.')[2])
  return value - half_unit, value, value + half_unit


def _print_table(rows, summary):
  table = Table(
    box=box.SIMPLE_HEAD,
    collapse_padding=True,
    pad_edge=False,
    show_edge=False,
  )
  table.add_column('figure')
  for heading in ('printed', 'ours', 'deviation'):
    table.add_column(heading, justify='right')
  table.add_column('verdict')
  for source, group in itertools.groupby(rows, lambda row: row['source']):
    table.add_row(f'[bold]{source}[/]')
    for row in group:
      verdict = row['verdict']
      table.add_row(
        f' {escape(row["setting"])}',
        row['printed'],
        f'{row["ours"]:.5g}',
        f'{row["deviation"]:+.4f}',
        f'[{COLOURS[verdict]}]{verdict}[/]',
      )
    table.add_section()
  console = Console()
  console.print(table)
  counts = ', '.join(f'{summary[verdict]} {verdict}' for verdict in COLOURS)
  console.print(f'{summary["lines"]} figures: {counts}', highlight=False)
