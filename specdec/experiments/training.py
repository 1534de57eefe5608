"""From a config's words to a trained model: texts, sizes, steps.

A phase of training has a folder of its own: metrics.jsonl, checkpoints and, at
its end, `model`, which the name orbax:FOLDER/model loads. A phase that was cut
off goes on from its newest checkpoint, and one that is done is read.
"""

import dataclasses
import json
import pathlib
from typing import NamedTuple

import jax
import numpy as np

from specdec.base import UsageError
from specdec.data import bpe, corpus, packing
from specdec.experiments import checks, learner
from specdec.models import functional, tokenizer
from specdec.models.config import ModelConfig
from specdec.models.weights import Checkpoint
from specdec.train import loop, optimiser

MODEL = learner.MODEL


@dataclasses.dataclass(frozen=True)
class TextConfig:
  """What is read, and how it is cut.

  Attributes:
    source: see corpus.read.
    fields: of JSON Lines, see corpus.read.
    held_out: fraction of the documents.
    max_documents: most documents to train on, evenly over them; 0 is all.
    row_tokens: T, labels in a row.
    vocab_size: of the vocabulary that is learnt, where none is given.
  """

  source: str
  fields: tuple[str, ...]
  held_out: float
  max_documents: int
  row_tokens: int
  vocab_size: int = bpe.SMALLEST

  def __post_init__(self):
    checks.require(
      'held_out', self.held_out, 0 < self.held_out < 1, 'in (0, 1)'
    )
    checks.at_least('max_documents', self.max_documents, 0)
    checks.at_least('vocab_size', self.vocab_size, bpe.SMALLEST)
    checks.at_least('row_tokens', self.row_tokens, 2)


@dataclasses.dataclass(frozen=True)
class SizeConfig:
  """A transformer's sizes; its embedding is also its head.

  Attributes:
    layers: L.
    width: D.
    hidden: inner width of the MLP.
    heads: H; they share the width.
  """

  layers: int
  width: int
  hidden: int
  heads: int

  def __post_init__(self):
    for field in ('layers', 'width', 'hidden', 'heads'):
      checks.at_least(field, getattr(self, field), 1)
    checks.require(
      'width',
      self.width,
      self.width % (2 * self.heads) == 0,
      f'a multiple of twice the heads = {self.heads}',
    )

  def model(self, vocab_size, max_length):
    """The ModelConfig of these sizes."""
    return ModelConfig(
      vocab_size,
      self.layers,
      self.width,
      self.hidden,
      self.heads,
      self.heads,
      self.width // self.heads,
      max_length,
      tie_embeddings=True,
    )


@dataclasses.dataclass(frozen=True)
class FitConfig:
  """How long a phase trains, and how fast.

  Attributes:
    steps: of the phase.
    batch_size: B, rows of a step.
    peak_rate: the greatest learning rate.
    warmup_steps: steps in which it rises.
    checkpoint_every: steps between checkpoints, before each of which the
      held-out loss is measured.
    held_out_rows: rows that it is measured on.
    accumulation: parts of a batch, to save memory.
    weight_decay: see optimiser.OptimiserConfig.
  """

  steps: int
  batch_size: int
  peak_rate: float
  warmup_steps: int
  checkpoint_every: int
  held_out_rows: int
  accumulation: int = 1
  weight_decay: float = 0.1

  def __post_init__(self):
    checks.at_least('batch_size', self.batch_size, 1)
    checks.at_least('held_out_rows', self.held_out_rows, 1)
    checks.at_least('accumulation', self.accumulation, 1)
    checks.require(
      'accumulation',
      self.accumulation,
      self.batch_size % self.accumulation == 0,
      f'a divisor of batch_size = {self.batch_size}',
    )
    self.loop, self.optimiser  # noqa: B018, they refuse what is wrong

  @property
  def loop(self):
    """The LoopConfig."""
    return loop.LoopConfig(self.steps, self.checkpoint_every)

  @property
  def optimiser(self):
    """The OptimiserConfig."""
    return optimiser.OptimiserConfig(
      self.steps,
      self.peak_rate,
      self.warmup_steps,
      weight_decay=self.weight_decay,
    )


class Texts(NamedTuple):
  """What is trained on, and what is not."""

  tokenizer: tokenizer.Tokenizer
  documents: list[packing.Row]  # to train on
  train: packing.Batch  # the same, all rows
  held_out: list[packing.Row]  # documents


def read(config: TextConfig, vocabulary=None) -> Texts:
  """Reads a corpus.

  Args:
    config: TextConfig.
    vocabulary: models.tokenizer.Tokenizer; None learns one from the documents
      to train on.

  Raises:
    UsageError: the corpus or a side of it is empty, or the tokenizer has no
      token that ends a text.
  """
  found = corpus.read(config.source, config.fields).documents
  split = corpus.split(found, config.held_out)
  most = min(config.max_documents or len(split.train), len(split.train))
  train = [split.train[i * len(split.train) // most] for i in range(most)]
  if vocabulary is None:
    vocabulary = bpe.train(train, config.vocab_size)
  if not vocabulary.stop_tokens:
    raise UsageError(
      "the model's tokenizer names no token that ends a text; choose a model"
      ' whose tokenizer has one'
    )
  end = vocabulary.stop_tokens[0]
  documents = packing.encode(vocabulary, train, end)
  return Texts(
    vocabulary,
    documents,
    packing.pack(documents, config.row_tokens, end, seed=0),
    packing.encode(vocabulary, split.held_out, end),
  )


def windows(documents, length):
  """A row out of the middle of each document.

  Args:
    documents: Rows.
    length: T; a row has T+1 tokens. A shorter document is padded.

  Returns:
    packing.Batch with a row a document, in their order.
  """
  rows = []
  for document in documents:
    start = max(len(document.tokens) - (length + 1), 0) // 2
    rows.append(packing.Row(*(x[start : start + length + 1] for x in document)))
  return packing.pad(rows, length)


def fresh(sizes, texts, seed, max_length):
  """A model that knows nothing yet.

  Args:
    sizes: SizeConfig.
    texts: Texts, or a Checkpoint, whose `tokenizer` it shares.
    seed: of its weights.
    max_length: tokens of its context.

  Returns:
    Checkpoint.
  """
  config = sizes.model(texts.tokenizer.size, max_length)
  params = functional.init(config, jax.random.key(seed))
  return Checkpoint(
    'fresh', config, params, texts.tokenizer, texts.tokenizer.stop_tokens
  )


def train(folder, config, model, loss_fn, texts, seed, fixed=(), console=None):
  """Runs a phase on a text, or the rest of it, or reads what it made.

  Args:
    folder: the phase's; made when absent.
    config: FitConfig.
    model: see learner.fit.
    loss_fn: LossFn of the params that are trained.
    texts: Texts.
    seed: see learner.fit.
    fixed: passed on to the loss.
    console: of the progress bar.

  Returns:
    Checkpoint, as store.load gives it.

  Raises:
    UsageError: see loop.run.
  """
  return learner.fit(
    folder,
    learner.build(config, loss_fn, validation_batches(config, texts), fixed),
    model,
    packing.Batches(texts.train, config.batch_size, seed),
    seed,
    fixed,
    console,
  )


def summary(folder, texts):
  """Figures of a phase that is done, from its metrics.jsonl."""
  lines = (pathlib.Path(folder) / 'metrics.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  speeds = [row['tokens_per_s'] for row in rows if row['tokens_per_s']]
  return {
    'steps': rows[-1]['step'],
    'tokens': sum(row['tokens'] for row in rows),
    'train_tokens': int(texts.train.mask[:, 1:].sum()),
    'held_out_documents': len(texts.held_out),
    'held_out_loss': rows[-1]['validation'],
    'tokens_per_s': float(np.median(speeds)) if speeds else None,
  }


def validation_batches(config, texts):
  """Batches of held-out rows, evenly over all of them."""
  length = texts.train.tokens.shape[1] - 1
  end = texts.tokenizer.stop_tokens[0]
  rows = packing.pack(texts.held_out, length, end, seed=0)
  total = len(rows.tokens)
  most = min(config.held_out_rows, total)
  chosen = np.arange(most) * total // most
  rows = packing.Batch(*(x[chosen] for x in rows))
  return list(packing.in_order(rows, config.batch_size))
