"""Clocks for device work: warmed up, synchronised, interleaved.

Machines drift. What is to be compared is run in turn, A B C A B C, so that a
slow minute hits all alike, and what is reported is a ratio of medians.
"""

import time
from typing import NamedTuple

import jax
import numpy as np


class Times(NamedTuple):
  """Wall-clock seconds of one function over several runs."""

  median_s: float
  low_s: float  # first quartile
  high_s: float  # third quartile


def interleaved(functions, repeats, progress=lambda: None):
  """Times functions in turn.

  Args:
    functions: {name: function without arguments}, each returning what it has
      to wait for.
    repeats: runs of each, after one that is not counted.
    progress: called after every run.

  Returns:
    {name: Times}.
  """
  for function in functions.values():
    jax.block_until_ready(function())
    progress()
  samples = {name: [] for name in functions}
  for _ in range(repeats):
    for name, function in functions.items():
      begin = time.perf_counter()
      jax.block_until_ready(function())
      samples[name].append(time.perf_counter() - begin)
      progress()
  return {
    name: Times(
      float(np.median(values)), *map(float, np.percentile(values, (25, 75)))
    )
    for name, values in samples.items()
  }
