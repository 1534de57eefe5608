"""The whole loop in miniature: text, target, draft, distillation, proof.

A target and a draft learn the same text, then the draft learns the target.
What that gained is its overlap with the target on documents that neither has
seen, beside what the same number of steps on text alone would have gained, and
the tokens that a target call commits in the real loop.
"""

import dataclasses
import itertools
import time

from rich import console as rich_console

from specdec import metrics
from specdec.base import Weights
from specdec.data import prompts as prompts_lib
from specdec.drafters import table
from specdec.experiments import checks, intervals, overlap, sweep, training
from specdec.experiments.quickstart_summary import (
  BIGRAM,
  DISTILLED,
  DRAFT,
  TEXT_ALONE,
  UNIGRAM,
  report,
)
from specdec.models import functional
from specdec.plots import quickstart as plot
from specdec.train import distill, pretrain

TEMPERATURES = (0.0, 1.0)
WARMUP_STEPS, CHECKPOINT_EVERY, HELD_OUT_ROWS = 20, 100, 64


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/quickstart.py."""

  text: training.TextConfig
  target: training.SizeConfig
  draft: training.SizeConfig
  batch_size: int
  target_steps: int
  target_rate: float
  draft_steps: int
  distill_steps: int
  draft_rate: float
  loss: str
  gammas: tuple[int, ...]
  prompts: int
  prompt_tokens: int
  max_new_tokens: int
  seed: int

  def __post_init__(self):
    checks.one_of('loss', self.loss, distill.LOSSES)
    checks.at_least('gammas', min(self.gammas, default=0), 1)
    checks.at_least('prompts', self.prompts, 1)
    checks.at_least('prompt_tokens', self.prompt_tokens, 1)
    checks.at_least('max_new_tokens', self.max_new_tokens, 2)
    checks.at_least('seed', self.seed, 0)
    for field in ('target_steps', 'draft_steps', 'distill_steps'):
      checks.at_least(field, getattr(self, field), WARMUP_STEPS + 1)
      self.fit(field, self.target_rate)
    self.fit('draft_steps', self.draft_rate)

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    text = training.TextConfig(**fields.pop('text'))
    target, draft = (
      training.SizeConfig(**fields.pop(name)) for name in ('target', 'draft')
    )
    return cls(text, target, draft, **fields)

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
    return max(self.text.row_tokens, decoded)


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/quickstart.py.

  Args:
    config: of configs/quickstart.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or the corpus is of no use.
  """
  begin = time.perf_counter()
  config = Config.of(config)
  console = rich_console.Console(highlight=False)
  with console.status(f'reading {config.text.source}'):
    texts = training.read(config.text)
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config))
  tokens = int(texts.train.mask[:, 1:].sum())
  if not rows:
    metrics.append(workdir, {'train_tokens': tokens})
  console.print(
    f'{tokens:,} tokens to train on, {len(texts.held_out)} documents held out'
  )
  models = train(config, workdir, texts, console)
  with console.status('overlap on held-out documents'):
    overlaps = measure(models, texts, config)
  with console.status('speculative decoding'):
    cells, differ, compared = decode(models, texts, config)
  summary = {
    'train_tokens': tokens,
    'held_out_documents': len(texts.held_out),
    'parameters': {
      name: functional.num_params(models[name].params)
      for name in ('target', DRAFT)
    },
    'overlap': {
      name: intervals.ratio(*parts) for name, parts in overlaps.items()
    },
    'gain': {
      name: _gain(overlaps[DISTILLED], overlaps[name])
      for name in (DRAFT, TEXT_ALONE)
    },
    'cells': cells,
    'greedy_differ': differ,
    'greedy_rows': compared,
    # Of the whole run, if it was not interrupted.
    'seconds': None if rows else time.perf_counter() - begin,
  }
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  report(console, summary)
  console.print(f'\n{workdir / "summary.json"}', soft_wrap=True)
  return summary


def train(config, workdir, texts, console):
  """The four phases of training.

  Returns:
    {name: Checkpoint}, of the target and the three drafts that are models.
  """
  context = config.context
  target = training.fresh(config.target, texts, config.seed, context)
  draft = training.fresh(config.draft, texts, config.seed + 1, context)
  read_target, read_draft = forward(target), forward(draft)
  loss = distill.LOSSES[config.loss]
  on_text = pretrain.build(read_draft)
  on_target = distill.build(read_draft, read_target, loss)

  def phase(folder, steps, rate, model, loss_fn, seed, fixed=()):
    console.print(f'{folder}: {getattr(config, steps)} steps')
    return training.train(
      workdir / folder,
      config.fit(steps, rate),
      model,
      loss_fn,
      texts,
      config.seed + seed,
      fixed,
      console,
    )

  target = phase(
    'target', 'target_steps', config.target_rate, target,
    pretrain.build(read_target), 0,
  )  # fmt: skip
  rate = config.draft_rate
  draft = phase('draft', 'draft_steps', rate, draft, on_text, 1)
  # Both go on from the same weights and read the same rows in one order.
  more = phase('text_alone', 'distill_steps', rate, draft, on_text, 2)
  distilled = phase(
    'distilled', 'distill_steps', rate, draft, on_target, 2, (target.params,)
  )
  return {
    'target': target, DRAFT: draft, TEXT_ALONE: more, DISTILLED: distilled,
  }  # fmt: skip


def forward(model):
  """A checkpoint's forward pass over whole rows."""
  return functional.forward(model.config)


def measure(models, texts, config):
  """Overlaps of all drafts with the target, one window a held-out document.

  Returns:
    {name: (sums, counts)}, for intervals.ratio.
  """
  target = models['target']
  size = target.config.vocab_size
  rows = training.windows(texts.held_out, config.text.row_tokens)
  drafts = {
    UNIGRAM: overlap.of_table(table.unigram(texts.train.tokens, size)),
    BIGRAM: overlap.of_table(table.bigram(texts.train.tokens, size)),
  }
  for name in (DRAFT, TEXT_ALONE, DISTILLED):
    model = models[name]
    drafts[name] = overlap.of_model(forward(model), model.params)
  return overlap.by_row(
    drafts, forward(target), target.params, rows, config.batch_size
  )


def decode(models, texts, config):
  """Goes on with held-out documents, before and after distillation.

  Returns:
    What each (draft, temperature, gamma) committed; how many greedy texts are
    not the autoregressive loop's; and how many were compared.
  """
  prompts = choose_prompts(texts, config)
  target = models['target']
  model = functional.build(target.config)
  plain = sweep.greedy(
    model, target.params, prompts, config.max_new_tokens, target.stop_tokens
  )
  loop = sweep.build(
    model,
    functional.build(models[DRAFT].config),
    sorted(config.gammas),
    prompts,
    config.max_new_tokens,
    target.stop_tokens,
  )
  cells, differ, compared = [], 0, 0
  for name, temperature in itertools.product((DRAFT, DISTILLED), TEMPERATURES):
    weights = Weights(target.params, models[name].params)
    found = loop(weights, temperature, config.seed)
    for gamma, (output, counters) in found.items():
      if temperature == 0:
        differ += sum(a != b for a, b in zip(output, plain, strict=True))
        compared += len(plain)
      cells.append(
        {
          'draft': name,
          'temperature': temperature,
          'gamma': gamma,
          'accept_rate': intervals.ratio(counters.accepted, counters.drafted),
          'block_efficiency': intervals.ratio(*sweep.efficiencies(counters)),
        }
      )
  return cells, differ, compared


def choose_prompts(texts, config):
  """Token ids out of the middle of held-out documents, evenly over them."""
  rows = training.windows(texts.held_out, config.prompt_tokens - 1)
  chosen = prompts_lib.evenly(range(len(texts.held_out)), config.prompts)
  return [rows.tokens[i][rows.mask[i]].tolist() for i in chosen]


def _gain(after, before):
  """The relative gain in overlap, paired by document."""
  # Both count the same tokens, so that the counts cancel.
  found = intervals.ratio(after[0], before[0])
  return intervals.Interval(*(x - 1 for x in found))
