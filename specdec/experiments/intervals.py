"""Intervals of a ratio of sums, by resampling prompts.

Tokens of one prompt depend on each other, prompts do not: what is resampled is
the prompt (Efron, https://doi.org/10.1214/aos/1176344552). Two ways to decode
the same prompts are compared on the same resamples, so that how hard a prompt
is cancels.
"""

from typing import NamedTuple

import numpy as np

RESAMPLES = 4_000


class Interval(NamedTuple):
  """A figure and its percentile interval."""

  value: float
  low: float
  high: float


def ratio(parts, wholes, level=0.95, seed=0):
  """sum(parts) / sum(wholes).

  Args:
    parts: [N], one a prompt, such as tokens committed.
    wholes: [N], such as rounds; their sum is not 0.
    level: of the interval.
    seed: of the resamples.

  Returns:
    Interval.
  """
  parts, wholes = _checked(parts, wholes)
  chosen = _resamples(parts.size, seed)
  values = _quotients(parts, wholes, chosen)
  return _interval(parts.sum() / wholes.sum(), values, level)


def ratio_difference(first, second, level=0.95, seed=0):
  """How far one ratio is above another on the same prompts.

  Args:
    first: (parts [N], wholes [N]).
    second: (parts [N], wholes [N]), of the same prompts in the same order.
    level: of the interval.
    seed: of the resamples.

  Returns:
    Interval of first - second.
  """
  pairs = [_checked(*first), _checked(*second)]
  chosen = _resamples(pairs[0][0].size, seed)
  values, whole_values = [], []
  for parts, wholes in pairs:
    values.append(_quotients(parts, wholes, chosen))
    whole_values.append(parts.sum() / wholes.sum())
  difference = whole_values[0] - whole_values[1]
  return _interval(difference, values[0] - values[1], level)


def _checked(parts, wholes):
  parts, wholes = np.asarray(parts, float), np.asarray(wholes, float)
  assert parts.shape == wholes.shape and parts.ndim == 1
  return parts, wholes


def _resamples(num, seed):
  """Which prompts each resample holds, int [RESAMPLES, N]."""
  draws = np.random.default_rng(seed)
  return draws.integers(0, num, (RESAMPLES, num))


def _quotients(parts, wholes, chosen):
  """The ratio of each resample; NaN where it has no denominator."""
  with np.errstate(invalid='ignore', divide='ignore'):
    return parts[chosen].sum(-1) / wholes[chosen].sum(-1)


def _interval(value, values, level):
  tail = (1 - level) / 2
  low, high = np.nanquantile(values, (tail, 1 - tail))
  return Interval(float(value), float(low), float(high))
