"""The ablation of verification rules: rule x temperature x gamma.

Each cell decodes the same prompts. What is compared is block efficiency, as a
mean over prompts with an interval, and as paired difference to the token rule.
Beside the raw mean stands the Rao-Blackwell one, in which each round counts
what the rule's law expects of its drafts instead of what the coins gave. What
is counted are rounds of gamma drafts alone: no budget cuts one short.
"""

import dataclasses
import functools
import itertools

import jax
import numpy as np
from rich import console as rich_console
from rich import progress

from specdec import metrics, rng, sampling
from specdec.base import UsageError
from specdec.data import prompts as prompts_lib
from specdec.decode import autoregressive, speculative, stats
from specdec.drafters import model
from specdec.experiments import checks, intervals, setup, tables, timed
from specdec.plots import rules as plot

BASELINE = 'token'


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/rules.py."""

  target: str
  draft: str
  draft_layers: tuple[int, ...]
  rules: tuple[str, ...]
  temperatures: tuple[float, ...]
  gammas: tuple[int, ...]
  lossy: dict
  prompts: str
  max_prompts: int
  rounds: int
  max_new_tokens: int
  batch_size: int
  seed: int
  dtype: str

  def __post_init__(self):
    checks.at_least('max_prompts', self.max_prompts, 0)
    checks.at_least('rounds', self.rounds, 1)
    checks.at_least('max_new_tokens', self.max_new_tokens, 2)
    checks.at_least('seed', self.seed, 0)
    for field in ('rules', 'gammas', 'temperatures'):
      checks.distinct(field, getattr(self, field))
    for gamma in self.gammas:
      checks.at_least('gammas', gamma, 1)
    for rule in self.rules:
      checks.one_of('rules', rule, self.decode.rules)
    if BASELINE not in self.rules:
      raise UsageError(f'rules = {self.rules}: add {BASELINE!r}, the baseline')
    for temperature in self.temperatures:
      sampling.params(1, temperature)

  def budget(self, gamma):
    """Tokens of a row that leave gamma drafts to every counted round."""
    return self.rounds * (gamma + 1) + 1

  @property
  def decode(self):
    """The models, as every cell uses them."""
    return setup.DecodeConfig(
      self.target,
      'model',
      self.draft,
      self.draft_layers,
      lossy=self.lossy,
      dtype=self.dtype,
      batch_size=self.batch_size,
    )


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/rules.py.

  Args:
    config: of configs/rules.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or a model cannot be used.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  prompts = prompts_lib.load(config.prompts, config.max_prompts or None)
  console = rich_console.Console(highlight=False)
  with console.status(f'reading {config.target}'):
    decoding = setup.load_decoding(config.decode)
  ids = [prompts_lib.encode(decoding.tokenizer, p) for p in prompts]
  most = max(config.max_new_tokens, config.budget(max(config.gammas)))
  setup.check_lengths(ids, most, decoding.target.max_length)
  # The file behind a name may change between two runs.
  digest = {'prompts_digest': prompts_lib.digest(ids)}
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config) | digest)
  batches = timed.batches(ids, config.batch_size, config.max_new_tokens)
  done = {cell_of(row) for row in rows}
  with progress.Progress(
    console=console, transient=True, disable=not console.is_terminal
  ) as bar:
    pairs = list(itertools.product(config.rules, config.gammas))
    for rule, gamma in bar.track(pairs, description='rule x gamma'):
      wanted = [t for t in config.temperatures if (rule, gamma, t) not in done]
      for row in measure(config, decoding, batches, rule, gamma, wanted):
        metrics.append(workdir, row)
        rows.append(row)
        bar.console.print(line(row))
  summary = summarize(config, rows)
  summary |= {'num_params': decoding.num_params._asdict()}
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  report(console, summary)
  console.print(f'\n{workdir / "summary.json"}', soft_wrap=True)
  return summary


def cell_of(row):
  """What tells one row of metrics.jsonl from another."""
  return row['rule'], row['gamma'], row['temperature']


def measure(config, decoding, batches, name, gamma, temperatures):
  """Decodes all prompts under one rule and gamma.

  Args:
    config: Config.
    decoding: setup.Decoding.
    batches: of timed.batches.
    name: of the rule.
    gamma: drafts of a round.
    temperatures: which to decode at; they share what is compiled.

  Yields:
    A row of metrics.jsonl for each temperature.
  """
  if not temperatures:
    return
  rule = config.decode.rules[name]
  drafter = model.build(decoding.draft, gamma, None, rule.shares_noise)
  counted = speculative.build(decoding.target, drafter, rule, use_law=True)
  clocked = {
    'speculative': speculative.build(decoding.target, drafter, rule),
    'autoregressive': baseline(decoding.target, rule.shares_noise),
  }
  longest = max(len(ids) for b in batches for ids in b.ids)

  for temperature in temperatures:
    params = sampling.params(config.batch_size, temperature)
    counters = [
      count(config, decoding, counted, gamma, batch, params, longest)
      for batch in batches
    ]
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *counters)
    speeds, compile_s = {}, 0.0
    for kind, decoder in clocked.items():
      clock = timed.loop(
        decoder,
        decoding.weights,
        params,
        config.seed,
        decoding.stop_tokens,
        longest + config.max_new_tokens,
      )
      compile_s += timed.compile_s(clock, batches[0])
      result = clock(batches[0])
      tokens = result.counters.committed.sum()
      speeds[f'{kind}_tokens_per_s'] = stats.rate(tokens, result.decode_s)
    yield {
      'rule': name,
      'lossless': rule.lossless,
      'gamma': gamma,
      'temperature': temperature,
      **stats.totals(whole),
      **speeds,
      'compile_s': compile_s,
      'by_prompt': {
        field: getattr(whole, field).tolist()
        for field in ('rounds', 'drafted', 'accepted', 'committed', 'expected')
      },
    }


def count(config, decoding, decoder, gamma, batch, params, longest):
  """What became of the first rounds of a batch.

  Args:
    config: Config.
    decoding: setup.Decoding.
    decoder: Decoder.
    gamma: drafts of a round.
    batch: timed.Batch.
    params: SamplingParams.
    longest: tokens of the longest prompt of all batches.

  Returns:
    Counters of the batch's rows but its fillers, on the host.
  """
  budget = config.budget(gamma)
  state = decoder.init(
    decoding.weights,
    batch.ids,
    rng.sequence_keys(config.seed, len(batch.ids), batch.start),
    params,
    [budget if given else 0 for given in batch.budgets],
    decoding.stop_tokens,
    longest + budget,
  )
  rounds = decoder.stream(decoding.weights, state)
  for _, (after, _) in zip(range(config.rounds), rounds, strict=False):
    state = after
  return jax.tree.map(lambda x: np.asarray(x)[: batch.count], state.counters)


@functools.cache
def baseline(target, shares_noise):
  """The autoregressive loop, compiled once for all rules that draw alike."""
  draw = sampling.race if shares_noise else sampling.categorical
  return autoregressive.build(target, draw)


def summarize(config, rows):
  """What summary.json holds: each cell with its intervals."""
  by_cell = {cell_of(row): row for row in rows}
  cells = []
  for row in rows:
    _, gamma, temperature = cell_of(row)
    base = by_cell[BASELINE, gamma, temperature]
    plain, law = efficiencies(row), efficiencies(row, 'expected')
    cells.append(
      {
        **{key: value for key, value in row.items() if key != 'by_prompt'},
        'block_efficiency': intervals.ratio(*plain),
        'law_block_efficiency': intervals.ratio(*law),
        'above_token': intervals.ratio_difference(plain, efficiencies(base)),
        'law_above_token': intervals.ratio_difference(
          law, efficiencies(base, 'expected')
        ),
      }
    )
  return {
    'target': config.target,
    'draft': config.draft,
    'draft_layers': len(config.draft_layers),
    'prompts': len(rows[0]['by_prompt']['rounds']),
    'rounds': config.rounds,
    'batch_size': config.batch_size,
    'cells': cells,
  }


def efficiencies(row, accepted='accepted'):
  """Tokens of full rounds and target calls, one a prompt.

  Args:
    row: of metrics.jsonl.
    accepted: 'accepted', or 'expected' for what the law says.

  Returns:
    ([N], [N]). Drafts that a stop cut off count as accepted.
  """
  counts = {name: np.array(v) for name, v in row['by_prompt'].items()}
  return counts['rounds'] + counts[accepted], counts['rounds']


def line(row):
  """One cell, while the run goes on."""
  return (
    f'{row["rule"]:<15} gamma {row["gamma"]}  T {row["temperature"]:<4}'
    f' {row["block_efficiency"]:.2f} tokens a call,'
    f' {row["speculative_tokens_per_s"]:.1f} tokens/s'
  )


def report(console, summary):
  """Prints the table."""
  table = tables.build(
    'rule', 'gamma', 'T', 'block\neff.', '\n95 %', 'by\nlaw', '\n95 %',
    'above\ntoken', '\n95 %', 'tokens\n/s',
  )  # fmt: skip
  for cell in summary['cells']:
    value, by_law, above = (
      intervals.Interval(*cell[name])
      for name in (
        'block_efficiency',
        'law_block_efficiency',
        'law_above_token',
      )  # fmt: skip
    )
    table.add_row(
      cell['rule'],
      str(cell['gamma']),
      f'{cell["temperature"]:g}',
      f'{value.value:.2f}',
      tables.bounds(value),
      f'{by_law.value:.2f}',
      tables.bounds(by_law),
      f'{above.value:+.2f}',
      f'{above.low:+.2f} {above.high:+.2f}',
      f'{cell["speculative_tokens_per_s"]:.1f}',
    )
  tables.show(console, table)
