"""Speculative decoding on tiny transformers: the same text as one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import texts
import tiny
from numpy.testing import assert_allclose, assert_array_equal

from specdec.decode import stats

GREEDY = tiny.Asked(sampling={'temperature': 0})


@pytest.fixture(scope='module')
def greedy_texts():
  return tiny.texts(tiny.run(tiny.baseline(), tiny.target_weights(), GREEDY))


@pytest.mark.parametrize('gamma', (1, 8))
@pytest.mark.parametrize('build', (tiny.with_model, tiny.with_ngram))
def test_greedy_text_does_not_depend_on_drafts(greedy_texts, build, gamma):
  for limits in (*range(1, gamma + 1), [0, 1, gamma, gamma // 2]):
    state = tiny.run(build(gamma), tiny.weights(limits), GREEDY)
    assert tiny.texts(state) == greedy_texts, f'{limits} drafts'
    accepted, drafted = state.counters.accepted, state.counters.drafted
    assert 0 < accepted.sum() < drafted.sum()


def test_greedy_text_does_not_depend_on_speculation_beyond_the_window():
  config = tiny.WINDOWED
  weights = tiny.weights(config=config)
  want = tiny.run(tiny.baseline(config), tiny.target_weights(config), GREEDY)
  got = tiny.run(tiny.with_model(4, config), weights, GREEDY)
  assert tiny.texts(got) == tiny.texts(want)
  full = tiny.run(tiny.baseline(), tiny.target_weights(), GREEDY)
  assert tiny.texts(full) != tiny.texts(want)  # the window matters


def test_without_drafts_sampling_is_autoregressive_token_for_token():
  # The same keys, gamma = 0: the same tokens, bit for bit.
  asked = tiny.Asked(sampling=tiny.MIXED)
  one = tiny.run(tiny.baseline(), tiny.target_weights(), asked)
  two = tiny.run(tiny.with_model(0), tiny.weights(), asked)
  for row, (a, b) in enumerate(
    zip(stats.outputs(one), stats.outputs(two), strict=True)
  ):
    assert a == b, f'row {row}'
  assert stats.totals(two.counters)['accept_rate'] is None
  assert stats.totals(two.counters)['block_efficiency'] == 1


def test_a_drafter_that_proposes_nothing_changes_nothing():
  asked = tiny.Asked(sampling=tiny.MIXED)
  one = tiny.run(tiny.baseline(), tiny.target_weights(), asked)
  state = tiny.run(tiny.with_model(8), tiny.weights(limits=0), asked)
  assert tiny.texts(state) == tiny.texts(one)
  assert_array_equal(state.calls[2:], 0)


def test_equal_models_accept_everything_for_fifty_rounds():
  asked = tiny.Asked(prompts=([5], [1], [2], [3]), budget=79)
  for params in ({}, {'top_p': 0.9}, {'temperature': 0}):
    state = tiny.run(
      tiny.with_model(8),
      tiny.equal_weights([0, 1, 3, 8]),
      asked._replace(sampling=params),
    )
    assert_array_equal(state.counters.accepted, state.counters.drafted)
  # One draft a round: 39 full rounds of two tokens, one of one.
  assert_array_equal(state.counters.rounds, [79, 40, 20, 9])


@pytest.mark.parametrize('equal', (True, False))
def test_caches_equal_a_forward_from_scratch_after_every_round(equal):
  # Full acceptance and rejections, rows of 0..8 drafts, 50 rounds.
  decoder, target = tiny.with_model(8), tiny.transformer()
  weights = (tiny.equal_weights if equal else tiny.weights)([0, 1, 4, 8])
  asked = tiny.Asked(
    budget=(60, 70, 70, 70), sampling={'temperature': [1, 1, 0.3, 0]}
  )

  @jax.jit
  def resume(params, state, cache, back):
    start = jnp.maximum(state.length - back, 0)
    rows = jnp.arange(tiny.ROWS)[:, None]
    tokens = state.tokens[rows, start[:, None] + jnp.arange(2)[None]]
    return target.apply(params, tokens, cache._replace(length=start)).logits

  rounds = 0
  for state, _ in decoder.stream(weights, tiny.start(decoder, weights, asked)):
    outputs = [
      np.asarray(state.tokens[row, :length])
      for row, length in enumerate(state.length)
    ]
    for params, cache, back in (
      (weights.target, state.cache, 1),
      (weights.draft[0], state.draft.inner, 2),
    ):
      cached = resume(params, state, cache, back)
      want = tiny.scratch_logits(params, outputs)
      for row, length in enumerate(state.length):
        # A row of one token has no second last one to resume from.
        at = max(int(length) - back, 0)
        known = int(length) - at
        assert_allclose(
          cached[row, :known], want[row, at : at + known], atol=1e-5
        )
    rounds += 1
  assert rounds >= 50
  accepted, drafted = state.counters.accepted, state.counters.drafted
  if equal:
    assert_array_equal(accepted, drafted)
  else:
    assert ((0 < accepted) & (accepted < drafted))[1:].all()


def test_generate_and_stream_end_in_the_same_state():
  decoder, weights = tiny.with_model(8), tiny.weights()
  asked = tiny.Asked(sampling=tiny.MIXED)
  one = tiny.run(decoder, weights, asked)
  rounds = list(decoder.stream(weights, tiny.start(decoder, weights, asked)))
  last, infos = rounds[-1][0], [jax.device_get(info) for _, info in rounds]
  assert stats.outputs(one) == stats.outputs(last)
  for a, b in zip(one.counters, last.counters, strict=True):
    assert_array_equal(a, b)
  # What the rounds showed, put together, is what the rows hold.
  for row, text in enumerate(tiny.texts(one)):
    shown = [list(i.tokens[row, : i.committed[row]]) for i in infos]
    assert sum(shown, []) == text
  assert_array_equal(sum(i.drafted for i in infos), one.counters.drafted)
  assert_array_equal(sum(i.accepted for i in infos), one.counters.accepted)


def test_logprobs_are_the_targets_log_softmax_at_each_prefix():
  asked = tiny.Asked(sampling=tiny.MIXED)
  for decoder, weights in (
    (tiny.baseline(), tiny.target_weights()),
    (tiny.with_model(8), tiny.weights(limits=[8, 1, 4, 8])),
  ):
    state = tiny.run(decoder, weights, asked)
    rows = [
      prompt + text
      for prompt, text in zip(tiny.PROMPTS, tiny.texts(state), strict=True)
    ]
    logits = tiny.scratch_logits(weights.target, rows)
    want = np.asarray(jax.nn.log_softmax(logits, -1))
    for row, output in enumerate(stats.outputs(state)):
      at = len(tiny.PROMPTS[row]) - 1 + np.arange(len(output['tokens']))
      assert_allclose(
        output['logprobs'], want[row, at, output['tokens']], atol=2e-5
      )


def test_a_budget_for_one_draft_is_no_call_of_full_length():
  # Compiled lengths are 1, 5 and 9 tokens: two are rounded up to five.
  asked = tiny.Asked(prompts=([5, 5, 5, 5],) * 4, budget=2)
  state = tiny.run(tiny.with_ngram(8), tiny.weights(), asked)
  assert_array_equal(state.counters.drafted, 1)
  assert state.calls[5] == 1
  assert state.calls[9] == 0


def test_every_token_lies_in_the_support_of_its_row():
  # Accepted, corrected and bonus tokens of greedy, plain, nucleus and top-k
  # rows, by the target's logits from scratch.
  for limits in (0, 1, 4, 8):
    weights = tiny.weights(limits)
    asked = tiny.Asked(sampling=tiny.MIXED, seed=limits)
    outputs = tiny.texts(tiny.run(tiny.with_model(8), weights, asked))
    rows = [a + b for a, b in zip(tiny.PROMPTS, outputs, strict=True)]
    logits = tiny.scratch_logits(weights.target, rows)
    for row, text in enumerate(outputs):
      params = {name: values[row] for name, values in tiny.MIXED.items()}
      for at, chosen in enumerate(text, len(tiny.PROMPTS[row]) - 1):
        law = texts.sorted_transform(logits[row, at], **params)
        assert law[chosen] > 0, f'row {row}, token {at}, {limits} drafts'
