"""Sources of prefixes, from a config's words to the pools of a distillation."""

import dataclasses
import pathlib

import jax

from specdec import sampling
from specdec.base import UsageError
from specdec.decode import autoregressive
from specdec.experiments import checks
from specdec.models import functional, reduced
from specdec.train import on_policy, prefixes

MIXTURE = 'mixture'
SOURCES = (*prefixes.AUTHORS, MIXTURE)
ROLLOUTS = 'rollouts'  # the folder inside a workdir


@dataclasses.dataclass(frozen=True)
class SourceConfig:
  """What is continued, how far, and by whom.

  Attributes:
    prompt_tokens: P, of a document, before each continuation.
    new_tokens: N, most tokens of a continuation.
    refresh_steps: steps that are trained on one pool.
    pool_rows: continuations of a pool; 0 is one for each row of its steps.
    mixture: {author: share}, for the source `mixture`.
    temperature: at which models write; 0 is greedy.
    batch_size: continuations that are written together.
  """

  prompt_tokens: int
  new_tokens: int
  refresh_steps: int
  pool_rows: int
  mixture: dict
  temperature: float
  batch_size: int

  def __post_init__(self):
    for field, least in (
      ('prompt_tokens', 1),
      ('new_tokens', 1),
      ('refresh_steps', 1),
      ('pool_rows', 0),
      ('batch_size', 1),
    ):
      checks.at_least(field, getattr(self, field), least)
    sampling.params(1, self.temperature)
    prefixes.check_shares(self.mixture)

  @property
  def row_tokens(self):
    """Tokens of prompt and continuation."""
    return self.prompt_tokens + self.new_tokens

  def shares(self, source):
    """The share of each author in a source."""
    return self.mixture if source == MIXTURE else {source: 1.0}

  def writing(self, seed):
    """The WritingConfig."""
    return prefixes.WritingConfig(
      self.new_tokens, self.temperature, self.batch_size, seed
    )

  def pool(self, batch_size, seed):
    """The PoolConfig of steps of `batch_size` rows."""
    rows = self.pool_rows or self.refresh_steps * batch_size
    return on_policy.PoolConfig(rows, self.refresh_steps, batch_size, seed)

  def check_context(self, *configs):
    """Refuses windows that a model, by its ModelConfig, cannot hold."""
    context = min(config.max_length for config in configs)
    if self.row_tokens > context:
      raise UsageError(
        f'new_tokens = {self.new_tokens}: with prompt_tokens ='
        f" {self.prompt_tokens} they exceed the models' context of {context}"
        ' tokens; give fewer'
      )


def writer(checkpoint, dtype, vocab_size, stops) -> prefixes.Writer:
  """A checkpoint's model as one that writes.

  Args:
    checkpoint: Checkpoint. Of a reduced.Reduced one the params that are
      trained are its `weights`.
    dtype: in which it decodes.
    vocab_size: ids that are real.
    stops: token ids that end a continuation.
  """
  is_reduced = isinstance(checkpoint.params, reduced.Reduced)
  kind = reduced if is_reduced else functional
  model = kind.build(checkpoint.config, dtype, vocab_size)

  def weights(params):
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    if is_reduced:
      return checkpoint.params._replace(weights=params)
    return params

  return prefixes.Writer(autoregressive.build(model), weights, tuple(stops))


def authors(folder, config, teacher, params, student, console=None):
  """Every author, for on_policy.Pools.

  Args:
    folder: of all rollouts.
    config: prefixes.WritingConfig.
    teacher: prefixes.Writer.
    params: the teacher's.
    student: prefixes.Writer.
    console: of the progress bars.

  Returns:
    {author: prefixes.Author}.
  """
  folder = pathlib.Path(folder)
  return {
    prefixes.TEXT: prefixes.text(),
    prefixes.TEACHER: prefixes.teacher(
      folder / prefixes.TEACHER, config, teacher, params, console
    ),
    prefixes.STUDENT: prefixes.student(
      folder / prefixes.STUDENT, config, student, console
    ),
  }
