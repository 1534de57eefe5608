"""Collects what a target says to prompts, for drafts to learn from.

See train/rollouts.py for what a folder of rollouts holds. Only the side of the
prompts that is named is asked: what a draft is measured on is left alone.
"""

import dataclasses

from rich import console as rich_console

from specdec import metrics, sampling
from specdec.base import Weights
from specdec.data import prompts as prompts_lib
from specdec.decode import autoregressive, speculative
from specdec.experiments import checks, setup
from specdec.train import rollouts

FOLDER = 'rollouts'  # inside the workdir


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/rollouts.py."""

  target: str
  drafter: str
  draft: str
  gamma: int
  prompts: tuple[str, ...]
  side: str
  held_out: float
  max_prompts: int
  repeats: int
  temperature: float
  max_new_tokens: int
  batch_size: int
  seed: int
  dtype: str

  def __post_init__(self):
    checks.one_of('side', self.side, prompts_lib.SIDES)
    checks.at_least('max_prompts', self.max_prompts, 0)
    checks.at_least('repeats', self.repeats, 1)
    checks.at_least('max_new_tokens', self.max_new_tokens, 1)
    sampling.params(1, self.temperature)

  @property
  def decode(self):
    """The models."""
    return setup.DecodeConfig(
      self.target,
      self.drafter,
      self.draft,
      gamma=self.gamma,
      dtype=self.dtype,
      batch_size=self.batch_size,
    )

  @property
  def rollouts(self):
    """What the rows depend on."""
    decoder = 'autoregressive'
    if self.gamma:
      decoder = f'{self.drafter} {self.draft} gamma {self.gamma}'
    return rollouts.RolloutConfig(
      self.target, self.temperature, self.max_new_tokens, self.seed, decoder
    )


def run(config, workdir):
  """Collects rollouts, or the rest of them; see configs/rollouts.py.

  Args:
    config: of configs/rollouts.py.
    workdir: pathlib.Path; the rows lie in its folder `rollouts`.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, the target cannot be used, or the
      workdir holds rollouts of another setting.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  asked = prompts_lib.gather(
    config.prompts, config.side, config.held_out, config.max_prompts or None
  )
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.target}'):
    decoding = setup.load_decoding(config.decode)
  ids = [prompts_lib.encode(decoding.tokenizer, p) for p in asked]
  setup.check_lengths(ids, config.max_new_tokens, decoding.target.max_length)
  manifest = rollouts.collect(
    workdir / FOLDER,
    config.rollouts,
    *_loop(config, decoding),
    # Sets of rows that follow each other, so that the first ask every prompt.
    ids * config.repeats,
    config.batch_size,
    decoding.stop_tokens,
    console,
  )
  rows = rollouts.read(workdir / FOLDER)
  stopped = sum(row.tokens[-1] in decoding.stop_tokens for row in rows)
  metrics.write_json(workdir / 'config.json', dataclasses.asdict(config))
  metrics.write_json(workdir / 'versions.json', metrics.versions())
  summary = {
    'target': config.target,
    'temperature': config.temperature,
    'prompts': len(ids),
    'rows': len(rows),
    'tokens': manifest['tokens'],
    'tokens_per_row': manifest['tokens'] / len(rows),
    'ended_by_stop': stopped / len(rows),
    'shards': len(manifest['shards']),
  }
  metrics.summarize(workdir, summary)
  console.print(
    f'{summary["tokens"]:,} tokens in {summary["rows"]:,} rows,'
    f' {summary["ended_by_stop"]:.0%} of them ended by a stop token:'
    f' {workdir / FOLDER}'
  )
  return summary


def _loop(config, decoding):
  """The decoder and its weights."""
  if not config.gamma:
    decoder = autoregressive.build(decoding.target)
    return decoder, Weights(decoding.weights.target, None)
  decoder = speculative.build(
    decoding.target, decoding.drafter, config.decode.rules[config.decode.rule]
  )
  return decoder, decoding.weights
