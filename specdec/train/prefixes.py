"""Who writes the prefixes that a draft is distilled on.

A draft is asked at prefixes of its target's text. It may learn on those of a
fixed text, of the target's own samples (DistillSpec,
https://arxiv.org/abs/2310.08461), of its own samples, where its mistakes are,
or of a mixture (GKD, https://arxiv.org/abs/2306.13649).

So that nothing but the author differs, all continue the same prompts, and what
counts is the continuation alone. Documents are cut into windows of P + N
tokens that follow each other N tokens apart: each token of a document after
its first P is in exactly one continuation.
"""

import dataclasses
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from specdec.base import Params, UsageError, Weights
from specdec.data import packing
from specdec.decode.decoder import Decoder
from specdec.train import rollouts

TEXT, TEACHER, STUDENT = AUTHORS = ('text', 'teacher', 'student')
# How far the shares of a mixture may be from 1 together.
_ROUNDING = 1e-6

Author = Callable[[int, int, packing.Batch, Params | None], packing.Batch]
# (phase, place of the first window in the phase's pool, windows, the student's
#  params) -> as many windows with the author's continuations. The params are
# None when the phase has begun: what they wrote must be there.


@dataclasses.dataclass(frozen=True)
class WritingConfig:
  """How a model continues prompts.

  Attributes:
    new_tokens: N, the budget of each.
    temperature: 0 is greedy.
    batch_size: rows decoded together.
    seed: of every draw.
  """

  new_tokens: int
  temperature: float
  batch_size: int
  seed: int


class Writer(NamedTuple):
  """A model that decodes."""

  decoder: Decoder
  weights: Callable[[Params], Params]
  # the params that are trained -> those that the decoder takes
  stops: tuple[int, ...]  # token ids that end a continuation


def windows(documents, prompt_tokens, new_tokens) -> packing.Batch:
  """Prompts, and how their documents went on.

  A document with a prompt of its own is continued from there, with as much of
  the prompt as a window holds.

  Args:
    documents: packing.Rows.
    prompt_tokens: P, at least 1.
    new_tokens: N, at least 1.

  Returns:
    packing.Batch of R rows of P + N tokens. A row's mask is on its
    continuation, which begins after at most P tokens.

  Raises:
    UsageError: no document is long enough.
  """
  rows = []
  for document in documents:
    first = int(np.argmax(document.mask)) or prompt_tokens
    for start in range(first, len(document.tokens), new_tokens):
      begin = max(start - prompt_tokens, 0)
      tokens = document.tokens[begin : start + new_tokens]
      rows.append(packing.Row(tokens, np.arange(tokens.size) >= start - begin))
  if not rows:
    raise UsageError(
      f'prompt_tokens = {prompt_tokens}: no document is longer; give fewer'
    )
  return packing.pad(rows, prompt_tokens + new_tokens - 1)


def check_shares(shares):
  """Refuses what is no mixture of authors.

  Args:
    shares: {author: share}.

  Raises:
    UsageError: an author is unknown, or the shares are not a distribution.
  """
  good = set(shares) <= {*AUTHORS} and all(x >= 0 for x in shares.values())
  if not good or abs(sum(shares.values()) - 1) > _ROUNDING:
    raise UsageError(
      f'mixture = {shares}: give {", ".join(AUTHORS)} shares of at least 0'
      ' that add up to 1'
    )


def blocks(shares, rows):
  """Which rows of a pool are whose: exact counts, up to one row.

  Args:
    shares: {author: share}, see `check_shares`.
    rows: of the pool.

  Returns:
    {author: slice} of those that have a row, which cover the pool.
  """
  ends = np.cumsum([shares.get(name, 0) for name in AUTHORS]) * rows
  ends = [0, *np.rint(ends).astype(int).tolist()]
  return {
    name: slice(*span)
    for name, span in zip(AUTHORS, itertools.pairwise(ends), strict=True)
    if span[0] < span[1]
  }


def text() -> Author:
  """The documents themselves."""
  return lambda phase, first, windows, params: windows


def teacher(folder, config, writer, params, console=None) -> Author:
  """A model that stays as it is.

  Args:
    folder: of its rollouts, a folder a phase.
    config: WritingConfig.
    writer: Writer.
    params: its params.
    console: of the progress bar.
  """
  name = functools.cache(lambda: f'teacher {digest(params)}')

  def write(phase, first, windows, _):
    return _written(
      folder, name(), config, writer, params, phase, first, windows, console
    )

  return write


def student(folder, config, writer, console=None) -> Author:
  """The model that is trained, as it is when a phase begins.

  Args:
    folder: of its rollouts, a folder a phase.
    config: WritingConfig.
    writer: Writer.
    console: of the progress bar.
  """

  def write(phase, first, windows, params):
    if params is None:
      return _read(_place(folder, phase), windows)
    name = f'student {digest(params)}'
    return _written(
      folder, name, config, writer, params, phase, first, windows, console
    )

  return write


def _written(
  folder, name, config, writer, params, phase, first, windows, console
):
  """Writes what a phase's folder lacks, and reads it."""
  place = _place(folder, phase)
  # Blocks of one pool, and pools of two phases, have keys of their own.
  seed = np.random.SeedSequence([config.seed, phase, first])
  rollouts.collect(
    place,
    rollouts.RolloutConfig(
      name,
      config.temperature,
      config.new_tokens,
      int(seed.generate_state(1)[0] >> 1),
    ),
    writer.decoder,
    Weights(writer.weights(params), None),
    [
      tokens[: np.argmax(mask)].tolist()
      for tokens, mask in zip(*windows, strict=True)
    ],
    config.batch_size,
    writer.stops,
    console,
    windows.tokens.shape[1],
  )
  return _read(place, windows)


def _read(folder, windows):
  """A pool's block that is whole, or one line why it is not."""
  try:
    rows = rollouts.read(folder)
  except UsageError as error:
    raise _lost(folder) from error
  if len(rows) != len(windows.tokens):
    raise _lost(folder)
  return packing.pad(rows, windows.tokens.shape[1] - 1)


def _place(folder, phase):
  return pathlib.Path(folder) / f'{phase:06d}'


def _lost(folder):
  return UsageError(
    f'{folder}: these rollouts are lost or broken, and the weights that wrote'
    ' them are gone; bring the folder back, or begin again in another workdir'
  )


def digest(params):
  """A text that names weights, whatever their shapes."""
  state = hashlib.blake2b(digest_size=8)
  for leaf in jax.tree.leaves(params):
    state.update(np.ascontiguousarray(jax.device_get(leaf)).view(np.uint8))
  return state.hexdigest()
