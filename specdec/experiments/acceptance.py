"""How much of each draft a target accepts, on prompts that no draft saw.

Offline, the target's own replies are read by target and draft: the overlap
sum_x min(p, q) before each token, and what follows from it for each position
of a round, see train/overlap.py. In the real loop, what was accepted. The two
agree in expectation but for where rounds start: a round follows a rejection
more often than chance, and so stands where drafting is hard.

Intervals resample prompts, and drafts are compared with the first of the list
on the same ones.
"""

import dataclasses

import jax
import numpy as np
from rich import console as rich_console
from rich import progress

from specdec import metrics, sampling
from specdec.base import Weights
from specdec.data import prompts as prompts_lib
from specdec.decode import autoregressive, speculative, stats
from specdec.experiments import acceptance_summary as summary_lib
from specdec.experiments import (
  checks,
  drafting,
  drafts,
  forecast,
  sweep_run,
  timed,
)
from specdec.plots import acceptance as plot
from specdec.train import overlap, rollouts
from specdec.verify import token

SAMPLES = 'samples'  # the target's replies, inside the workdir
_COUNTERS = ('rounds', 'drafted', 'accepted', 'committed', 'expected')


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/acceptance.py."""

  target: str
  drafts: tuple[str, ...]
  gamma: int
  temperatures: tuple[float, ...]
  prompts: tuple[str, ...]
  side: str
  held_out: float
  max_prompts: int
  max_new_tokens: int
  batch_size: int
  timed_batches: int
  seed: int
  dtype: str

  def __post_init__(self):
    checks.at_least('gamma', self.gamma, 1)
    checks.at_least('max_prompts', self.max_prompts, 0)
    checks.at_least('max_new_tokens', self.max_new_tokens, 2)
    checks.at_least('timed_batches', self.timed_batches, 0)
    for temperature in self.temperatures:
      sampling.params(1, temperature)
    for draft in self.parsed:
      self.decode(draft)

  @property
  def parsed(self):
    """The drafts, a list of drafts.Draft."""
    return drafts.parse_all(self.drafts)

  def decode(self, draft, gamma=None):
    """The DecodeConfig of a draft."""
    return draft.decode(
      target=self.target,
      gamma=gamma or self.gamma,
      dtype=self.dtype,
      batch_size=self.batch_size,
    )


def run(config, workdir):
  """Measures every draft, or those that are left; see configs/acceptance.py.

  Args:
    config: of configs/acceptance.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or a model cannot be used.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  asked = prompts_lib.gather(
    config.prompts, config.side, config.held_out, config.max_prompts or None
  )
  console = rich_console.Console(highlight=False, soft_wrap=True)
  target, decodings, ids = sweep_run.load(
    console,
    {draft: config.decode(draft) for draft in config.parsed},
    asked,
    config.max_new_tokens,
  )
  # The file behind a name may change between two runs.
  digest = {'prompts_digest': prompts_lib.digest(ids)}
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config) | digest)
  summary = compare(config, workdir, rows, target, decodings, ids, console)
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  summary_lib.report(console, summary)
  console.print(f'\n{workdir / "summary.json"}')
  return summary


def compare(config, workdir, rows, target, decodings, ids, console):
  """Measures what is left to measure, and summarises all.

  Args:
    config: Config.
    workdir: pathlib.Path.
    rows: of metrics.jsonl that are there already; the others are appended.
    target: setup.Target.
    decodings: {drafts.Draft: setup.Decoding}.
    ids: prompts, lists of token ids.
    console: of the progress bars.

  Returns:
    What summary.json holds, see acceptance_summary.summarize.
  """
  baseline = autoregressive.build(target.model)
  samples = {
    temperature: collect(
      config, workdir, target, baseline, ids, temperature, console
    )
    for temperature in config.temperatures
  }
  done = {(row['draft'], row['temperature']) for row in rows}
  with progress.Progress(
    console=console, transient=True, disable=not console.is_terminal
  ) as bar:
    for draft, decoding in bar.track(decodings.items(), description='drafts'):
      wanted = {
        temperature: replies
        for temperature, replies in samples.items()
        if (draft.label, temperature) not in done
      }
      for row in measure(config, draft, decoding, baseline, ids, wanted):
        metrics.append(workdir, row)
        rows.append(row)
        bar.console.print(summary_lib.line(row))
  return summary_lib.summarize(dataclasses.asdict(config), rows)


def collect(config, workdir, target, baseline, ids, temperature, console):
  """The target's replies at one temperature, a list of packing.Row."""
  folder = workdir / SAMPLES / f'temperature-{temperature:g}'
  setting = rollouts.RolloutConfig(
    config.target, temperature, config.max_new_tokens, config.seed
  )
  rollouts.collect(
    folder,
    setting,
    baseline,
    Weights(target.params, None),
    ids,
    config.batch_size,
    target.checkpoint.stop_tokens,
    console,
  )
  return rollouts.read(folder)


def measure(config, draft, decoding, baseline, ids, samples):
  """Measures one draft.

  Args:
    config: Config.
    draft: drafts.Draft.
    decoding: setup.Decoding, of that draft.
    baseline: the autoregressive Decoder.
    ids: prompts, lists of token ids.
    samples: {temperature: the target's replies}; the temperatures share what
      is compiled.

  Yields:
    A row of metrics.jsonl for each temperature.
  """
  if not samples:
    return
  max_len = max(map(len, ids)) + config.max_new_tokens
  batches = timed.batches(ids, config.batch_size, config.max_new_tokens)
  speculating = [
    speculative.build(decoding.target, decoding.drafter, token.RULE, use_law)
    for use_law in (True, False)
  ]
  read = reader(config, draft, decoding)

  for temperature, replies in samples.items():
    params = sampling.params(config.batch_size, temperature)
    count, *clocks = (
      timed.loop(
        decoder,
        weights,
        params,
        config.seed,
        decoding.stop_tokens,
        max_len,
      )
      for decoder, weights in (
        (speculating[0], decoding.weights),
        (speculating[1], decoding.weights),
        (baseline, Weights(decoding.weights.target, None)),
      )
    )
    counted = [
      jax.tree.map(lambda x, rows=batch.count: x[:rows], count(batch).counters)
      for batch in batches
    ]
    counters = jax.tree.map(lambda *parts: np.concatenate(parts), *counted)
    # Evenly over all: the prompts of a file lie together.
    chosen = prompts_lib.evenly(batches, config.timed_batches)
    speeds = _speeds(*clocks, chosen)
    by_prompt = {name: getattr(counters, name) for name in _COUNTERS}
    by_prompt |= read(decoding.weights, replies, params, max_len)
    yield {
      'draft': draft.label,
      'temperature': temperature,
      **stats.totals(counters),
      **speeds,
      'by_prompt': by_prompt,
    }


def reader(config, draft, decoding):
  """A function that reads replies; see forecast.reader."""
  vocab_size = decoding.target.vocab_size
  if decoding.draft is None:
    one = drafting.drafter_of(config.decode(draft, gamma=1), None, vocab_size)
    draft_reader = overlap.of_drafter(one, vocab_size)
  else:
    draft_reader = overlap.of_model(decoding.draft)
  compare = overlap.build(overlap.of_model(decoding.target), draft_reader)
  return forecast.reader(compare, config.gamma, config.batch_size)


def _speeds(speculate, baseline, batches):
  """Tokens per second of both loops on the same batches, run in turn."""
  loops = (speculate, baseline)
  for loop in loops if batches else ():
    timed.compile_s(loop, batches[0])
  results = [[loop(batch) for loop in loops] for batch in batches]
  fast, plain = (
    stats.rate(
      sum(result[i].counters.committed.sum() for result in results),
      sum(result[i].decode_s for result in results),
    )
    for i in range(2)
  )
  return {
    'speculative_tokens_per_s': fast,
    'autoregressive_tokens_per_s': plain,
    'speedup': fast and stats.rate(fast, plain),
  }
