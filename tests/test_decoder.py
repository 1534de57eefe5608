"""Stopping, budgets, batches and compilations of every decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import RUNNING, Weights
from specdec.decode import speculative, stats
from specdec.drafters import model
from specdec.models import markov
from specdec.verify import token

GREEDY = tiny.Asked(sampling={'temperature': 0})
MIXED = tiny.Asked(sampling=tiny.MIXED)
DECODERS = {
  'autoregressive': tiny.baseline,
  'ngram': functools.partial(tiny.with_ngram, 8),
  'model': functools.partial(tiny.with_model, 8),
}


@pytest.fixture(params=DECODERS)
def decode(request):
  """(Asked, drafts of each row) -> the last state."""
  decoder = DECODERS[request.param]()

  def run(asked, limits=99):
    return tiny.run(decoder, tiny.weights(limits), asked)

  return run


@pytest.fixture(scope='module')
def greedy_texts():
  return tiny.texts(tiny.run(tiny.baseline(), tiny.weights(), GREEDY))


def test_text_ends_at_the_first_stop_token_wherever_it_falls(
  decode, greedy_texts
):
  for j in range(40):
    stops = [[text[j]] for text in greedy_texts]
    state = decode(GREEDY._replace(stops=stops), limits=1 + j % 8)
    want = [text[: text.index(text[j]) + 1] for text in greedy_texts]
    assert tiny.texts(state) == want, f'stop at {j}'
    assert tiny.reasons(state) == ['stop'] * tiny.ROWS


def test_each_row_has_several_stop_tokens_of_its_own(decode, greedy_texts):
  one, two, three, four = greedy_texts
  stops = [[one[9], one[3]], [], [three[5], 63, 62], [four[0], four[0]]]
  state = decode(GREEDY._replace(stops=stops))
  first = min(one.index(one[9]), one.index(one[3]))
  assert tiny.texts(state) == [
    one[: first + 1],
    two,
    three[: three.index(three[5]) + 1],
    four[:1],
  ]
  assert tiny.reasons(state) == ['stop', 'budget', 'stop', 'stop']


@pytest.mark.parametrize('budget', ((0, 1, 8, 9), (9, 8, 1, 0), (0, 0, 0, 0)))
def test_budget_is_never_exceeded(decode, greedy_texts, budget):
  state = decode(GREEDY._replace(budget=budget))
  want = [t[:b] for t, b in zip(greedy_texts, budget, strict=True)]
  assert tiny.texts(state) == want
  assert tiny.reasons(state) == ['budget'] * tiny.ROWS
  assert_array_equal(state.counters.committed, budget)
  assert_array_equal(state.counters.rounds == 0, np.equal(budget, 0))


def test_a_full_buffer_does_not_overwrite_history(decode):
  prompts = tuple(([3, 1, 4, 1, 5] * 20)[:n] for n in (1, 40, 70, 79))
  asked = GREEDY._replace(
    prompts=prompts, budget=[tiny.MAX_LEN - len(p) for p in prompts]
  )
  state = decode(asked)
  for row, prompt in enumerate(prompts):
    assert_array_equal(state.tokens[row, : len(prompt)], prompt)
  assert_array_equal(state.length, tiny.MAX_LEN)
  want = tiny.run(tiny.baseline(), tiny.weights(), asked)
  assert tiny.texts(state) == tiny.texts(want)


def test_permuting_the_batch_permutes_the_texts(decode):
  order = np.array([2, 0, 3, 1])
  whole = tiny.texts(decode(MIXED, limits=[8, 3, 1, 4]))
  state = decode(
    MIXED._replace(
      prompts=[tiny.PROMPTS[i] for i in order],
      sampling={k: np.array(v)[order] for k, v in tiny.MIXED.items()},
      keys=rng.sequence_keys(0, tiny.ROWS)[order],
    ),
    limits=np.array([8, 3, 1, 4])[order],
  )
  assert tiny.texts(state) == [whole[i] for i in order]


def test_a_row_does_not_feel_its_neighbours(decode):
  whole = tiny.texts(decode(MIXED))
  others = ([9] * 30, [8], [1, 2, 3], [6] * 33)
  for row in range(tiny.ROWS):
    # Longer neighbours, of other keys and parameters, and finished ones.
    keys = rng.sequence_keys(77, tiny.ROWS)
    for budget in (40, 0):
      state = decode(
        MIXED._replace(
          prompts=[
            tiny.PROMPTS[i] if i == row else others[i] for i in range(4)
          ],
          sampling={
            name: [
              v if i == row else 0.9 if name == 'top_p' else 1
              for i, v in enumerate(values)
            ]
            for name, values in tiny.MIXED.items()
          },
          keys=keys.at[row].set(rng.sequence_keys(0, tiny.ROWS)[row]),
          budget=[40 if i == row else budget for i in range(4)],
        )
      )
      assert tiny.texts(state)[row] == whole[row]


def test_a_row_of_a_batch_equals_its_solo_run():
  decoder, limits = tiny.with_model(8), jnp.array([8, 1, 4, 8])
  weights = tiny.weights(limits)
  asked = MIXED._replace(budget=(40, 0, 7, 30))
  whole = tiny.run(decoder, weights, asked)
  for row, output in enumerate(stats.outputs(whole)):
    alone = Weights(weights.target, (weights.draft[0], limits[row : row + 1]))
    state = decoder.init(
      alone,
      tiny.PROMPTS[row : row + 1],
      rng.sequence_keys(0, 1, start=row),
      sampling.params(1, **{k: v[row] for k, v in tiny.MIXED.items()}),
      asked.budget[row],
      max_len=tiny.MAX_LEN,
    )
    state = decoder.generate(alone, state)
    assert stats.outputs(state)[0]['tokens'] == output['tokens']
    for one, many in zip(state.counters, whole.counters, strict=True):
      assert_array_equal(one[0], many[row])


def test_another_prompt_length_leaves_nothing_behind(decode):
  before = tiny.texts(decode(MIXED))
  decode(MIXED._replace(prompts=([9] * 40,) * 4))
  assert tiny.texts(decode(MIXED)) == before


def test_the_seed_decides_the_text(decode):
  one, two = (tiny.texts(decode(MIXED._replace(seed=s))) for s in (0, 1))
  assert one == tiny.texts(decode(MIXED))
  assert one[0] == two[0]  # greedy
  assert all(a != b for a, b in zip(one[1:], two[1:], strict=True))


def test_keys_and_parameters_can_be_used_again(decode):
  keys = rng.sequence_keys(0, tiny.ROWS)
  asked = MIXED._replace(
    keys=keys, sampling={k: jnp.array(v) for k, v in tiny.MIXED.items()}
  )
  one = tiny.texts(decode(asked))
  assert not keys.is_deleted()
  assert one == tiny.texts(decode(asked))


def test_counters_add_up_round_by_round():
  decoder, weights = tiny.with_model(8), tiny.weights([8, 8, 3, 5])
  plain = tiny.texts(tiny.run(decoder, weights, MIXED))
  stops = [[text[11], text[20]] for text in plain]
  asked = MIXED._replace(stops=stops, budget=(40, 25, 3, 12))
  truncated = 0
  rounds = list(decoder.stream(weights, tiny.start(decoder, weights, asked)))
  for _, info in rounds:
    alive = info.committed > 0
    truncated += np.where(alive, info.accepted + 1 - info.committed, 0)
  state = rounds[-1][0]
  counters = state.counters
  tokens = [len(text) for text in tiny.texts(state)]
  assert_array_equal(counters.committed, tokens)
  assert_array_equal(tokens, counters.rounds + counters.accepted - truncated)
  assert_array_equal(counters.drafted_at.sum(-1), counters.drafted)
  assert_array_equal(counters.accepted_at.sum(-1), counters.accepted)
  assert (np.diff(counters.accepted_at) <= 0).all()
  assert not counters.drafted_at[2, 3:].any()
  # Only a stop token cuts off what was accepted; a budget drafts less.
  cut_by_budget = np.array(tiny.reasons(state)) == 'budget'
  assert not truncated[cut_by_budget].any()


def test_accepted_drafts_behind_a_stop_count_as_accepted_not_committed():
  # [d1, d2, STOP, d4, d5, bonus]: accepted 5, committed 3.
  weights = tiny.equal_weights(limits=5)
  decoder = tiny.with_model(8)
  text = tiny.texts(tiny.run(decoder, weights, GREEDY))
  state = tiny.run(
    decoder, weights, GREEDY._replace(stops=[[row[2]] for row in text])
  )
  assert_array_equal(state.counters.rounds, 1)
  assert_array_equal(state.counters.accepted, 5)
  want = [row.index(row[2]) + 1 for row in text]
  assert 3 in want
  assert_array_equal(state.counters.committed, want)


def test_the_last_round_of_a_budget_counts_what_it_verified():
  # Equal models, 5 drafts a round, 8 tokens: 6, then 1 draft and its bonus.
  state = tiny.run(
    tiny.with_model(8), tiny.equal_weights(5), GREEDY._replace(budget=8)
  )
  assert_array_equal(state.counters.drafted, 6)
  assert_array_equal(state.counters.rounds, 2)
  totals = stats.totals(state.counters)
  assert totals['accept_rate'] == 1
  assert totals['block_efficiency'] == 4
  assert totals['accept_rate_by_position'] == [1] * 5 + [None] * 3


@pytest.fixture(scope='module')
def traced():
  """A Markov decoder of two drafts, and a list that grows with each trace."""
  plain, target, draft = tiny.markov_pair(5)
  traces = []

  def apply(*args):
    traces.append(None)
    return plain.apply(*args)

  counting = plain._replace(apply=apply)
  decoder = speculative.build(
    counting, model.build(markov.build(5), 2), token.RULE
  )
  return decoder, Weights(target, draft), traces


def test_other_prompts_keys_parameters_budgets_and_stops_do_not_retrace(traced):
  decoder, weights, traces = traced

  def run(prompts, seed, params, budget, stops):
    state = decoder.init(
      weights,
      prompts,
      rng.sequence_keys(seed, 2),
      sampling.params(2, **params),
      budget,
      stops,
      max_len=30,
    )
    return decoder.generate(weights, state)

  run([[0], [1, 2]], 0, {}, 6, ())
  first = len(traces)
  assert first > 0
  run([[3, 3, 3], [4]], 0, {}, 6, ())
  run([[0], [1]], 5, {}, 6, ())
  run([[0], [1]], 0, {'temperature': 0}, 6, ())
  run([[0], [1]], 0, {'temperature': [0, 1], 'top_p': 0.5, 'top_k': 2}, 6, ())
  run([[0], [1]], 0, {'min_p': 0.1}, [3, 20], ())
  run([[0], [1]], 0, {}, 6, (3,))
  run([[0], [1]], 0, {}, 6, ([3, 1, 2], [4]))
  assert len(traces) == first


def test_a_round_uses_no_key_twice(traced):
  decoder, weights, _ = traced
  state = decoder.init(
    weights, [[0], [1]], rng.sequence_keys(0, 2), sampling.params(2), 6
  )
  with jax.debug_key_reuse(True):
    jax.jit(decoder.step)(weights, state)


def test_eager_rounds_end_where_the_compiled_loop_ends(traced):
  decoder, weights, _ = traced

  def start():
    return decoder.init(
      weights,
      [[0, 3], [1]],
      rng.sequence_keys(0, 2),
      sampling.params(2),
      [7, 2],
      max_len=30,
    )

  compiled, state = decoder.generate(weights, start()), start()
  with jax.disable_jit():
    while (state.finish_reason == RUNNING).any():
      state, _ = decoder.step(weights, state)
  jax.tree.map(
    lambda a, b: assert_allclose(a, b, atol=1e-6),
    compiled._replace(key=None),
    state._replace(key=None),
  )
