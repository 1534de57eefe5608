"""What a round costs: arithmetic under a clock that the test sets."""

import dataclasses

import jax
import pytest
import tiny
from numpy.testing import assert_allclose

from specdec import timing
from specdec.base import UsageError, Weights
from specdec.decode import speculative
from specdec.drafters import model, ngram
from specdec.experiments import calls, costs, drafting, setup
from specdec.verify import token

GAMMA = 2
PLACE = calls.Place(batch=2, length=5, steps=4)
# Seconds of one call or round.
TRUE_S = {
  ('target', 1): 0.030,
  ('target', 2): 0.050,
  ('target', 3): 0.060,
  ('draft',): 0.005,
  ('catch up',): 0.009,
  ('step', 0.0): 0.031,
  ('forwards', 2): 0.070,
  ('round', 2, 0.0): 0.075,
}


def measured(monkeypatch, names=TRUE_S, changes=()):
  """The Measured of functions that take TRUE_S, give or take a fifth."""
  now = [0.0]
  monkeypatch.setattr(timing.time, 'perf_counter', lambda: now[0])
  truth = TRUE_S | dict(changes)

  def program(seconds, steps):
    drift = iter([9.0, 1.0, 0.8, 1.2])  # the first run compiles

    def run():
      now[0] += seconds * steps * next(drift)

    return run

  found = {name: program(truth[name], PLACE.steps) for name in names}
  found['copy',] = program(0.1, 1)
  times = timing.interleaved(found, 3)
  return costs.collect(times, PLACE, 540_000_000)


def test_ratios_of_medians(monkeypatch):
  found = measured(monkeypatch)
  assert_allclose(found.c, 5 / 30)
  assert_allclose([found.v(g) for g in range(3)], [1, 50 / 30, 60 / 30])
  assert_allclose(found.rest_s(GAMMA, 0.0), 0.005)
  assert_allclose(found.overhead(GAMMA, 0.0), 5 / 75)
  assert_allclose(found.target[2], (0.050, 0.045, 0.055))
  # 2**28 bytes were read and as many written in a tenth of a second.
  assert_allclose(found.floor_s, 540e6 / (2 * 2**28 / 0.1))


def test_the_rest_is_linear_between_the_measured_gammas(monkeypatch):
  changes = {
    ('forwards', 4): 0.080,
    ('round', 4, 0.0): 0.095,
    ('step', 1.0): 0.033,
    ('round', 2, 1.0): 0.079,
    ('round', 4, 1.0): 0.099,
  }
  found = measured(monkeypatch, {**TRUE_S, **changes}, changes)
  assert found.gamma == 4 and found.temperatures == (0.0, 1.0)
  rests = [found.rest_s(gamma, 0.0) for gamma in range(6)]
  assert_allclose(rests, (0.001, 0.003, 0.005, 0.010, 0.015, 0.015))
  assert_allclose(found.rest_s(3, 1.0), 0.014)
  assert_allclose(found.overhead(4, 1.0), 19 / 99)
  assert_allclose(found.summary()['rounds'][-1]['rest_ms'], 19.0)


def test_the_costs_that_a_policy_takes(monkeypatch):
  found = measured(monkeypatch).costs()
  assert_allclose(found.target_s, (0.030, 0.050, 0.060))
  assert_allclose(found.round_s(GAMMA), (0.035, 0.060, 0.075))
  assert_allclose(found.catch_up_s, 0.003)


def test_a_call_between_two_compiled_lengths_costs_the_longer(monkeypatch):
  names = [name for name in TRUE_S if name != ('target', 2)]
  found = measured(monkeypatch, names)
  assert_allclose(found.costs().target_s, (0.030, 0.060, 0.060))


def test_a_drafter_without_a_model_costs_nothing_a_draft(monkeypatch):
  names = [name for name in TRUE_S if name not in (('draft',), ('catch up',))]
  found = measured(monkeypatch, names)
  assert found.c == 0 and found.costs().catch_up_s == 0
  assert found.summary()['draft_ms'] is None


def test_a_rest_too_small_to_be_measured_is_a_negative_cost(monkeypatch):
  found = measured(monkeypatch, changes={('round', 2, 0.0): 0.069})
  assert found.rest_s(GAMMA, 0.0) < 0
  assert found.costs().rest_s == 0


@pytest.fixture(scope='module')
def programs():
  """What is timed of a Markov pair."""
  chain, target, draft = tiny.markov_pair(8)
  drafter = model.build(chain, GAMMA)
  return costs.programs(
    (chain, target), (chain, draft), [drafter], PLACE, (0.0,)
  )


def test_everything_that_is_timed_runs_again_and_again(programs):
  assert set(programs) == {*TRUE_S, ('copy',)}
  for name in (('target', 2), ('catch up',), ('round', 2, 0.0)):
    first, second = programs[name](), programs[name]()
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    assert first is not second
    assert all(a.shape == b.shape for a, b in leaves)


@pytest.mark.parametrize('steps', (1, 4))
def test_every_timed_round_drafts_from_the_prompt(steps):
  chain, target, _ = tiny.markov_pair(8)
  place = PLACE._replace(steps=steps)
  for drafter, draft in (
    (ngram.build(GAMMA), None),
    (model.build(chain, GAMMA), target),  # all of its drafts are accepted
  ):
    decoder = speculative.build(chain, drafter, token.RULE)
    rows = place.length + steps * (GAMMA + 1)
    run = calls.rounds(
      decoder, Weights(target, draft), place, rows, temperature=0.0
    )
    for runs in (1, 2):
      state = run()
      rounds = runs * steps
      assert state.calls.tolist() == [0] * (GAMMA + 1) + [rounds]
      assert state.counters.drafted.tolist() == [GAMMA * rounds] * place.batch


def test_a_call_that_nobody_reads_is_dropped_by_the_compiler():
  # The number of calls that the compiled loop makes: each adds one.
  made = []

  def apply(params, tokens, cache):
    jax.debug.callback(lambda: made.append(None))
    return chain.apply(params, tokens, cache)

  chain, target, _ = tiny.markov_pair(8)
  counting = chain._replace(apply=apply)
  place = PLACE._replace(steps=3)
  run = calls.forwards(
    [(counting, target)], [calls.Call(0, 2), calls.Call(0, 1)], place, 20
  )
  jax.block_until_ready(run())
  jax.effects_barrier()
  assert len(made) == 6


def test_lengths_that_say_nothing_of_a_round_are_refused():
  chain, target, _ = tiny.markov_pair(8)
  drafter = ngram.build(4, 3, 1)
  for feeds in ((1, 4), (2, 5)):
    with pytest.raises(UsageError, match=r'must hold 1 and reach gamma \+ 1'):
      costs.programs(
        (chain, target), (None, None), [drafter], PLACE, (0.0,), feeds
      )


def test_a_config_measures_for_the_policy_that_asks_for_it(monkeypatch):
  asked = []

  def measure(*args):
    asked.append(args)
    return measured(monkeypatch)

  monkeypatch.setattr(drafting.costs_lib, 'measure', measure)
  chain, target, _ = tiny.markov_pair(8)
  weights = setup.Weights(target, None)
  config = setup.DecodeConfig('', 'ngram', gamma=GAMMA, batch_size=2)
  drafting.policy_of(config, chain, None, weights)
  assert not asked
  config = dataclasses.replace(config, policy='cost_aware')
  short = chain._replace(max_length=64)
  policy = drafting.policy_of(config, short, None, weights)
  place, feeds = asked[0][3], asked[0][-1]
  assert place.batch == 2
  assert place.length == 64 - 4 * 3  # what four rounds leave of the context
  assert list(feeds) == [1, 2, 3]
  assert policy.pauses
  assert_allclose(policy.limit(policy.init(2)), 1)


@pytest.mark.parametrize(
  'fields, words',
  (
    ({'policy': 'greedy'}, "stopping.policy = 'greedy': it must be one of"),
    ({'policy': 'cost_aware', 'gamma': 0}, 'gamma = 0'),
    ({'policy': 'cost_aware', 'explore': 2.0}, 'stopping.explore = 2.0'),
    ({'policy': 'cost_aware', 'forgiven': -1.0}, 'stopping.forgiven = -1.0'),
    ({'policy': 'confidence', 'threshold': 2.0}, 'stopping.threshold = 2.0'),
  ),
)
def test_a_policy_that_cannot_be_is_refused_without_a_model(fields, words):
  with pytest.raises(UsageError) as error:
    setup.DecodeConfig('none', 'ngram', **fields)
  assert words in str(error.value)
