"""The ablation of distillation: loss x author of the prefixes x seed.

One target; for each seed one draft that has learnt the text, from which every
cell goes on, on the same prompts in the same order. What differs between two
cells of a seed is the loss, or who continued the prompts, and nothing else.

Measured is what the target's own replies to prompts of held-out documents say:
the overlap, and the block efficiency that follows from it, see
train/overlap.py. Intervals are over seeds.
"""

import dataclasses
import itertools
import shutil

from rich import console as rich_console
from rich import progress

from specdec import metrics, sampling
from specdec.base import UsageError
from specdec.experiments import checks, losses_bench, sources, training
from specdec.experiments import losses_summary as summary_lib
from specdec.plots import losses as plot
from specdec.train import distill

WARMUP_STEPS, CHECKPOINT_EVERY, HELD_OUT_ROWS = 20, 100, 64


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/losses.py."""

  text: training.TextConfig
  target: training.SizeConfig
  draft: training.SizeConfig
  batch_size: int
  target_steps: int
  target_rate: float
  draft_steps: int
  distill_steps: int
  draft_rate: float
  losses: tuple[str, ...]
  strengths: dict
  prefixes: tuple[str, ...]
  source: sources.SourceConfig
  temperatures: tuple[float, ...]
  gamma: int
  prompts: int
  prompt_tokens: int
  max_new_tokens: int
  seeds: int
  seed: int

  def __post_init__(self):
    for field, names, choices, baseline in (
      ('losses', self.losses, distill.LOSSES, summary_lib.LOSS),
      ('prefixes', self.prefixes, sources.SOURCES, summary_lib.SOURCE),
    ):
      for name in names:
        checks.one_of(field, name, choices)
      if baseline not in names:
        raise UsageError(f'{field} = {names}: add {baseline!r}, the baseline')
    for field, least in (
      ('gamma', 1),
      ('prompts', 1),
      ('prompt_tokens', 1),
      ('max_new_tokens', 2),
      ('seeds', 2),
      ('seed', 0),
    ):
      checks.at_least(field, getattr(self, field), least)
    for temperature in self.temperatures:
      sampling.params(1, temperature)
    distill.losses_at(**self.strengths)
    for field in ('target_steps', 'draft_steps', 'distill_steps'):
      checks.at_least(field, getattr(self, field), WARMUP_STEPS + 1)
      self.fit(field, self.target_rate)
    self.fit('draft_steps', self.draft_rate)

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    return cls(
      text=training.TextConfig(**fields.pop('text')),
      target=training.SizeConfig(**fields.pop('target')),
      draft=training.SizeConfig(**fields.pop('draft')),
      source=sources.SourceConfig(**fields.pop('source')),
      **fields,
    )

  def fit(self, steps, rate):
    """The FitConfig of a phase; `steps` is the name of its field."""
    return training.FitConfig(
      getattr(self, steps),
      self.batch_size,
      rate,
      WARMUP_STEPS,
      CHECKPOINT_EVERY,
      HELD_OUT_ROWS,
    )

  @property
  def context(self):
    """Tokens that the models can hold."""
    decoded = self.prompt_tokens + self.max_new_tokens
    return max(self.text.row_tokens, self.source.row_tokens, decoded)

  @property
  def cells(self):
    """Every (seed, loss, source), the cells of a seed together."""
    return [
      (self.seed + number, *cell)
      for number in range(self.seeds)
      for cell in (
        summary_lib.UNTRAINED,
        summary_lib.LABELS,
        *itertools.product(self.losses, self.prefixes),
      )
    ]


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/losses.py.

  Args:
    config: of configs/losses.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or the corpus is of no use.
  """
  config = Config.of(config)
  console = rich_console.Console(highlight=False)
  with console.status(f'reading {config.text.source}'):
    texts = training.read(config.text)
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config))
  if not rows:
    rows = [{'held_out_documents': len(texts.held_out)}]
    metrics.append(workdir, rows[0])
  bench = losses_bench.Bench(config, workdir, texts, console)
  done = {tuple(row['cell']) for row in rows[1:]}
  with progress.Progress(
    console=console, transient=True, disable=not console.is_terminal
  ) as bar:
    for cell in bar.track(config.cells, description='seed x loss x prefixes'):
      if cell not in done:
        row = {'cell': cell, **bench.measure(*cell)}
        metrics.append(workdir, row)
        rows.append(row)
        bar.console.print(summary_lib.line(row), soft_wrap=True)
      # What only an interrupted cell needs.
      shutil.rmtree(bench.folder(*cell), ignore_errors=True)
  summary = summary_lib.summarize(dataclasses.asdict(config), rows)
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  summary_lib.report(console, summary)
  console.print(f'\n{workdir / "summary.json"}', soft_wrap=True)
  return summary
