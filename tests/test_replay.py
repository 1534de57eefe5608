"""Replayed rounds beside real ones."""

import jax
import numpy as np
import pytest
import tiny
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import Weights
from specdec.data import packing
from specdec.decode import autoregressive, speculative, stats
from specdec.drafters import model, ngram
from specdec.experiments import replay
from specdec.train import overlap
from specdec.verify import token

VOCAB, GAMMA, BUDGET = 6, 3, 12
PROMPTS = [[1, 2, 3], [4, 1], [2, 2, 5, 1, 0, 3, 2, 2, 5, 1], [0]]
MAX_LEN = 32


def decode(decoder, weights, prompts, temperature, seed=0, stops=()):
  """The final state."""
  state = decoder.init(
    weights,
    prompts,
    rng.sequence_keys(seed, len(prompts)),
    sampling.params(len(prompts), temperature),
    BUDGET,
    stops,
    MAX_LEN,
  )
  return decoder.generate(weights, state)


def rows_of(state, prompts):
  """Prompts and replies, a list of packing.Row."""
  return [
    packing.Row(
      np.array([*prompt, *output['tokens']], np.int32),
      np.repeat([False, True], [len(prompt), len(output['tokens'])]),
    )
    for prompt, output in zip(prompts, stats.outputs(state), strict=True)
  ]


@pytest.fixture(scope='module')
def pair():
  chain, target, draft = tiny.markov_pair(VOCAB)
  compare = overlap.build(overlap.of_model(chain), overlap.of_model(chain))
  return chain, Weights(target, draft), replay.model_reader(compare, 4)


def play(texts, gamma, trials=1, budget=BUDGET):
  return replay.run(texts, budget, gamma, trials)


@pytest.mark.parametrize('stops', ((), (3,)))
@pytest.mark.parametrize('kind', ('model', 'ngram'))
def test_greedy_rounds_are_replayed_to_the_call(pair, kind, stops):
  chain, weights, read = pair
  if kind == 'ngram':
    read = replay.point_reader(ngram.build(4, 3, 1), BUDGET)
    weights = weights._replace(draft=None)
  plain = decode(
    autoregressive.build(chain), weights, PROMPTS, 0.0, stops=stops
  )
  rows = rows_of(plain, PROMPTS)
  texts = read(weights, rows, sampling.params(4, 0.0), 4, MAX_LEN)
  for gamma in (0, 1, 2, 4):
    drafter = (
      ngram.build(gamma, 3, 1) if kind == 'ngram' else model.build(chain, gamma)
    )
    decoder = speculative.build(chain, drafter, token.RULE)
    state = decode(decoder, weights, PROMPTS, 0.0, stops=stops)
    counters = jax.device_get(state.counters)
    found = play(texts, gamma)
    assert_array_equal(found.rounds, counters.rounds)
    assert_array_equal(found.drafted_at, counters.drafted_at.sum(0))
    assert found.calls.sum() == state.calls.sum()
    if gamma < 4:
      continue
    # A loop that is compiled for 1, 3 and 5 tokens calls the next longer one.
    assert found.calls[0] == state.calls[1]
    assert found.calls[1:3].sum() == state.calls[3]
    assert found.calls[3:].sum() == state.calls[5]


def test_sampled_rounds_are_as_many_as_replays_expect(pair):
  """The two loops draw their texts apart."""
  chain, weights, read = pair
  prompts = [[1, 2, 3]] * 1_000
  plain = decode(autoregressive.build(chain), weights, prompts, 1.0, seed=1)
  rows = rows_of(plain, prompts)
  texts = read(weights, rows, sampling.params(4, 1.0), GAMMA, MAX_LEN)
  played = play(texts, GAMMA, trials=16)
  drafter = model.build(chain, GAMMA)
  decoder = speculative.build(chain, drafter, token.RULE)
  counters = decode(decoder, weights, prompts, 1.0).counters
  rounds = np.asarray(counters.rounds)
  error = np.hypot(rounds.std(), played.rounds.std()) / np.sqrt(len(prompts))
  assert rounds.std() > 0.5
  assert abs(rounds.mean() - played.rounds.mean()) < 4 * error
  rates = counters.accepted_at.sum(0) / counters.drafted_at.sum(0)
  assert_allclose(played.accepted_at / played.drafted_at, rates, atol=0.03)


def test_a_batch_goes_on_until_its_last_row_and_feeds_its_longest():
  kept = np.ones((6, 2))
  some = replay.Text(kept, np.full(6, 2))
  none = replay.Text(kept[:4], np.zeros(4, int))
  found = replay.run([some, none], 6, 2, 8)
  # Two rounds of three tokens beside four of one.
  assert_array_equal(found.rounds, (2, 4))
  assert_array_equal(found.calls, (2, 0, 2))
  assert_array_equal(found.drafted_at, (2, 2))
  # The budget of 5 leaves the second round 2 tokens, and so one draft.
  shorter = replay.Text(kept[:5], np.full(5, 2))
  assert_array_equal(replay.run([shorter], 5, 2, 8).calls, (0, 1, 1))


def test_coins_are_the_chances_of_the_drafts():
  chances = np.array([[0.5, 0.25]] * 40)
  found = replay.run([replay.Text(chances, np.full(40, 2))], 60, 2, 4_000)
  accepted = found.accepted_at / found.drafted_at
  assert_allclose(accepted, (0.5, 0.125), atol=0.01)
