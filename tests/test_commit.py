"""Where a row ends: stop tokens, budgets, and both at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec.base import BUDGET, RUNNING, STOP, SamplingParams, Weights
from specdec.decode import commit, prefill
from specdec.drafters import ngram
from specdec.models import markov

END = 7
BLOCK = [10, 11, END, 20, 21, 22]


def cut(count, budget, stops=(END,), block=BLOCK):
  """Tokens emitted and the reason, of one row."""
  emitted, reason = commit.cut(
    jnp.array([block]),
    jnp.array([count]),
    jnp.array([budget]),
    jnp.array([list(stops)]),
  )
  return int(emitted[0]), int(reason[0])


@pytest.mark.parametrize(
  ('count', 'budget', 'stops', 'emitted', 'reason'),
  [
    (6, 5, [END], 3, STOP),  # the stop token comes first
    (6, 3, [END], 3, STOP),  # both at the same token
    (6, 2, [END], 2, BUDGET),  # the budget comes first
    (2, 5, [END], 2, RUNNING),  # the stop token is not valid any more
    (2, 2, [END], 2, BUDGET),
    (6, 6, [-1], 6, BUDGET),
    (6, 9, [-1], 6, RUNNING),
    (6, 0, [END], 0, BUDGET),
    (6, 9, [21, END, -1], 3, STOP),  # the earliest of several
    (6, 9, [-1, 22, 21], 5, STOP),
    (6, 9, [10], 1, STOP),
    (1, 1, [10], 1, STOP),
  ],
)
def test_a_row_ends_at_the_wrong_token(count, budget, stops, emitted, reason):
  assert cut(count, budget, stops) == (emitted, reason)


def test_minus_one_in_a_block_is_a_stop_token_of_a_row_without_any():
  # Padding of the stops must not be met by padding of a block.
  assert cut(2, 9, [-1], [3, 4, -1]) == (2, RUNNING)


def state(prompts, budgets, stops, max_len=12):
  """The state before the first round, of a Markov model."""
  target, drafter = markov.build(32), ngram.build(5)
  arrays = prefill.arrays(target, 5, prompts, budgets, stops, max_len)
  batch = len(prompts)
  sampling = SamplingParams(*jnp.zeros((4, batch)))
  weights = Weights(jnp.zeros((32, 32)), None)
  keys = jax.random.split(jax.random.key(0), batch)
  return prefill.state(target, drafter, weights, *arrays, keys, sampling)


def test_a_row_is_written_beyond_its_end():
  # Stop, budget, budget 0, and a row that goes on.
  before = state([[1], [1, 2], [1, 2, 3], [1, 2]], [5, 2, 0, 9], [END])
  block = jnp.array([BLOCK] * 4)
  after, emitted = commit.append(
    before,
    block,
    -jnp.ones(block.shape),
    jnp.ones(block.shape, bool),
    jnp.array([6, 6, 6, 2]),
  )
  assert emitted.tolist() == [3, 2, 0, 2]
  assert after.length.tolist() == [4, 4, 3, 4]
  assert after.finish_reason.tolist() == [STOP, BUDGET, BUDGET, RUNNING]
  rows = [[1, 10, 11, END], [1, 2, 10, 11], [1, 2, 3], [1, 2, 10, 11]]
  padded = [row + [0] * (after.tokens.shape[1] - len(row)) for row in rows]
  assert after.tokens.tolist() == padded
  written = np.asarray(after.drafted).sum(-1)
  assert written.tolist() == [3, 2, 0, 2]
  assert np.asarray(after.logprobs).sum(-1).tolist() == [-3, -2, 0, -2]


def test_a_finished_row_changes():
  block = jnp.array([[10, 11, 12, 13, 14, 15]] * 2)
  arguments = (block, jnp.zeros(block.shape), block < 0, jnp.array([6, 6]))
  first, _ = commit.append(state([[1], [1]], [3, 11], [END]), *arguments)
  second, emitted = commit.append(first, *arguments)
  assert emitted.tolist() == [0, 5]
  for name in ('tokens', 'length', 'finish_reason'):
    before, after = getattr(first, name)[0], getattr(second, name)[0]
    np.testing.assert_array_equal(before, after)


def test_history_is_overwritten_where_the_budget_fills_the_buffer():
  before = state([[1, 2]], 10, [END], max_len=12)._replace(
    length=jnp.array([11])
  )
  block = jnp.array([[10, 11, 12, 13, 14, 15]])
  after, emitted = commit.append(
    before, block, jnp.zeros(block.shape), block < 0, jnp.array([6])
  )
  assert emitted.tolist() == [1]
  assert after.tokens[0, :2].tolist() == [1, 2]
  assert after.tokens[0, 11:].tolist() == [10] + [0] * 6
  assert after.finish_reason.tolist() == [BUDGET]


def test_a_log_probability_is_not_that_of_log_softmax(float64):
  draw = np.random.default_rng(0)
  logits = jnp.array(draw.normal(size=(2, 3, 5)) * 100)
  logits = logits.at[0, 0, 1].set(-jnp.inf)
  tokens = jnp.array([[0, 1, 2], [3, 4, 0]])
  expected = jax.nn.log_softmax(logits)
  for row, column in np.ndindex(2, 3):
    np.testing.assert_allclose(
      commit.token_logprobs(logits, tokens)[row, column],
      expected[row, column, tokens[row, column]],
      atol=1e-12,
    )
