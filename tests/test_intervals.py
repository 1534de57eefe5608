"""Intervals over prompts: what they cover, and what pairing removes."""

import numpy as np
from numpy.testing import assert_allclose

from specdec.experiments import intervals


def test_interval_covers_the_truth_in_95_of_100_samples():
  # 200 samples of 40 prompts; 95 % of them, within 3 standard errors.
  draws = np.random.default_rng(0)
  covered = 0
  for _ in range(200):
    rounds = draws.integers(20, 60, 40)
    tokens = rounds * (1 + draws.beta(4, 2, 40))
    interval = intervals.ratio(tokens, rounds)
    covered += interval.low <= 1 + 4 / 6 <= interval.high
  assert abs(covered / 200 - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 200)


def test_value_is_the_ratio_of_sums_and_not_the_mean_of_ratios():
  interval = intervals.ratio([10, 1], [1, 10])
  assert_allclose(interval.value, 1)
  assert interval.low <= 1 <= interval.high


def test_pairing_cancels_how_hard_a_prompt_is():
  draws = np.random.default_rng(1)
  wholes = np.full(30, 50)
  hard = draws.uniform(0, 3, 30)
  first = (wholes * (1.1 + hard), wholes)
  second = (wholes * (1.0 + hard), wholes)
  paired = intervals.ratio_difference(first, second)
  assert_allclose([paired.value, paired.low, paired.high], 0.1)
  # Without pairing the same difference is lost in the spread of prompts.
  alone = intervals.ratio(*second)
  assert alone.high - alone.low > 0.3


def test_a_prompt_without_rounds_is_a_division_by_zero():
  interval = intervals.ratio([4, 0], [2, 0])
  assert_allclose(interval, 2)
