"""The law of whole texts over several rounds, on Markov pairs.

100,000 texts of six tokens; chi-square with fixed keys, p-value above 0.01.
configs/prove.py does the same with 400,000.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import texts
import tiny
from numpy.testing import assert_array_equal

from specdec import rng, sampling, simulation
from specdec.base import BUDGET, Weights
from specdec.decode import speculative
from specdec.drafters import model
from specdec.verify import block, controls, token

VOCAB, GAMMA, LENGTH, ROWS = 3, 4, 6, 50_000
MODEL, TARGET, DRAFT = tiny.markov_pair(VOCAB, overlap=0.5)


@functools.cache
def decoder(rule):
  drafter = tiny.ragged(model.build(MODEL, GAMMA))
  return speculative.build(MODEL, drafter, rule)


def run(rule, limits, stops=(), weights=(TARGET, DRAFT), **params):
  """The last state of ROWS texts that begin with token 0."""
  target, draft = weights
  limits = jnp.broadcast_to(jnp.int32(limits), (ROWS,))
  weights = Weights(target, (draft, limits))
  state = decoder(rule).init(
    weights,
    np.zeros((ROWS, 1), int).tolist(),
    rng.sequence_keys(7, ROWS),
    sampling.params(ROWS, **params),
    LENGTH,
    stops,
  )
  return decoder(rule).generate(weights, state)


def strings(state, length=LENGTH):
  return np.asarray(state.tokens)[:, 1 : 1 + length]


def p_value_of_texts(rule, limit):
  """Of ROWS texts under the target's own law."""
  counts = texts.count_strings(strings(run(rule, limit)), VOCAB)
  table = np.asarray(jax.nn.softmax(TARGET, -1), np.float64)
  return simulation.p_value(counts, texts.markov_joint(table[0], table, LENGTH))


@pytest.mark.parametrize(
  'rule, limit', ((token.RULE, 3), (token.RULE, 4), (block.RULE, 3))
)
def test_texts_have_the_targets_law_over_several_rounds(rule, limit):
  assert p_value_of_texts(rule, limit) > 0.01


@pytest.mark.parametrize(
  'rule', (controls.CORRECT_FROM_P, controls.BLOCK_BY_POSITION)
)
def test_the_same_test_rejects_a_wrong_residual_and_noise_by_position(rule):
  assert p_value_of_texts(rule, 3) < 1e-6


def test_texts_have_the_transformed_law_in_a_mixed_batch():
  # Nine groups of 5,555 texts of four tokens: three ways to sample, times 0,
  # 1 and 4 drafts; one p-value of nine may be small, so each is above 0.001.
  asked = (
    {'temperature': 1.0, 'top_p': 1.0, 'top_k': 0},
    {'temperature': 0.5, 'top_p': 0.8, 'top_k': 0},
    {'temperature': 1.5, 'top_p': 1.0, 'top_k': 2},
  )
  kind, drafts = np.arange(ROWS) % 3, np.arange(ROWS) // 3 % 3
  state = run(
    token.RULE,
    np.array([0, 1, 4])[drafts],
    **{
      name: np.array([fields[name] for fields in asked])[kind]
      for name in asked[0]
    },
  )
  for i, fields in enumerate(asked):
    table = np.stack([texts.sorted_transform(r, **fields) for r in TARGET])
    law = texts.markov_joint(table[0], table, 4)
    assert (law == 0).any() == (i > 0)  # there is something to stay out of
    for j in range(3):
      counts = texts.count_strings(
        strings(state, 4)[(kind == i) & (drafts == j)], VOCAB
      )
      assert simulation.p_value(counts, law) > 1e-3, f'{fields}, group {j}'
  # All kinds of token took part: accepted drafts and what replaces them.
  accepted = np.asarray(state.drafted)[drafts == 2, 1 : 1 + LENGTH]
  assert 0.1 < accepted.mean() < 0.9


def test_a_row_goes_on_when_its_target_rejects_a_drafted_stop_token():
  # The target alternates 0 and 1; the draft insists on 2, which is the stop.
  target = jnp.log(jnp.eye(3)[jnp.array([1, 0, 0])])
  draft = jnp.log(jnp.eye(3)[jnp.array([2, 2, 2])])
  state = run(token.RULE, 4, stops=(2,), weights=(target, draft))
  assert_array_equal(state.finish_reason, BUDGET)
  assert_array_equal(strings(state), [[1, 0, 1, 0, 1, 0]] * ROWS)
  assert_array_equal(state.counters.accepted, 0)
  # Rounds with room for 4, 4, 3, 2, 1 and no drafts.
  assert_array_equal(state.counters.drafted, 14)


def test_a_draft_that_knows_part_of_the_vocabulary_leaves_the_law_alone():
  # q is zero on token 0 everywhere.
  draft = jax.nn.log_softmax(DRAFT.at[:, 0].set(-jnp.inf), -1)
  state = run(token.RULE, 3, weights=(TARGET, draft))
  counts = texts.count_strings(strings(state), VOCAB)
  table = np.asarray(jax.nn.softmax(TARGET, -1), np.float64)
  law = texts.markov_joint(table[0], table, LENGTH)
  assert simulation.p_value(counts, law) > 0.01


def test_equal_tables_accept_every_draft():
  state = run(token.RULE, 4, weights=(TARGET, TARGET))
  assert_array_equal(state.counters.accepted, state.counters.drafted)
  assert_array_equal(state.counters.rounds, 2)
