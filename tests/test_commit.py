"""Where a block ends: the first of stop token and budget."""

import jax.numpy as jnp
import pytest

from specdec.base import BUDGET, RUNNING, STOP
from specdec.decode import commit

END = 99
BLOCK = [10, 11, END, 20, 21, 22]


@pytest.mark.parametrize(
  'count, budget, stops, emitted, reason',
  (
    (6, 5, [END], 3, STOP),  # the stop stands inside the block
    (6, 9, [END, 20], 3, STOP),  # the first of several stops
    (6, 9, [20, 11], 2, STOP),  # whatever their order
    (6, 9, [-1], 6, RUNNING),
    (6, 6, [-1], 6, BUDGET),
    (6, 4, [-1], 4, BUDGET),
    (6, 3, [END], 3, STOP),  # both at one token: stop
    (6, 2, [END], 2, BUDGET),  # the budget ends first
    (2, 9, [END], 2, RUNNING),  # a stop beyond the valid tokens
    (1, 1, [10], 1, STOP),
    (6, 0, [10], 0, BUDGET),
    (6, 9, [22], 6, STOP),  # the bonus is a stop
  ),
)
def test_first_of_stop_and_budget_ends_the_row(
  count, budget, stops, emitted, reason
):
  cut = commit.cut(
    jnp.array([BLOCK]),
    jnp.array([count]),
    jnp.array([budget]),
    jnp.array([stops]),
  )
  assert (int(cut[0][0]), int(cut[1][0])) == (emitted, reason)
