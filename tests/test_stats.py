"""Counters to rates: what is divided by what."""

import numpy as np

from specdec.base import Counters
from specdec.decode import stats

# Three drafts a round. Two rounds accept 3 and 1; a third verifies 1 draft.
ROW = Counters(
  rounds=np.array([3]),
  drafted=np.array([7]),
  accepted=np.array([5]),
  committed=np.array([8]),
  drafted_at=np.array([[3, 2, 2]]),
  accepted_at=np.array([[3, 1, 1]]),
)
NONE = Counters(*(np.zeros_like(field) for field in ROW))


def test_rates_divide_by_what_was_verified():
  totals = stats.totals(ROW)
  assert totals['accept_rate'] == 5 / 7
  assert totals['accept_rate_by_position'] == [1, 1 / 2, 1 / 2]


def test_block_efficiency_counts_the_bonus_and_accepted_drafts_do_not():
  # Nothing was truncated: the two means differ by one.
  totals = stats.totals(ROW)
  assert totals['block_efficiency'] == 8 / 3
  mean_accepted = totals['accepted'] / totals['rounds']
  assert abs(totals['block_efficiency'] - mean_accepted - 1) < 1e-12


def test_batches_are_pooled_not_averaged():
  pooled = stats.totals([ROW, NONE, ROW])
  assert pooled['drafted'] == 14
  assert pooled['accept_rate'] == 5 / 7


def test_a_rate_without_a_denominator_is_none():
  totals = stats.totals(NONE)
  assert totals['accept_rate'] is None
  assert totals['block_efficiency'] is None
  assert totals['accept_rate_by_position'] == [None] * 3
  without_slots = NONE._replace(
    drafted_at=np.zeros((1, 0)), accepted_at=np.zeros((1, 0))
  )
  assert stats.totals(without_slots)['accept_rate_by_position'] == []
