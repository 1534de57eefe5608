"""A small pair trained on one text: overlap, and the speedup of a small draft.

Leviathan et al., https://arxiv.org/abs/2211.17192, table 3. One number shrinks
widths, hidden widths, layers, vocabulary and steps alike; a head is 64 wide at
every scale, and a pair has at least one head and one layer. At scale 1 the
sizes are the paper's; our MLP is gated, and so has three products for two.

As there, the overlap is taken on what the target says, at its temperature.
"""

import dataclasses

from rich import console as rich_console
from rich import table as rich_table

from specdec import metrics
from specdec.base import Weights
from specdec.data import bpe
from specdec.drafters import model as model_drafter
from specdec.drafters import table
from specdec.experiments import acceptance, checks, quickstart, setup, training
from specdec.experiments import acceptance_summary as summary_lib
from specdec.models import functional
from specdec.plots import acceptance as plot
from specdec.train import pretrain

TARGET = training.SizeConfig(layers=12, width=768, hidden=3072, heads=12)
DRAFT = training.SizeConfig(layers=2, width=256, hidden=1024, heads=4)
VOCABULARY, STEPS, HEAD_WIDTH = 8192, 8000, 64
# Rates fall with the width, https://arxiv.org/abs/2203.03466.
RATE_TIMES_WIDTH = 0.384
WARMUP_FRACTION, CHECKPOINT_EVERY, HELD_OUT_ROWS = 0.05, 250, 64
SMALL, UNIGRAM, BIGRAM = 'small model', 'unigram', 'bigram'
TEMPERATURES = (0.0, 1.0)
# Overlaps at TEMPERATURES of 97M weights with 6M, and with tables of counts.
PUBLISHED = {SMALL: (0.88, 0.89), UNIGRAM: (0.03, 0.03), BIGRAM: (0.05, 0.05)}


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/leviathan_pair.py."""

  scale: float
  text: training.TextConfig
  batch_size: int
  gamma: int
  prompts: int
  prompt_tokens: int
  max_new_tokens: int
  decode_batch_size: int
  timed_batches: int
  seed: int

  def __post_init__(self):
    checks.require('scale', self.scale, 0 < self.scale <= 1, 'in (0, 1]')
    for field in ('prompts', 'prompt_tokens', 'decode_batch_size'):
      checks.at_least(field, getattr(self, field), 1)
    checks.at_least('seed', self.seed, 0)
    self.acceptance, self.fit(DRAFT)  # noqa: B018, they refuse what is wrong

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    text = fields.pop('text')
    scaled = max(bpe.SMALLEST, round(VOCABULARY * fields['scale']))
    text = training.TextConfig(**text, vocab_size=scaled)
    return cls(text=text, **fields)

  def sizes(self, whole):
    """A SizeConfig at this scale; see the module."""
    heads = max(1, round(whole.heads * self.scale))
    width = heads * HEAD_WIDTH
    return training.SizeConfig(
      max(1, round(whole.layers * self.scale)),
      width,
      width * whole.hidden // whole.width,
      heads,
    )

  def fit(self, whole):
    """The FitConfig of one of the two."""
    steps = max(2, round(STEPS * self.scale))
    return training.FitConfig(
      steps,
      self.batch_size,
      RATE_TIMES_WIDTH / self.sizes(whole).width,
      round(WARMUP_FRACTION * steps),
      CHECKPOINT_EVERY,
      HELD_OUT_ROWS,
    )

  @property
  def acceptance(self):
    """The fields of the acceptance experiment; the models are in memory."""
    return acceptance.Config(
      target='target',
      drafts=(
        f'{SMALL}=orbax:draft',
        f'{UNIGRAM}=unigram:text',
        f'{BIGRAM}=bigram:text',
      ),
      gamma=self.gamma,
      temperatures=TEMPERATURES,
      prompts=(),
      side='held_out',
      held_out=self.text.held_out,
      max_prompts=self.prompts,
      max_new_tokens=self.max_new_tokens,
      batch_size=self.decode_batch_size,
      timed_batches=self.timed_batches,
      seed=self.seed,
      dtype='auto',
    )


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/leviathan_pair.py.

  Args:
    config: of configs/leviathan_pair.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or the corpus is of no use.
  """
  config = Config.of(config)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.text.source}'):
    texts = training.read(config.text)
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config))
  if not rows:
    tokens = int(texts.train.mask[:, 1:].sum())
    rows = [{'train_tokens': tokens}]
    metrics.append(workdir, rows[0])
  target, draft = (
    train(config, workdir / name, whole, texts, console)
    for name, whole in (('target', TARGET), ('draft', DRAFT))
  )
  measured = config.acceptance
  target, decodings = pair(config, measured, target, draft, texts)
  found = acceptance.compare(
    measured,
    workdir,
    rows[1:],
    target,
    decodings,
    quickstart.choose_prompts(texts, config),
    console,
  )
  summary = {
    **found,
    'scale': config.scale,
    'steps': config.fit(TARGET).steps,
    'train_tokens': rows[0]['train_tokens'],
    'vocabulary': texts.tokenizer.size,
    'parameters': {
      'target': functional.num_params(target.checkpoint.params),
      'draft': functional.num_params(draft.params),
    },
    'published_overlap': PUBLISHED,
  }
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  report(console, summary)
  console.print(f'\n{workdir / "summary.json"}')
  return summary


def train(config, folder, whole, texts, console):
  """One of the two, trained on the text; see training.train."""
  sizes = config.sizes(whole)
  context = max(
    config.text.row_tokens, config.prompt_tokens + config.max_new_tokens
  )
  model = training.fresh(sizes, texts, config.seed, context)
  forward = functional.forward(model.config, setup.compute_dtype('auto'))
  fit = config.fit(whole)
  console.print(f'{folder.name}: {fit.steps} steps')
  return training.train(
    folder,
    fit,
    model,
    pretrain.build(forward),
    texts,
    config.seed,
    console=console,
  )


def pair(config, measured, target, draft, texts):
  """What the acceptance experiment compares.

  Args:
    config: Config.
    measured: acceptance.Config.
    target: Checkpoint.
    draft: Checkpoint.
    texts: training.Texts, which the tables count.

  Returns:
    setup.Target, and {drafts.Draft: setup.Decoding}.
  """
  size = texts.tokenizer.size
  model, params = setup.model_of(target, size)
  small, small_params = setup.model_of(draft, size)
  counted = table.build(size, config.gamma)
  drafters = {
    SMALL: (small, model_drafter.build(small, config.gamma), small_params),
    UNIGRAM: (None, counted, table.unigram(texts.train.tokens, size)),
    BIGRAM: (None, counted, table.bigram(texts.train.tokens, size)),
  }
  decodings = {}
  for entry in measured.parsed:
    draft_model, drafter, draft_params = drafters[entry.label]
    decodings[entry] = setup.Decoding(
      model,
      draft_model,
      drafter,
      Weights(params, draft_params),
      texts.tokenizer,
      tuple(target.stop_tokens),
    )
  return setup.Target(target, model, params), decodings


def report(console, summary):
  """Prints our figures beside the paper's."""
  summary_lib.report(console, summary)
  shown = rich_table.Table(box=None, pad_edge=False)
  shown.add_column('overlap')
  for name in ('T', 'ours', '95 %', 'published'):
    shown.add_column(name, justify='right')
  for cell in summary['cells']:
    value, low, high = cell['overlap']
    place = TEMPERATURES.index(cell['temperature'])
    shown.add_row(
      cell['draft'],
      f'{cell["temperature"]:g}',
      f'{value:.3f}',
      f'{low:.2f}-{high:.2f}',
      f'{PUBLISHED[cell["draft"]][place]:.2f}',
    )
  target, draft = summary['parameters'].values()
  console.print()
  console.print(shown)
  console.print(
    f'ours at scale {summary["scale"]:g}: {target:,} weights and {draft:,},'
    f' {summary["steps"]} steps; published: 97M and 6M, on another text'
  )
