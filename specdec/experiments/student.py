"""The draft that is distilled: what it begins as, and how it is compared.

A fresh one, or one cut from a model by its layers; with the whole head, or one
that says the most frequent tokens alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from specdec.base import UsageError
from specdec.experiments import overlap, setup, training
from specdec.models import functional, load, reduced
from specdec.train import distill


class Pair(NamedTuple):
  """Student and teacher over whole rows; see functional.forward."""

  student: Callable  # over params, or over the weights of a reduced.Reduced
  teacher: Callable
  ids: jax.Array | None  # int32 [n], the tokens of a reduced head

  def loss(self, loss, temperature=1.0):
    """The LossFn of the params that are trained; see distill.build."""
    return distill.build(
      self.student, self.teacher, loss, temperature, self.ids
    )

  def overlap(self, params):
    """The overlap.Draft of the student with these params."""
    describe = overlap.of_model if self.ids is None else overlap.of_reduced
    return describe(self.student, params)


def pair(config, target, draft) -> Pair:
  """The two models beside each other.

  Args:
    config: it has the fields `dtype` and `remat`.
    target: Checkpoint.
    draft: Checkpoint.
  """
  dtype = setup.compute_dtype(config.dtype)
  size = min(target.tokenizer.size, target.config.vocab_size)
  teacher = functional.forward(target.config, dtype, size)
  if isinstance(draft.params, reduced.Reduced):
    untied = reduced.untied(draft.config)
    student = functional.forward(untied, dtype, remat=config.remat)
    return Pair(student, teacher, draft.params.ids)
  student = functional.forward(draft.config, dtype, size, remat=config.remat)
  return Pair(student, teacher, None)


def check_layers(config):
  """Refuses layers of no model; of the fields `draft` and `draft_layers`."""
  if config.draft_layers and not config.draft:
    raise UsageError(
      f'draft_layers = {config.draft_layers}: they are cut from `draft`, which'
      " is ''; name a model, such as the target"
    )


def initial(config, target, texts):
  """The draft before the first step, as a Checkpoint."""
  draft = body(config, target)
  if not config.head_tokens:
    return draft
  said = texts.train.tokens[texts.train.mask]
  return with_head(draft, config.head_tokens, said)


def body(config, target):
  """The layers of the draft before the first step, with the whole head.

  Args:
    config: it has the fields `draft`, `target`, `draft_layers`, `size` and
      `seed`, see configs/distill.py.
    target: Checkpoint.

  Returns:
    Checkpoint.

  Raises:
    UsageError: the model that the draft is cut from has no such layer, or
      another vocabulary.
  """
  if not config.draft:
    return training.fresh(
      config.size, target, config.seed, target.config.max_length
    )
  draft = target
  if config.draft != config.target:
    draft = load.load(config.draft)
    setup.check_vocabulary(target, draft)
  if not config.draft_layers:
    return draft
  params, smaller = reduced.cut_layers(
    draft.params, draft.config, config.draft_layers
  )
  return draft._replace(params=params, config=smaller)


def with_head(draft, num, tokens):
  """A draft that says only the most frequent tokens, and those that end.

  Args:
    draft: Checkpoint.
    num: n, how many tokens.
    tokens: int [N], those that are counted.

  Returns:
    Checkpoint, its params a reduced.Reduced.
  """
  size = min(draft.tokenizer.size, draft.config.vocab_size)
  counts = np.bincount(tokens, minlength=size)
  ids = reduced.frequent(counts, num, draft.stop_tokens)
  return draft._replace(
    params=reduced.cut_head(draft.params, draft.config, ids)
  )
