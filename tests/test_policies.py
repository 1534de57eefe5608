"""Draft lengths that learn: schedules, refusals, and what each row sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from specdec import theory
from specdec.base import UsageError
from specdec.drafters.policies import (
  confidence,
  cost_aware,
  entropy,
  fixed,
  heuristic,
)

GAMMA = 4
COSTS = cost_aware.Costs((1.0, 1.6, 2.0, 2.3, 2.6), 0.1, 0.05, 0.001)
POLICIES = {
  'fixed': fixed.build(GAMMA),
  'heuristic': heuristic.build(GAMMA),
  'confidence': confidence.build(GAMMA, 0.3),
  'entropy': entropy.build(GAMMA, 0.3, 0.5),
  'cost_aware': cost_aware.build(GAMMA, COSTS),
}
LEARNING = ('heuristic', 'cost_aware')


def limits(policy, history, batch=1):
  """The limit of each round: history is accepted drafts, -1 for no match."""
  state, found = policy.init(batch), []
  limit, update = jax.jit(policy.limit), jax.jit(policy.update)
  for accepted in history:
    found.append(np.asarray(limit(state)))
    accepted = np.broadcast_to(np.int32(accepted), batch)
    drafted = np.where(accepted < 0, 0, found[-1])
    state = update(state, drafted, np.clip(accepted, 0, drafted))
  return np.array([*found, np.asarray(limit(state))])


@pytest.mark.parametrize('policy', POLICIES.values(), ids=POLICIES)
def test_a_row_is_limited_by_what_another_row_did(policy):
  history = np.random.default_rng(0).integers(-1, GAMMA + 1, (60, 5))
  whole = limits(policy, history, 5)
  assert whole.dtype == np.int32
  assert whole.min() >= 0 and whole.max() <= GAMMA
  for row in range(5):
    assert_array_equal(whole[:, row], limits(policy, history[:, row])[:, 0])


def test_the_heuristic_adds_two_and_takes_one():
  history = [4, 1, 0, 0, 0, 1, 3, 2, -1, 4]
  want = [4, 4, 3, 2, 1, 1, 3, 4, 3, 3, 4]
  found = limits(heuristic.build(GAMMA), history)
  assert_array_equal(found[:, 0], want)
  # The first round of transformers has five drafts.
  assert limits(heuristic.build(8), [])[0] == 5


def test_rejections_stop_the_drafts_and_time_brings_them_back():
  found = limits(POLICIES['cost_aware'], [0] * 400)[:, 0]
  tried = np.flatnonzero(found)
  assert found[0] > 0  # a fresh row tries
  assert set(found[tried]) == {1}  # one draft, the cheapest question
  assert tried[-1] > 200  # it never gives up for good
  # A round costs .7 more than one without drafts: 2 % of the time, and what a
  # fresh row spends.
  lost = (0.7 * tried.size) / 401
  assert lost < 0.025, tried


def test_acceptance_makes_drafts_longer_in_few_rounds():
  found = limits(POLICIES['cost_aware'], [GAMMA] * 5)[:, 0]
  assert_array_equal(found, [1, 2, 4, 4, 4, 4])


def test_a_round_without_a_match_counts_as_a_rejection():
  policy = POLICIES['cost_aware']
  assert_array_equal(limits(policy, [4, 4, 4, *[-1] * 99])[2:], 4)


def test_a_machine_on_which_no_draft_pays_drafts():
  dear = cost_aware.Costs((1.0, 3.0, 5.0, 7.0, 9.0), 0.1, 0.05, 0.01)
  assert_array_equal(limits(cost_aware.build(GAMMA, dear), [4] * 9), 0)


def test_drafts_go_on_where_acceptance_ends():
  # The third draft is never accepted; it is tried again now and then.
  flat = cost_aware.Costs((1.0, 1.02, 1.04, 1.06, 1.08), 0.2, 0.0, 0.0)
  found = limits(cost_aware.build(GAMMA, flat), [2] * 80)[20:, 0]
  assert found.min() == 2 and found.max() <= 3
  assert np.mean(found == 2) > 0.85


def test_the_estimates_come_from_what_fades_at_once():
  # After 50 good rounds, 50 bad ones: drafts stop within 30 of them.
  found = limits(POLICIES['cost_aware'], [4] * 50 + [0] * 50)[:, 0]
  stopped = np.flatnonzero(found[51:] == 0)[0]
  assert 1 <= stopped <= 30


@pytest.mark.parametrize(
  'build, field',
  (
    (lambda: fixed.build(-1), 'gamma = -1'),
    (lambda: heuristic.build(-1), 'gamma = -1'),
    (lambda: cost_aware.build(9, COSTS), 'costs.target_s has 5 entries'),
    (lambda: cost_aware.build(4, COSTS, explore=0), 'stopping.explore = 0'),
    (lambda: cost_aware.build(4, COSTS, forgiven=0), 'stopping.forgiven = 0'),
    (
      lambda: cost_aware.build(4, COSTS._replace(draft_s=-1.0)),
      'costs.draft_s = -1.0',
    ),
    (
      lambda: cost_aware.build(1, COSTS._replace(target_s=(0.0, 1.0))),
      'costs.target_s = ',
    ),
  ),
)
def test_a_field_out_of_range_is_named(build, field):
  with pytest.raises(UsageError, match=field):
    build()


# Milliseconds of SmolLM2-135M on two CPU cores: calls of 1, 2, 3, 5 and 9
# tokens, and a draft step; prompt lookup drafts for nothing.
MEASURED_S = np.interp(
  range(1, 10), (1, 2, 3, 5, 9), (0.031, 0.055, 0.068, 0.087, 0.126)
)
ROWS, TOKENS, SPAN = 64, 512, 100
# The acceptance of a draft at each position of a text.
TEXTS = {
  **{str(a): np.full(TOKENS + 9, a) for a in (0.05, 0.3, 0.6, 0.9)},
  'switching': np.where(np.arange(TOKENS + 9) // SPAN % 2 == 0, 0.9, 0.05),
}


def fixed_tokens_per_s(costs):
  """What each fixed gamma reaches on each text, float [9, texts]."""
  tokens = np.array(
    [
      theory.tokens_by_gamma(jnp.full((TOKENS, 8), betas[:TOKENS, None]))
      for betas in TEXTS.values()
    ]
  )
  return 1 / np.mean(costs.round_s(8) / tokens, 1).T


def tokens_per_s(policy, costs):
  """ROWS texts of TOKENS tokens of each of TEXTS; float [texts]."""
  betas = jnp.repeat(jnp.array([*TEXTS.values()]), ROWS, 0)
  round_s = jnp.array(costs.round_s(8))
  slots = jnp.arange(8)[None]
  # A round commits at least one token. Drawing inside of the loop is slow.
  noise = jax.random.uniform(jax.random.key(0), (TOKENS, betas.shape[0], 8))

  def step(carry):
    at, state, position, spent, behind = carry
    alive = position < TOKENS
    limit = policy.limit(state)
    here = jnp.take_along_axis(betas, position[:, None] + slots, 1)
    kept = noise[at] < here
    kept &= slots < limit[:, None]
    accepted = jnp.sum(jnp.cumprod(kept, 1), 1)
    # The last round counts for as much as is left of the text.
    used = jnp.minimum(accepted + 1, TOKENS - position)
    cost = round_s[limit] + jnp.where(limit > 0, costs.catch_up_s * behind, 0)
    return (
      at + 1,
      policy.update(state, limit, accepted),
      position + jnp.where(alive, used, 0),
      spent + jnp.where(alive, cost * used / (accepted + 1), 0),
      jnp.where(limit > 0, 0, behind + 1),
    )

  @jax.jit
  def run():
    rows = betas.shape[0]
    state, zeros = policy.init(rows), jnp.zeros(rows, jnp.int32)
    start = (0, state, zeros, jnp.zeros(rows), zeros)
    return jax.lax.while_loop(
      lambda carry: jnp.any(carry[2] < TOKENS), step, start
    )[3]

  return TOKENS / np.asarray(run()).reshape(-1, ROWS).mean(1)


@pytest.mark.parametrize(
  'draft_s, catch_up_s', ((0.005, 0.0006), (0.0, 0.0)), ids=('model', 'ngram')
)
def test_knowing_the_costs_is_as_good_as_the_best_gamma(draft_s, catch_up_s):
  # 64 texts of 512 tokens of each kind.
  costs = cost_aware.Costs(tuple(MEASURED_S), draft_s, 0.0005, catch_up_s)
  each = fixed_tokens_per_s(costs)
  ours = tokens_per_s(cost_aware.build(8, costs), costs)
  assert (ours >= 0.97 * each.max(0)).all(), ours / each.max(0)
  assert (ours >= 0.97 * each[0]).all(), ours / each[0]
  # It is no feat to be equal to no drafts: some of the texts gain.
  assert (ours / each[0]).max() > 1.15
  # A schedule that knows no cost fails by far.
  blind = tokens_per_s(heuristic.build(8), costs)
  assert (blind / each.max(0)).min() < 0.7
