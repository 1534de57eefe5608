"""Policies inside of the decode loop: every drafter with every policy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_policies
import tiny
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import Weights
from specdec.decode import autoregressive, speculative, stats
from specdec.drafters import model, ngram, table
from specdec.drafters.policies import (
  confidence,
  cost_aware,
  entropy,
  fixed,
)
from specdec.models import markov
from specdec.verify import token

VOCAB, GAMMA, BUDGET = 5, 4, 40
MODEL, TARGET, DRAFT = tiny.markov_pair(VOCAB)


def chain(tokens=500):
  """A text some of whose tokens say much about the next one, others little."""
  draws, text = np.random.default_rng(0), [0]
  rows = draws.dirichlet(np.full(VOCAB, 0.3), VOCAB)
  for _ in range(tokens):
    text.append(draws.choice(VOCAB, p=0.9 * rows[text[-1]] + 0.1 / VOCAB))
  return np.array(text)


DRAFTERS = {
  'model': (functools.partial(model.build, MODEL, GAMMA), DRAFT),
  'ngram': (functools.partial(ngram.build, GAMMA, 3, 1), None),
  'table': (
    functools.partial(table.build, VOCAB, GAMMA),
    table.bigram([chain()], VOCAB),
  ),
}
# Drafts that pay now and then: rows pause, and try again soon.
RESTLESS = cost_aware.build(
  GAMMA,
  cost_aware.Costs((1.0, 1.2, 1.4, 1.6, 1.8), 0.05, 0.0, 0.0),
  explore=0.1,
)
POLICIES = {**test_policies.POLICIES, 'cost_aware': RESTLESS}
PROMPTS = ([0, 3], [1], [2, 2, 2], [4])
MIXED = {'temperature': [0.0, 1.0, 0.5, 1.5], 'top_k': [0, 0, 0, 3]}


def run(decoder, weights, rows=range(4), budget=BUDGET, change=None, **params):
  """The last state of some rows of PROMPTS."""
  rows = list(rows)
  state = decoder.init(
    weights,
    [PROMPTS[row] for row in rows],
    rng.sequence_keys(0, 4)[np.array(rows)],
    sampling.params(
      len(rows), **{k: np.array(v)[rows] for k, v in params.items()}
    ),
    budget,
    max_len=50,
  )
  return decoder.generate(weights, change(state) if change else state)


@pytest.fixture(scope='module')
def greedy_texts():
  decoder = autoregressive.build(MODEL)
  greedy = {'temperature': [0.0] * 4}
  return tiny.texts(run(decoder, Weights(TARGET, None), **greedy))


@pytest.mark.parametrize(
  'drafter, policy',
  [
    (drafter, policy)
    for drafter in DRAFTERS
    for policy in POLICIES
    # Prompt lookup asks for the limit alone: these are one program, and a
    # fixed one is what the tests of speculation have.
    if policy in ('heuristic', 'cost_aware')
    or (drafter, policy) == ('table', 'fixed')
    or (drafter != 'ngram' and policy != 'fixed')
  ],
)
def test_a_policy_changes_greedy_text(greedy_texts, drafter, policy):
  build, params = DRAFTERS[drafter]
  drafter = build(policy=POLICIES[policy])
  decoder = speculative.build(MODEL, drafter, token.RULE)
  state = run(decoder, Weights(TARGET, params), temperature=[0.0] * 4)
  assert tiny.texts(state) == greedy_texts
  assert state.counters.drafted.sum() > 0


def test_a_row_with_a_policy_feels_its_neighbours():
  drafter = model.build(MODEL, GAMMA, RESTLESS)
  decoder = speculative.build(MODEL, drafter, token.RULE)
  weights = Weights(TARGET, DRAFT)
  whole = run(decoder, weights, budget=(40, 6, 25, 33), **MIXED)
  limits = whole.counters.drafted / whole.counters.rounds
  assert len(set(np.asarray(limits).tolist())) > 2  # rows went their own ways
  for row in (0, 2):
    # One compilation: the row in the first place, finished rows behind it.
    order = [row, *(other for other in range(4) if other != row)]
    budget = [(40, 6, 25, 33)[row], 0, 0, 0]
    alone = run(decoder, weights, order, budget, **MIXED)
    assert stats.outputs(alone)[0] == stats.outputs(whole)[row]
    for one, many in zip(alone.counters, whole.counters, strict=True):
      assert_array_equal(one[0], many[row])


def test_another_gamma_is_another_program():
  traces = []

  def apply(*args):
    traces.append(None)
    return MODEL.apply(*args)

  counting = MODEL._replace(apply=apply)
  drafter = model.build(counting, GAMMA)
  decoder = speculative.build(counting, drafter, token.RULE)
  weights, counts = Weights(TARGET, DRAFT), []
  for limits in ([4, 4, 4, 4], [0, 1, 2, 3], [0, 0, 0, 0]):

    def change(state, limits=limits):
      policy = jnp.array(limits, jnp.int32)
      return state._replace(draft=state.draft._replace(policy=policy))

    state = run(decoder, weights, change=change)
    longest = np.asarray(state.counters.drafted_at > 0).sum(1)
    assert_array_equal(longest, limits)
    counts.append(len(traces))
  assert counts[0] == counts[1] == counts[2] > 0


def test_a_draft_model_runs_beyond_the_largest_limit():
  made = []

  def apply(*args):
    jax.debug.callback(lambda: made.append(None))
    return MODEL.apply(*args)

  drafter = model.build(MODEL._replace(apply=apply), GAMMA)
  propose = jax.jit(drafter.propose)
  tokens, length = jnp.zeros((2, 8), jnp.int32), jnp.array([2, 3])
  start = drafter.init(DRAFT, tokens, length, None)
  rest = (rng.sequence_keys(0, 2), sampling.params(2))
  for limits, alive, calls in (
    ([0, 0], [True, True], 0),
    ([1, 0], [True, True], 1),
    ([1, 3], [True, True], 3),
    ([1, 4], [True, False], 1),  # a finished row asks for nothing
  ):
    state = start._replace(
      policy=jnp.array(limits, jnp.int32), alive=jnp.array(alive)
    )
    jax.effects_barrier()
    made.clear()
    proposal, _ = propose(DRAFT, state, tokens, length, *rest)
    jax.block_until_ready(proposal)
    jax.effects_barrier()
    assert len(made) == calls
    assert_array_equal(proposal.length, np.array(limits) * alive)


def script():
  """A policy that drafts in the rounds it is told to, and pauses for long."""
  drafts = jnp.array([8, 0, 3, 0, 0, 0, 0, 8, *[0] * 14, 1, 8, 0, 0])

  def limit(rounds):
    return drafts[(rounds + 5 * jnp.arange(rounds.size)) % drafts.size]

  return fixed.build(8)._replace(
    init=lambda batch: jnp.zeros(batch, jnp.int32),
    limit=limit,
    update=lambda rounds, drafted, accepted: rounds + 1,
    pauses=True,
  )


def test_a_draft_model_misses_what_was_said_while_it_paused():
  # The target drafts for itself: whatever its cache lacks is a rejection.
  target, weights = tiny.transformer(), tiny.equal_weights()
  weights = Weights(weights.target, weights.target)
  drafter = model.build(target, 8, script())
  decoder = speculative.build(target, drafter, token.RULE)
  start = tiny.start(decoder, weights, tiny.Asked(budget=(70, 60, 70, 65)))
  last = None
  for state, info in decoder.stream(weights, start):
    assert_array_equal(info.accepted, info.drafted)
    last = jax.device_get(
      (state.draft.inner.length, state.length, state.counters.drafted)
    )
  filled, length, drafted = last
  assert drafted.min() > 8
  assert (filled <= length - 1).all()
  # The texts are those of the target alone, from caches that were right.
  logits = tiny.scratch_logits(
    weights.target,
    [
      list(prompt) + text
      for prompt, text in zip(tiny.PROMPTS, tiny.texts(state), strict=True)
    ],
  )
  want = jax.nn.log_softmax(logits, -1)
  for row, output in enumerate(stats.outputs(state)):
    at = len(tiny.PROMPTS[row]) - 1 + np.arange(len(output['tokens']))
    assert_allclose(
      output['logprobs'], want[row, at, output['tokens']], atol=2e-5
    )


def test_a_table_stops_where_its_policy_says():
  # Confidence stops after a token, entropy before it, the limit anyway.
  build, params = DRAFTERS['table']
  tokens, length = jnp.arange(20)[:, None] % VOCAB, jnp.ones(20, jnp.int32)
  rest = (rng.sequence_keys(0, 20), sampling.params(20))
  q = np.exp(params.logits[:VOCAB])
  middle = np.median(-(q * np.log(np.where(q > 0, q, 1))).sum(-1))
  bound = float(1 - np.sqrt(0.2 * middle * 1.001))
  for name, policy in (
    ('confidence', confidence.build(GAMMA, 0.3)),
    ('entropy', entropy.build(GAMMA, 0.2, bound)),
  ):
    drafter, found = build(policy=policy), []
    state = drafter.init(params, tokens, length, None)
    propose = jax.jit(drafter.propose)
    for limit in (4, 2):
      state = state._replace(policy=jnp.full(20, limit, jnp.int32))
      proposal, _ = propose(params, state, tokens, length, *rest)
      drafts, probs = map(np.asarray, proposal[:2])
      for row, drafted in enumerate(np.asarray(proposal.length)):
        if name == 'confidence':
          stops = probs[row][np.arange(4), drafts[row]] < 0.3
          want = min([*(np.flatnonzero(stops) + 1), limit])
        else:
          logs = np.log(np.where(probs[row] > 0, probs[row], 1))
          least = 1 - np.sqrt(0.2 * -(probs[row] * logs).sum(-1))
          want = min([*np.flatnonzero(least < bound), limit])
        assert drafted == want
        found.append(drafted)
    assert len(set(found)) > 2, name


def test_markov_caches_keep_their_own_length():
  drafter = model.build(markov.build(3), 2)
  tokens = jnp.zeros((1, 6), jnp.int32)
  state = drafter.init(jnp.zeros((3, 3)), tokens, jnp.array([3]), None)
  after = drafter.commit(None, state, tokens, jnp.array([4]), None)
  # Nothing was drafted: the cache holds what it held.
  assert_array_equal(after.inner.length, 3)
