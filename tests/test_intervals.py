"""Intervals over prompts: what they cover, and what pairing removes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

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


@pytest.mark.parametrize('freedom', (1, 2, 3, 4, 7, 30))
@pytest.mark.parametrize('level', (0.5, 0.95, 0.999))
def test_a_quantile_of_student_that_is_not_scipys(level, freedom):
  wanted = stats.t.ppf((1 + level) / 2, freedom)
  assert_allclose(intervals.student_t(level, freedom), wanted, rtol=1e-9)


def test_a_mean_of_three_runs_by_hand():
  # Standard deviation 1, t = 4.3027 at two degrees of freedom.
  found = intervals.mean([1, 2, 3])
  reach = 4.302652729911275 / 3**0.5
  assert_allclose(found, (2, 2 - reach, 2 + reach))
