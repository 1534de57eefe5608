"""A draft for a target, from rollouts to an export, as one command.

The target answers prompts; a draft, fresh or cut from the target, learns what
it says there; and both are measured on prompts that are held out and on those
of other files, beside drafts that are counted. Each phase has a folder of its
own in the workdir, and one that is done is read.

What limits the draft is measured too: the learning curve and the overlap on
rollouts beside that on held-out replies tell of data, the mass of p on the
head's tokens bounds the overlap, and what a round costs bounds the speedup.
"""

import contextlib
import dataclasses
import time

from rich import console as rich_console

from specdec import metrics
from specdec.base import UsageError
from specdec.data import prompts as prompts_lib
from specdec.experiments import acceptance, checks, setup, student, training
from specdec.experiments import pipeline_phases as phases
from specdec.experiments import pipeline_summary as summary_lib
from specdec.models import load
from specdec.plots import pipeline as plot
from specdec.train import distill


@dataclasses.dataclass(frozen=True)
class MeasureConfig:
  """How the drafts are measured, see configs/acceptance.py.

  Attributes:
    gamma: drafts of a round.
    temperatures: 1 among them.
    prompts: held out, of each file; 0 is all.
    report_prompts: of each file; 0 is all.
    max_new_tokens: of a reply.
    batch_size: replies decoded together.
    timed_batches: of which the speedup is measured.
  """

  gamma: int
  temperatures: tuple[float, ...]
  prompts: int
  report_prompts: int
  max_new_tokens: int
  batch_size: int
  timed_batches: int

  def __post_init__(self):
    checks.at_least('measure.prompts', self.prompts, 0)
    checks.at_least('measure.report_prompts', self.report_prompts, 0)
    checks.require(
      'measure.temperatures', self.temperatures, 1 in self.temperatures,
      'some, 1 among them',
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/distill_smollm2.py."""

  target: str
  prompts: str
  held_out: float
  report_prompts: str
  rollout_tokens: int
  rollout_new_tokens: int
  rollout_batch_size: int
  draft: str
  size: training.SizeConfig
  draft_layers: tuple[int, ...]
  head_tokens: int
  prompt_tokens: int
  loss: str
  strengths: dict
  fit: training.FitConfig
  remat: bool
  measure: MeasureConfig
  seed: int
  dtype: str

  def __post_init__(self):
    for field, what in (
      ('prompts', 'that the target answers, such as maths and code'),
      ('report_prompts', 'to report on, such as those of Spec-Bench'),
    ):
      if not all(self.files(field)):
        raise UsageError(
          f'{field} = {getattr(self, field)!r}: give JSON Lines files of'
          f' prompts {what}, --config.{field}=FILE,FILE'
        )
    for field, least in (
      ('rollout_tokens', 1),
      ('rollout_new_tokens', 1),
      ('rollout_batch_size', 1),
      ('head_tokens', 0),
      ('prompt_tokens', 1),
      ('seed', 0),
    ):
      checks.at_least(field, getattr(self, field), least)
    checks.one_of('loss', self.loss, distill.LOSSES)
    distill.losses_at(**self.strengths)
    student.check_layers(self)
    for name in phases.SETS:
      acceptance.Config(**self.acceptance(name, ('ngram',)))

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    return cls(
      size=training.SizeConfig(**fields.pop('size')),
      fit=training.FitConfig(**fields.pop('fit')),
      measure=MeasureConfig(**fields.pop('measure')),
      **fields,
    )

  def files(self, field):
    """The paths in a field."""
    return tuple(getattr(self, field).split(','))

  def acceptance(self, name, drafts):
    """The fields of the acceptance experiment on one of SETS."""
    fields = dataclasses.asdict(self.measure)
    most = {
      phases.HELD_OUT: fields.pop('prompts'),
      phases.REPORT: fields.pop('report_prompts'),
    }
    is_report = name == phases.REPORT
    return {
      **fields,
      'target': self.target,
      'drafts': drafts,
      'prompts': self.files('report_prompts' if is_report else 'prompts'),
      'side': 'all' if is_report else 'held_out',
      'held_out': self.held_out,
      'max_prompts': most[name],
      'seed': self.seed,
      'dtype': self.dtype,
    }


def run(config, workdir):
  """Runs all phases, or the rest of them; see configs/distill_smollm2.py.

  Args:
    config: of configs/distill_smollm2.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, a file or a model is of no use, or
      the training went wrong.
  """
  config = Config.of(config)
  asked = phases.gather(config)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.target}'):
    target = load.load(config.target, setup.dtype_of(config.dtype))
    vocabulary = setup.vocabulary_of(target)
    draft = student.body(config, target)
  size = min(vocabulary.size, draft.config.vocab_size)
  checks.require(
    'head_tokens', config.head_tokens, config.head_tokens <= size,
    f'at most the vocabulary of {size}',
  )  # fmt: skip
  ids = {
    name: [prompts_lib.encode(vocabulary, prompt) for prompt in found]
    for name, found in asked.items()
  }
  context = min(target.config.max_length, draft.config.max_length)
  for name, found in ids.items():
    is_report = name == phases.REPORT
    most = 0 if is_report else config.rollout_new_tokens
    most = max(most, config.measure.max_new_tokens)
    setup.check_lengths(found, most, context)
  workdir, rows = metrics.resume(workdir, dataclasses.asdict(config))
  if not rows:
    sizes = {name: len(found) for name, found in ids.items()}
    metrics.append(workdir, {'prompts': sizes})
  seconds = {}

  @contextlib.contextmanager
  def phase(name):
    console.print(name)
    begin = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - begin

  with phase('rollouts'):
    manifest = phases.collect(config, workdir, target, ids, console)
  with phase('distilling'):
    learnt = phases.fit(config, workdir, target, draft, console)
  with phase('measuring'):
    phases.measure(config, workdir)
  with phase('what limits it'):
    limits = phases.find_limits(config, workdir, target, learnt)
  exported = phases.export_draft(workdir, learnt.distilled)
  summary = summary_lib.summarize(workdir, limits)
  summary |= {
    'rollouts': {name: manifest[name] for name in ('temperature', 'tokens')},
    'export': str(exported),
    # Of the whole run, if it was not interrupted.
    'seconds': None if rows else seconds,
  }
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  summary_lib.report(console, summary)
  console.print(f'\nthe draft: {exported}\n{workdir / "summary.json"}')
  return summary
