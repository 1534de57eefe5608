"""Gamma by temperature by drafter by rule: measured beside predicted speed.

The autoregressive loop and every gamma decode each batch of prompts in turn.
Three predictions stand beside what is measured: from one acceptance alpha at
every position; from rounds replayed on the target's own replies; and from the
latter with what the parts of a round cost on this machine.

Policies that choose gamma as they go can run along, and are compared with the
fixed gamma that turned out best, by kind of prompt.
"""

import dataclasses

from rich import console as rich_console

from specdec import sampling
from specdec.data import prompts as prompts_lib
from specdec.drafters.policies import cost_aware
from specdec.experiments import (
  checks,
  drafting,
  drafts,
  replay,
  sweep_run,
  sweeping,
  timed,
)
from specdec.experiments import gamma_sweep_summary as summary_lib
from specdec.plots import gamma_sweep as plot


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/gamma_sweep.py."""

  target: str
  drafts: tuple[str, ...]
  rules: tuple[str, ...]
  temperatures: tuple[float, ...]
  gammas: tuple[int, ...]
  policies: tuple[str, ...]
  lossy: dict
  prompts: str
  max_prompts: int
  max_new_tokens: int
  batch_size: int
  repeats: int
  seed: int
  dtype: str

  def __post_init__(self):
    checks.at_least('max_prompts', self.max_prompts, 0)
    checks.at_least('max_new_tokens', self.max_new_tokens, 2)
    checks.at_least('repeats', self.repeats, 1)
    checks.at_least('seed', self.seed, 0)
    for field in ('rules', 'temperatures', 'gammas'):
      checks.distinct(field, getattr(self, field))
    checks.distinct('policies', self.policies, least=0)
    for gamma in self.gammas:
      checks.at_least('gammas', gamma, 0)
    checks.at_least('gammas: the greatest', max(self.gammas), 1)
    for policy in self.policies:
      checks.one_of('policies', policy, set(drafting.POLICIES) - {'fixed'})
    for temperature in self.temperatures:
      sampling.params(1, temperature)
    for draft in self.parsed:
      for rule in self.rules:
        self.decode(draft, rule)

  @property
  def parsed(self):
    """The drafts, a list of drafts.Draft."""
    return drafts.parse_all(self.drafts)

  @property
  def loops(self):
    """What is compared with the autoregressive loop, a list of Loop."""
    most = max(self.gammas)
    return [sweeping.Loop(gamma, 'fixed') for gamma in self.gammas] + [
      sweeping.Loop(most, policy) for policy in self.policies
    ]

  def decode(self, draft, rule):
    """The DecodeConfig of a draft's longest rounds."""
    return draft.decode(
      target=self.target,
      rule=rule,
      gamma=max(self.gammas),
      lossy=self.lossy,
      dtype=self.dtype,
      batch_size=self.batch_size,
    )


def run(config, workdir):
  """Runs the sweep, or the rest of it; see configs/gamma_sweep.py.

  Args:
    config: of configs/gamma_sweep.py.
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
  console = rich_console.Console(highlight=False, soft_wrap=True)
  _, decodings, ids = sweep_run.load(
    console,
    {draft: config.decode(draft, config.rules[0]) for draft in config.parsed},
    prompts,
    config.max_new_tokens,
  )
  kinds = [prompt.kind for prompt in prompts]

  def found(rows):
    for draft, decoding in decodings.items():
      yield from sweep(config, draft, decoding, ids, kinds, rows)

  cells = len(decodings) * len(config.rules) * len(config.temperatures)
  return sweep_run.run(
    console,
    workdir,
    dataclasses.asdict(config),
    ids,
    found,
    cells * len(ids),
    summary_lib,
    plot,
  )


def sweep(config, draft, decoding, ids, kinds, done):
  """Measures what is left to measure of one draft.

  Args:
    config: Config.
    draft: drafts.Draft.
    decoding: setup.Decoding, of that draft.
    ids: prompts, lists of token ids.
    kinds: of the prompts.
    done: rows of metrics.jsonl that are there already.

  Yields:
    Rows: one with the costs, then one a batch, rule and temperature.
  """
  label = {'draft': draft.label}
  done = [row for row in done if row['draft'] == draft.label]
  batches = timed.batches(ids, config.batch_size, config.max_new_tokens)
  max_len = max(map(len, ids)) + config.max_new_tokens
  price = next((row for row in done if 'costs' in row), None)
  if price is None:
    price = label | sweeping.prices(
      config.decode(draft, config.rules[0]),
      decoding,
      config.temperatures,
      sweeping.cached_tokens(batches, config.max_new_tokens),
      config.repeats,
    )
    yield price
  costs = cost_aware.Costs(**price['costs'])
  for name in config.rules:
    decode = config.decode(draft, name)
    rule = decode.rules[name]
    read = replay.reader(decode, decoding, config.max_new_tokens)
    decoders = {sweeping.PLAIN: sweeping.plain_decoder(decoding.target, rule)}
    for loop in config.loops:
      decoders[loop] = sweeping.decoder_of(decode, loop, decoding, costs)
    for temperature in config.temperatures:
      cell = label | {'rule': name, 'temperature': temperature}
      for batch, row in sweeping.measure(
        decode,
        decoding,
        decoders,
        read,
        sweeping.left(batches, done, cell),
        temperature,
        config.seed,
        max_len,
      ):
        these = kinds[batch.start : batch.start + batch.count]
        yield cell | {'lossless': rule.lossless, 'kinds': these} | row
