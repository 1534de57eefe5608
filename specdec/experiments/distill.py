"""Distils a target into a draft, and says what that gained.

The gain is told against the same draft before, as overlap with the target on
documents that were held out. What comes of it is a folder `model`, which the
name orbax:WORKDIR/model loads.
"""

import dataclasses

from rich import console as rich_console

from specdec import metrics
from specdec.experiments import (
  checks,
  intervals,
  learner,
  overlap,
  setup,
  sources,
  student,
  training,
)
from specdec.models import functional, load
from specdec.train import distill, on_policy, prefixes


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/distill.py."""

  target: str
  draft: str
  size: training.SizeConfig
  draft_layers: tuple[int, ...]
  head_tokens: int
  prefixes: str
  source: sources.SourceConfig
  text: training.TextConfig
  loss: str
  strengths: dict
  temperature: float
  fit: training.FitConfig
  remat: bool
  dtype: str
  seed: int

  def __post_init__(self):
    checks.one_of('prefixes', self.prefixes, sources.SOURCES)
    checks.one_of('loss', self.loss, distill.LOSSES)
    checks.one_of('dtype', self.dtype, setup.DTYPES)
    checks.at_least('head_tokens', self.head_tokens, 0)
    checks.at_least('seed', self.seed, 0)
    checks.require(
      'temperature', self.temperature, self.temperature > 0, 'above 0'
    )
    student.check_layers(self)
    distill.losses_at(**self.strengths)

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    return cls(
      text=training.TextConfig(**fields.pop('text')),
      size=training.SizeConfig(**fields.pop('size')),
      fit=training.FitConfig(**fields.pop('fit')),
      source=sources.SourceConfig(**fields.pop('source')),
      **fields,
    )


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/distill.py.

  Args:
    config: of configs/distill.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, a model or the corpus is of no
      use, or the training went wrong.
  """
  config = Config.of(config)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.target}'):
    target = load.load(config.target, setup.dtype_of(config.dtype))
    vocabulary = setup.vocabulary_of(target)
  with console.status(f'reading {config.text.source}'):
    texts = training.read(config.text, vocabulary)
  draft = student.initial(config, target, texts)
  config.source.check_context(target.config, draft.config)
  windows = prefixes.windows(
    texts.documents, config.source.prompt_tokens, config.source.new_tokens
  )
  workdir, _ = metrics.resume(workdir, dataclasses.asdict(config))
  size = min(vocabulary.size, target.config.vocab_size)
  pair = student.pair(config, target, draft)
  loss = distill.losses_at(**config.strengths)[config.loss]
  loss_fn = pair.loss(loss, config.temperature)
  decode_dtype, stops = setup.dtype_of(config.dtype), target.stop_tokens
  authors = sources.authors(
    workdir / sources.ROLLOUTS,
    config.source.writing(config.seed),
    sources.writer(target, decode_dtype, size, stops),
    target.params,
    sources.writer(draft, decode_dtype, size, stops),
    console,
  )
  fixed = (target.params,)
  held_out = training.validation_batches(config.fit, texts)
  trained = learner.fit(
    workdir,
    learner.build(config.fit, loss_fn, held_out, fixed),
    draft,
    on_policy.Pools(
      config.source.pool(config.fit.batch_size, config.seed),
      windows,
      config.source.shares(config.prefixes),
      authors,
    ),
    config.seed,
    fixed,
    console,
    on_policy.run,
  )
  rows = training.windows(texts.held_out, config.text.row_tokens)
  with console.status('overlap on held-out documents'):
    found = overlap.by_row(
      {
        'before': pair.overlap(draft.params),
        'after': pair.overlap(trained.params),
      },
      pair.teacher,
      target.params,
      rows,
      config.fit.batch_size,
    )
  summary = {
    'parameters': functional.num_params(draft.params),
    **training.summary(workdir, texts),
    'overlap': {name: intervals.ratio(*x) for name, x in found.items()},
    'gain': intervals.ratio_difference(found['after'], found['before']),
  }
  metrics.summarize(workdir, summary)
  for name, (value, low, high) in summary['overlap'].items():
    console.print(f'overlap {name}: {value:.3f} ({low:.3f} to {high:.3f})')
  console.print(f'orbax:{workdir / training.MODEL}')
  return summary
