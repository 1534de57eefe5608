"""A pair of known overlap and real cost: theory beside the clock.

Tokens come from Markov tables of one overlap alpha at every prefix, time from
transformers of chosen sizes; see models/costly.py. So the closed forms of
Leviathan et al., https://arxiv.org/abs/2211.17192, hold without an estimate:

  E[tokens] = (1 - alpha^(gamma + 1)) / (1 - alpha)
  speedup   = E[tokens] / (gamma c + v)

and what the clock says beside it judges the cost model alone. Rounds, plain
steps and the bare forwards behind c and v are timed in turn. All overlaps of a
pair of sizes and a gamma share one compiled decoder, for tables are params.
"""

import dataclasses
import functools
import itertools
import time

import jax
from rich import console as rich_console
from rich import progress

from specdec import metrics, timing
from specdec.base import UsageError, Weights
from specdec.decode import autoregressive, speculative
from specdec.drafters import model as model_drafter
from specdec.experiments import checks, setup
from specdec.experiments import simulated_pair as pair_lib
from specdec.experiments import simulated_summary as summary_lib
from specdec.experiments.training import SizeConfig
from specdec.plots import simulated as plot
from specdec.verify import token


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/simulated.py."""

  pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
  overlaps: tuple[float, ...]
  gammas: tuple[int, ...]
  vocab_size: int
  states: int
  batch_size: int
  prompt_tokens: int
  rounds: int
  repeats: int
  seed: int
  dtype: str

  def __post_init__(self):
    checks.at_least('vocab_size', self.vocab_size, 2)
    checks.require(
      'states',
      self.states,
      1 <= self.states <= self.vocab_size,
      f'in 1..{self.vocab_size}, the vocab_size',
    )
    for field in ('batch_size', 'prompt_tokens', 'rounds', 'repeats'):
      checks.at_least(field, getattr(self, field), 1)
    for gamma in self.gammas:
      checks.at_least('gammas', gamma, 1)
    for overlap in self.overlaps:
      checks.require(
        'overlaps',
        overlap,
        1 / self.vocab_size <= overlap <= 1,
        'in [1 / vocab_size, 1]',
      )
    checks.one_of('dtype', self.dtype, setup.DTYPES)
    checks.distinct('pairs', [tuple(map(name_of, x)) for x in self.sizes])
    for field in ('overlaps', 'gammas'):
      checks.distinct(field, getattr(self, field))

  @property
  def sizes(self):
    """The pairs as (SizeConfig of the target, SizeConfig of the draft)."""
    for pair in self.pairs:
      if len(pair) != 2 or any(len(size) != 4 for size in pair):
        raise UsageError(
          f'pairs = {self.pairs}: give ((target, draft), ...), each (layers,'
          ' width, hidden, heads)'
        )
    return [tuple(SizeConfig(*size) for size in pair) for pair in self.pairs]

  @property
  def max_length(self):
    """Tokens of a row at the end of the longest run."""
    return self.prompt_tokens + self.rounds * (max(self.gammas) + 1) + 1


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/simulated.py.

  Args:
    config: of configs/simulated.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config))
  console = rich_console.Console(highlight=False)
  done = {cell_of(row) for row in rows}
  groups = list(itertools.product(config.sizes, config.gammas))
  with progress.Progress(
    console=console, transient=True, disable=not console.is_terminal
  ) as bar:
    built = None
    for sizes, gamma in bar.track(groups, description='sizes x gamma'):
      names = tuple(map(name_of, sizes))
      wanted = [x for x in config.overlaps if (*names, gamma, x) not in done]
      if not wanted:
        continue
      if built != sizes:
        built, pair = sizes, pair_lib.build(config, sizes)
        plain = plain_of(config, pair)
      for row in measure(config, pair, plain, gamma, wanted):
        row = {'target': names[0], 'draft': names[1], **row}
        metrics.append(workdir, row)
        rows.append(row)
        bar.console.print(summary_lib.line(row))
  summary = summary_lib.summarize(dataclasses.asdict(config), rows)
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  summary_lib.report(console, summary)
  console.print(f'\n{workdir / "summary.json"}', soft_wrap=True)
  return summary


def cell_of(row):
  """What tells one row of metrics.jsonl from another."""
  return row['target'], row['draft'], row['gamma'], row['overlap']


def name_of(size):
  """A size in a word, such as 6x512: layers by width."""
  return f'{size.layers}x{size.width}'


def measure(config, pair, plain, gamma, overlaps):
  """Times rounds of one gamma at some overlaps, and all that predicts them.

  Args:
    config: Config.
    pair: simulated_pair.Pair.
    plain: {name: function} of what gamma does not change, see `plain_of`.
    gamma: drafts of a round.
    overlaps: which to measure.

  Returns:
    A row of metrics.jsonl for each overlap, without the names of the sizes.
    They are timed in turn, so that a slow minute hits all alike.
  """
  weights = {x: pair_lib.weights(config, pair, x) for x in overlaps}
  some = weights[overlaps[0]]
  drafter = model_drafter.build(pair.draft, gamma)
  decoder = speculative.build(pair.target, drafter, token.RULE)
  begin = time.perf_counter()
  loop = pair_lib.rounds(config, decoder, some, gamma)
  jax.block_until_ready(loop(some, 0))
  compile_s = time.perf_counter() - begin

  counted = {x: [] for x in overlaps}

  def rounds(overlap):
    counters = counted[overlap]
    counters.append(loop(weights[overlap], len(counters)))
    return counters[-1]

  functions = {
    **plain,
    'verification': pair_lib.forwards(
      config, pair.target, some.target, gamma + 1
    ),
    **{x: functools.partial(rounds, x) for x in overlaps},
  }
  times = timing.interleaved(functions, config.repeats)
  calls = {
    name: timing.Times(*(value / config.rounds for value in spread))
    for name, spread in times.items()
  }
  spreads = {x: calls.pop(x) for x in overlaps}
  rows = []
  for x in overlaps:
    counts = summary_lib.counts(x, gamma, counted[x])
    speeds = summary_lib.speeds(
      x,
      gamma,
      config.batch_size,
      counts['tokens_per_round'],
      {**calls, 'round': spreads[x]},
    )
    rows.append(
      {
        'gamma': gamma,
        'overlap': x,
        **counts,
        **speeds,
        'target_params': pair.num_params.target,
        'draft_params': pair.num_params.draft,
        'compile_s': compile_s,
      }
    )
  return rows


def plain_of(config, pair):
  """What is timed whatever gamma: plain steps, and forwards of few tokens."""
  some = pair_lib.weights(config, pair, config.overlaps[0])
  alone = Weights(some.target, None)
  plain = autoregressive.build(pair.target)
  steps = pair_lib.rounds(config, plain, alone, gamma=0)
  return {
    'step': lambda: steps(alone, 0),
    **{
      f'{name} {feed}': pair_lib.forwards(
        config, getattr(pair, name), getattr(some, name), feed
      )
      for name, feed in (('target', 1), ('draft', 1), ('draft', 2))
    },
  }
