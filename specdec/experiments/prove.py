"""Is a rule lossless? By enumeration, by its draws, and through the loop.

Exact: for every rule and many pairs (p, q), the law of a round's output,
summed over all paths of drafts, beside the target's. Sampled: whole rounds of
`verify` beside `law`. Loop: texts of several rounds on a Markov pair beside
the chain's law. Controls that are wrong on purpose must fail.
"""

import dataclasses
import functools
from collections.abc import Callable
from concurrent import futures
from typing import NamedTuple

from rich import console as rich_console
from rich import progress
from rich import table as rich_table

from specdec import metrics
from specdec.drafters.policies import (
  confidence,
  cost_aware,
  entropy,
  fixed,
  heuristic,
)
from specdec.experiments import checks, proofs, tables
from specdec.verify import RULES, controls, lossy_rules
from specdec.verify.multi import MULTI_RULES

# What a control must exceed, or fall under, to count as found out.
CAUGHT_DEVIATION, CAUGHT_P_VALUE = 1e-3, 1e-6
CONTROLS = {
  'correct from p': controls.CORRECT_FROM_P,
  'accept the argmax': controls.ACCEPT_ARGMAX,
  'drop the unlikely token': controls.drop_unlikely(0.25),
}
# Their law is right, their draws are not.
SAMPLED_CONTROLS = {'draft noise again': controls.REUSE_NOISE}
REFUTED = 1  # exit code when a check is not as expected
# Policies that learn from round to round.
LEARNING_GAMMA = proofs.LOOP_GAMMA
LEARNING = {
  'heuristic': heuristic.build(LEARNING_GAMMA),
  # Costs under which a few rounds make it draft more, or not at all.
  'cost_aware': cost_aware.build(
    LEARNING_GAMMA, cost_aware.Costs((4.0, 5.0, 6.0, 7.0), 1.0, 0.0, 0.0)
  ),
}
LOOP_CONTROLS = {
  'correct from p': controls.CORRECT_FROM_P,
  'block, noise by position': controls.BLOCK_BY_POSITION,
}


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/prove.py."""

  seed: int
  vocabs: tuple[int, ...]
  gammas: tuple[int, ...]
  repeats: int
  tolerance: float
  rounds: int
  texts: int
  text_tokens: int
  p_value: float
  lossy: dict
  stopping: dict

  def __post_init__(self):
    for vocab in self.vocabs:
      checks.require('vocabs', vocab, 2 <= vocab <= 5, 'in 2..5')
    for gamma in self.gammas:
      checks.require('gammas', gamma, 0 <= gamma <= 4, 'in 0..4')
    checks.require('vocabs', self.vocabs, len(self.vocabs) > 0, 'not empty')
    checks.require(
      'gammas', self.gammas, any(self.gammas), 'one at least above 0'
    )
    checks.at_least('repeats', self.repeats, 1)
    checks.at_least('seed', self.seed, 0)
    checks.at_least('rounds', self.rounds, 0)
    rows = proofs.LOOP_ROWS
    checks.require(
      'texts',
      self.texts,
      self.texts >= 0 and self.texts % rows == 0,
      f'a multiple of {rows}, or 0 to leave that part out',
    )
    checks.require(
      'text_tokens', self.text_tokens, 1 <= self.text_tokens <= 8, 'in 1..8'
    )
    checks.require('p_value', self.p_value, 0 < self.p_value < 1, 'in (0, 1)')

  def policies(self):
    """Early stops of a draft, by name."""
    gamma = max(self.gammas)
    threshold, scale, bound = (
      self.stopping[name] for name in ('threshold', 'scale', 'bound')
    )
    return {
      'fixed': fixed.build(gamma),
      'confidence': confidence.build(gamma, threshold),
      'entropy': entropy.build(gamma, scale, bound),
    }


class Check(NamedTuple):
  """One line of the proof."""

  part: str  # exact, order, sampled or loop
  kind: str  # lossless, lossy or control
  name: str
  measure: Callable[[], dict]


def run(config, workdir):
  """Runs the experiment; see configs/prove.py.

  Args:
    config: of configs/prove.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range.
    SystemExit: a check is not as expected.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  lines = list(all_checks(config))
  workdir = metrics.start(workdir, dataclasses.asdict(config))
  console = rich_console.Console(highlight=False, markup=False)
  rows = []
  with (
    # Compiling takes most of the time, and two fit side by side.
    futures.ThreadPoolExecutor(2) as pool,
    progress.Progress(
      console=console, transient=True, disable=not console.is_terminal
    ) as bar,
  ):
    measured = pool.map(lambda line: line.measure(), lines)
    task = bar.add_task('proving', total=len(lines))
    for line, figures in zip(lines, measured, strict=True):
      row = {'part': line.part, 'kind': line.kind, 'name': line.name, **figures}
      row['as_expected'] = as_expected(row, config)
      metrics.append(workdir, row)
      rows.append(row)
      bar.advance(task)
  summary = summarize(rows)
  metrics.summarize(workdir, summary)
  report(console, rows, summary)
  if summary['as_expected'] < summary['checks']:
    raise SystemExit(REFUTED)
  return summary


def all_checks(config):
  """Every line of the proof, in the order of the tables."""
  lossy = lossy_rules(**config.lossy)
  policies = config.policies()
  groups = list(proofs.draw_groups(config))

  def each(part, kind, rules, measure):
    for name, rule in rules.items():
      yield Check(part, kind, name, functools.partial(measure, rule))

  for policy_name, policy in policies.items():
    names = {f'{name}, {policy_name}': rule for name, rule in RULES.items()}
    yield from each(
      'exact',
      'lossless',
      names,
      functools.partial(proofs.enumerate_rule, policy=policy, groups=groups),
    )
  for policy_name, policy in LEARNING.items():
    names = {
      f'{name}, {policy_name}, all rounds': rule for name, rule in RULES.items()
    }
    yield from each(
      'exact',
      'lossless',
      names,
      functools.partial(proofs.enumerate_texts, policy=policy, config=config),
    )
  # What need not be exact is shown on one set of pairs of the largest V.
  few = list(
    proofs.draw_groups(
      dataclasses.replace(config, repeats=1, vocabs=config.vocabs[-1:])
    )
  )
  full = functools.partial(
    proofs.enumerate_rule, policy=policies['fixed'], groups=few
  )
  yield from each('exact', 'lossy', lossy, full)
  yield from each('exact', 'control', CONTROLS, full)
  if 1 in config.gammas:
    yield from each(
      'exact',
      'lossless',
      {f'{name}, k 1-3': build for name, build in MULTI_RULES.items()},
      functools.partial(proofs.enumerate_candidates, groups=groups),
    )
  order = functools.partial(proofs.compare_means, groups=groups)
  yield Check('order', 'lossless', 'token <= block <= bound', order)
  if config.rounds:
    sample = functools.partial(proofs.sample_rule, config=config)
    yield from each('sampled', 'lossless', RULES, sample)
    yield from each('sampled', 'lossy', lossy, sample)
    yield from each('sampled', 'control', SAMPLED_CONTROLS, sample)
  if config.texts:
    loop = functools.partial(proofs.loop_rule, config=config)
    yield from each('loop', 'lossless', RULES, loop)
    for name, policy in LEARNING.items():
      learning = functools.partial(loop, policy=policy)
      yield from each(
        'loop', 'lossless', {f'token, {name}': RULES['token']}, learning
      )
    yield from each('loop', 'control', LOOP_CONTROLS, loop)


def as_expected(row, config):
  """Did a rule do what its kind says? A lossy one may bend the law."""
  if row['part'] == 'exact':
    return {
      'lossless': row['deviation'] < config.tolerance,
      'lossy': True,
      'control': row['deviation'] > CAUGHT_DEVIATION,
    }[row['kind']]
  if row['part'] == 'order':
    return row['deviation'] < config.tolerance
  if row['kind'] == 'control':
    return row['p_value'] < CAUGHT_P_VALUE
  return row['p_value'] > config.p_value


def summarize(rows):
  """What summary.json holds."""
  exact_rows = [row for row in rows if row['part'] == 'exact']
  return {
    'cases': sum(
      row['cases'] for row in exact_rows if row['kind'] == 'lossless'
    ),
    'lossless_deviation': max(
      row['deviation'] for row in exact_rows if row['kind'] == 'lossless'
    ),
    'checks': len(rows),
    'as_expected': sum(row['as_expected'] for row in rows),
    'rows': rows,
  }


def report(console, rows, summary):
  """Prints the proof as two tables and a line."""
  exact_table = rich_table.Table(box=None, pad_edge=False)
  for number, name in enumerate(
    ('exact law', 'cases', 'deviation', 'mean TV', 'E[tau]', 'verdict')
  ):
    exact_table.add_column(name, justify='right' if number else 'left')
  drawn = rich_table.Table(box=None, pad_edge=False)
  for number, name in enumerate(('draws', 'of', 'kind', 'p-value', 'verdict')):
    drawn.add_column(name, justify='left' if number < 3 else 'right')
  for row in rows:
    if 'p_value' in row:
      part = {'sampled': 'one round', 'loop': 'texts'}[row['part']]
      value = f'{row["p_value"]:.3g}'
      drawn.add_row(row['name'], part, row['kind'], value, verdict(row))
    else:
      exact_table.add_row(
        row['name'],
        str(row['cases']),
        f'{max(row["deviation"], 0):.1e}',
        tables.number(row.get('mean_total_variation'), 4),
        tables.number(row.get('mean_accepted'), 4),
        verdict(row),
      )
  tables.show(console, exact_table)
  console.print()
  tables.show(console, drawn)
  console.print(
    f'\n{summary["as_expected"]} of {summary["checks"]} checks as expected;'
    f' lossless rules deviate by at most {summary["lossless_deviation"]:.1e}'
    f' in {summary["cases"]:,} cases',
    soft_wrap=True,
  )


def verdict(row):
  """What a line of the proof comes to."""
  if row['kind'] == 'control':
    return 'found out' if row['as_expected'] else 'NOT FOUND OUT'
  if not row['as_expected']:
    return 'REFUTED'
  if row['part'] == 'exact':
    return 'lossy' if row['kind'] == 'lossy' else 'lossless'
  return 'holds'
