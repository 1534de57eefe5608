"""Counts and rates of a finished batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec.base import (
  Counters,
  SamplingParams,
  Verdict,
  VerifyRule,
  Weights,
)
from specdec.decode import speculative, stats
from specdec.drafters import ngram
from specdec.models import markov

END = 3


def counters(rounds, drafted_at, accepted_at, committed):
  """Counters of B rows from their counts by position."""
  drafted_at, accepted_at = np.array(drafted_at), np.array(accepted_at)
  return Counters(
    np.array(rounds),
    drafted_at.sum(-1),
    accepted_at.sum(-1),
    np.array(committed),
    drafted_at,
    accepted_at,
    accepted_at.sum(-1) + 0.5,
  )


def test_rates_are_means_of_rows_and_not_quotients_of_sums():
  # The second row's last round has room for one draft only.
  rows = counters([2, 3], [[2, 2], [3, 2]], [[2, 1], [1, 0]], [5, 4])
  total = stats.totals(rows)
  assert total == {
    'rounds': 5,
    'drafted': 9,
    'accepted': 4,
    'committed': 9,
    'block_efficiency': 9 / 5,
    'accept_rate': 4 / 9,
    'accept_rate_by_position': [3 / 5, 1 / 4],
  }
  halves = [Counters(*(leaf[i : i + 1] for leaf in rows)) for i in range(2)]
  assert stats.totals(halves) == total


def test_a_rate_without_drafts_is_a_division_by_zero():
  none = np.zeros((1, 0), int)
  total = stats.totals(counters([4], none, none, [4]))
  assert total['accept_rate'] is None
  assert total['accept_rate_by_position'] == []
  assert total['block_efficiency'] == 1
  idle = stats.totals(counters([0], [[0, 0]], [[0, 0]], [0]))
  assert idle['block_efficiency'] is idle['accept_rate'] is None
  assert idle['accept_rate_by_position'] == [None, None]


def accept_all(key, position, proposal, probs):
  del key, position
  bonus = jnp.argmax(probs[proposal.length]).astype(jnp.int32)
  return Verdict(proposal.length, bonus)


@pytest.mark.parametrize(
  ('stops', 'committed', 'reason'), [([END], 3, 'stop'), ([], 6, 'budget')]
)
def test_a_stop_inside_a_block_changes_the_accept_count(
  stops, committed, reason
):
  # The row [1, 2, 3, 4, 5, 0, 1, 2, ...] is a loop, so five drafts are found;
  # all of them are accepted, and the third ends the row.
  target = markov.build(6)
  decoder = speculative.build(
    target, ngram.build(5), VerifyRule(accept_all, None, False)
  )
  weights = Weights(20 * jnp.roll(jnp.eye(6), 1, 1), None)
  keys = jax.random.split(jax.random.key(0), 1)
  ones = jnp.ones(1)
  sampling = SamplingParams(0 * ones, jnp.zeros(1, jnp.int32), ones, 0 * ones)
  prompt = [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0]
  state = decoder.init(weights, [prompt], keys, sampling, 6, stops)
  state = decoder.generate(weights, state)
  total = stats.totals(state.counters)
  assert total['rounds'] == 1
  assert total['drafted'] == total['accepted'] == 5
  assert total['committed'] == committed
  (row,) = stats.outputs(state)
  assert row['tokens'] == [1, 2, 3, 4, 5, 0][:committed]
  assert row['drafted'] == [True, True, True, True, True, False][:committed]
  assert row['finish_reason'] == reason
  assert len(row['logprobs']) == committed
