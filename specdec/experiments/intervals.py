"""Intervals: of a ratio of sums over prompts, and of a mean over runs.

Tokens of one prompt depend on each other, prompts do not: what is resampled is
the prompt (Efron, https://doi.org/10.1214/aos/1176344552). Two ways to decode
the same prompts are compared on the same resamples, so that how hard a prompt
is cancels.

Runs of other seeds are few and independent: their mean has a Student-t
interval (https://doi.org/10.1093/biomet/6.1.1).
"""

import math
from typing import NamedTuple

import numpy as np

RESAMPLES = 4_000


class Interval(NamedTuple):
  """A figure and its interval."""

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
  return _paired(np.subtract, first, second, level, seed)


def ratio_quotient(first, second, level=0.95, seed=0):
  """How many times another ratio one is, on the same prompts.

  Such as a speedup: tokens per second of one way to decode, over another's.

  Args:
    first: (parts [N], wholes [N]).
    second: (parts [N], wholes [N]), of the same prompts in the same order.
    level: of the interval.
    seed: of the resamples.

  Returns:
    Interval of first / second.
  """
  return _paired(np.divide, first, second, level, seed)


def mean(values, level=0.95):
  """The mean of independent runs.

  Args:
    values: [N], one a run, N at least 2. Of paired runs, their differences.
    level: of the interval.

  Returns:
    Interval, Student's: it holds the expectation in a share `level` of cases
    if the values are normal.
  """
  values = np.asarray(values, float)
  assert values.ndim == 1 and values.size > 1, values.shape
  error = values.std(ddof=1) / math.sqrt(values.size)
  reach = student_t(level, values.size - 1) * error
  value = float(values.mean())
  return Interval(value, float(value - reach), float(value + reach))


def student_t(level, freedom):
  """The t for which P(|T| < t) = level.

  With t = sqrt(n) tan(theta) this chance is a finite sum in theta: Abramowitz
  and Stegun, 26.7.3 and 26.7.4.

  Args:
    level: in (0, 1).
    freedom: n, degrees of freedom, at least 1.

  Returns:
    float.
  """
  low, high = 0.0, math.pi / 2
  while low < (middle := (low + high) / 2) < high:
    if _within(middle, freedom) < level:
      low = middle
    else:
      high = middle
  return math.sqrt(freedom) * math.tan(low)


def _within(theta, freedom):
  """P(|T| < sqrt(freedom) tan(theta))."""
  odd = freedom % 2
  power = math.cos(theta) if odd else 1.0
  term, total = 1.0, 0.0
  for k in range(1 + odd, freedom, 2):
    total += term * power
    power *= math.cos(theta) ** 2
    term *= k / (k + 1)
  total *= math.sin(theta)
  return 2 / math.pi * (theta + total) if odd else total


def _paired(compare, first, second, level, seed):
  """The Interval of a function of two ratios, on the same resamples."""
  pairs = [_checked(*first), _checked(*second)]
  chosen = _resamples(pairs[0][0].size, seed)
  values = compare(*(_quotients(*pair, chosen) for pair in pairs))
  value = compare(*(parts.sum() / wholes.sum() for parts, wholes in pairs))
  return _interval(value, values, level)


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
