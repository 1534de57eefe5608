"""Trains a model of given sizes on a given corpus.

What comes of it is a folder `model`, which the name orbax:WORKDIR/model loads.
"""

import dataclasses

from rich import console as rich_console

from specdec import metrics
from specdec.experiments import checks, setup, training
from specdec.models import functional, load
from specdec.train import pretrain


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/pretrain.py."""

  text: training.TextConfig
  tokenizer: str
  model: training.SizeConfig
  max_length: int
  fit: training.FitConfig
  remat: bool
  dtype: str
  seed: int

  def __post_init__(self):
    checks.one_of('dtype', self.dtype, setup.DTYPES)
    checks.at_least('max_length', self.max_length, self.text.row_tokens)
    checks.at_least('seed', self.seed, 0)

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    return cls(
      training.TextConfig(**fields.pop('text')),
      model=training.SizeConfig(**fields.pop('model')),
      fit=training.FitConfig(**fields.pop('fit')),
      **fields,
    )


def run(config, workdir):
  """Runs the experiment, or the rest of it; see configs/pretrain.py.

  Args:
    config: of configs/pretrain.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, the corpus is of no use, or the
      training went wrong.
  """
  config = Config.of(config)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.text.source}'):
    vocabulary = None
    if config.tokenizer:
      vocabulary = setup.vocabulary_of(load.load(config.tokenizer))
    texts = training.read(config.text, vocabulary)
  model = training.fresh(config.model, texts, config.seed, config.max_length)
  workdir, _ = metrics.resume(workdir, dataclasses.asdict(config))
  forward = functional.forward(
    model.config, setup.compute_dtype(config.dtype), remat=config.remat
  )
  training.train(
    workdir,
    config.fit,
    model,
    pretrain.build(forward),
    texts,
    config.seed,
    console=console,
  )
  summary = {
    'parameters': functional.num_params(model.params),
    'vocab_size': texts.tokenizer.size,
    **training.summary(workdir, texts),
  }
  metrics.summarize(workdir, summary)
  console.print(
    f'{summary["parameters"]:,} weights, {summary["steps"]} steps: held-out'
    f' loss {summary["held_out_loss"]:.3f} nats a token'
  )
  console.print(f'orbax:{workdir / training.MODEL}')
  return summary
