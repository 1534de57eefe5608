"""A decoder run on batches of prompts, with honest clocks."""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from specdec import rng
from specdec.base import Counters
from specdec.decode import stats


class Batch(NamedTuple):
  """Rows that are decoded together; the last may be fillers."""

  start: int  # index of the first row in the run
  ids: list[list[int]]  # B prompts
  budgets: list[int]  # most new tokens of each; a filler's is 0
  count: int  # rows that are no fillers


class Result(NamedTuple):
  """What a decoder made of a batch."""

  outputs: list[dict]  # see stats.outputs
  counters: Counters  # NumPy arrays, B rows
  calls: np.ndarray  # int [G+2], target calls by tokens fed to each row
  prefill_s: float
  decode_s: float


def batches(ids, batch_size, max_new_tokens):
  """Cuts prompts into batches of one size, the last filled up.

  Args:
    ids: prompts, lists of token ids.
    batch_size: B.
    max_new_tokens: budget of every prompt.

  Returns:
    A list of Batch.
  """
  parts = []
  for start in range(0, len(ids), batch_size):
    part = ids[start : start + batch_size]
    missing = batch_size - len(part)
    parts.append(
      Batch(
        start,
        part + part[:1] * missing,
        [max_new_tokens] * len(part) + [0] * missing,
        len(part),
      )
    )
  return parts


def loop(
  decoder, weights, sampling, seed, stops, max_len
) -> Callable[[Batch], Result]:
  """A function that decodes a batch and stops the clock twice.

  Args:
    decoder: Decoder.
    weights: Weights.
    sampling: SamplingParams of B rows.
    seed: int; a row's key follows from it and the row's index in the run.
    stops: stop tokens.
    max_len: room of every row, in tokens; one for all batches, so that they
      share a compilation.
  """

  def run(batch):
    keys = rng.sequence_keys(seed, len(batch.ids), batch.start)
    begin = time.perf_counter()
    state = decoder.init(
      weights, batch.ids, keys, sampling, batch.budgets, stops, max_len
    )
    jax.block_until_ready(state)
    prefilled = time.perf_counter()
    state = decoder.generate(weights, state)
    jax.block_until_ready(state)
    done = time.perf_counter()
    return Result(
      stats.outputs(state)[: batch.count],
      jax.tree.map(np.asarray, state.counters),
      np.asarray(state.calls),
      prefilled - begin,
      done - prefilled,
    )

  return run


def compile_s(run, batch):
  """Seconds that the first run of a loop takes, of a few tokens a row.

  The loop is warm after it.
  """
  begin = time.perf_counter()
  run(batch._replace(budgets=[min(b, 2) for b in batch.budgets]))
  return time.perf_counter() - begin
