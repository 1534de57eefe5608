"""Shared noise: the output is the autoregressive loop's, token for token."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from numpy.testing import assert_array_equal

from specdec import rng, sampling, simulation
from specdec.base import Proposal, UsageError, Weights
from specdec.decode import autoregressive, speculative
from specdec.drafters import model, ngram
from specdec.verify import coupled, token

P = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
Q = np.array([0.38, 0.25, 0.2, 0.1, 0.07])


def run_races(num, p=P, q=Q):
  """Drafts of coupled.draw, and the verdicts on them."""

  @jax.jit
  def run(p, q):
    def row(key):
      drafts = coupled.draw(key, 7, 0, q)[None]
      proposal = Proposal(drafts, q[None], jnp.int32(1))
      verdict = coupled.verify(key, 7, proposal, jnp.stack([p, p]))
      first = jnp.where(verdict.num_accepted > 0, drafts[0], verdict.next_token)
      return drafts[0], first

    return jax.vmap(row)(rng.sequence_keys(3, num))

  return run(jnp.float32(p), jnp.float32(q))


def test_draft_and_sample_have_the_law_of_two_exponential_races():
  # 400,000 races; p-value above 0.01 for the joint law, and the probability of
  # a match within 3 standard errors of the closed form.
  num = 400_000
  drafts, samples = run_races(num)
  counts = np.zeros((5, 5))
  np.add.at(counts, (np.asarray(drafts), np.asarray(samples)), 1)
  joint = np.stack(
    [Q[x] * np.asarray(coupled.sample_law(P, Q, x)) for x in range(5)]
  )
  assert simulation.p_value(counts, joint) > 0.01
  match = sum(1 / np.maximum(P / P[i], Q / Q[i]).sum() for i in range(5))
  error = np.sqrt(match * (1 - match) / num)
  assert abs(np.trace(counts) / num - match) < 3 * error
  # The control: independent draws do not have this law.
  assert simulation.p_value(counts, np.outer(Q, P)) < 1e-6


@functools.cache
def decoder(gamma, name):
  target = tiny.transformer()
  if name == 'model':
    drafter = model.build(target, gamma, shares_noise=True)
  else:
    drafter = ngram.build(gamma, max_match=3, min_match=1)
  return speculative.build(target, tiny.ragged(drafter), coupled.RULE)


@functools.cache
def plain():
  return autoregressive.build(tiny.transformer(), sampling.race)


@pytest.mark.parametrize('name', ('model', 'ngram'))
@pytest.mark.parametrize('gamma', (1, 8))
def test_output_is_the_autoregressive_loops_at_temperature_1(gamma, name):
  for limits in {1: (1,), 8: (2, 5, 8)}[gamma]:
    asked = tiny.Asked(sampling={'temperature': 1.0}, seed=limits)
    expected = tiny.texts(tiny.run(plain(), tiny.target_weights(), asked))
    state = tiny.run(decoder(gamma, name), tiny.weights(limits), asked)
    assert tiny.texts(state) == expected
    if name == 'model':
      assert np.asarray(state.counters.accepted).sum() > 0


def test_equal_models_that_share_noise_accept_every_draft():
  asked = tiny.Asked(sampling={'temperature': 1.0})
  state = tiny.run(decoder(8, 'model'), tiny.equal_weights(), asked)
  assert_array_equal(state.counters.accepted, state.counters.drafted)


def test_shared_noise_under_another_rule_is_refused():
  drafter = model.build(tiny.transformer(), 2, shares_noise=True)
  with pytest.raises(UsageError, match='shares_noise'):
    speculative.build(tiny.transformer(), drafter, token.RULE)


def test_a_token_of_no_probability_wins_by_a_time_of_zero():
  # 1,000 races; with one uniform a token, 5.8 went to some other token.
  vocab = 49_152
  probs = jnp.full(vocab, 1e-6 / (vocab - 1)).at[0].set(1 - 1e-6)
  winners = jax.lax.map(
    lambda key: sampling.race(key, probs), rng.sequence_keys(0, 1000)
  )
  assert_array_equal(winners, 0)


def test_a_law_of_shared_noise_counts_drafts_that_have_their_own():
  drafter = model.build(tiny.transformer(), 2)
  decoder = speculative.build(
    tiny.transformer(), drafter, coupled.RULE, use_law=True
  )
  weights = Weights(tiny.params(0), tiny.params(0))
  state = decoder.init(
    weights, [[1]], rng.sequence_keys(0, 1), sampling.params(1), 4
  )
  with pytest.raises(UsageError, match='shares_noise=True'):
    jax.eval_shape(decoder.step, weights, state)


@pytest.mark.parametrize(
  'keys, rows, message',
  ((1, 2, r'keys has the shape \(1,\)'), (2, 3, 'temperature has the shape')),
)
def test_keys_or_parameters_of_other_rows_are_a_traceback(keys, rows, message):
  decoder = autoregressive.build(tiny.transformer())
  with pytest.raises(UsageError, match=message):
    decoder.init(
      Weights(tiny.params(0), None),
      [[1], [2]],
      rng.sequence_keys(0, keys),
      sampling.params(rows),
      4,
    )
