"""Prompt lookup against a plain Python reference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from specdec import rng, sampling
from specdec.base import UsageError, Weights
from specdec.decode import speculative
from specdec.drafters import ngram
from specdec.models import markov
from specdec.verify import token

WIDTH = 24
JUNK = 1


def lookup(row, gamma, max_match, min_match):
  """What is proposed behind a row: a list of gamma tokens, or none."""
  for n in range(max_match, min_match - 1, -1):
    for end in range(len(row) - 1, n - 1, -1):
      if row[end - n : end] == row[len(row) - n :]:
        follow = row[end:]
        return [follow[i % len(follow)] for i in range(gamma)]
  return []


def propose(rows, gamma=5, max_match=3, min_match=1, junk=JUNK, jit=True):
  """The proposals of a batch, as lists."""
  drafter = ngram.build(gamma, max_match, min_match)
  tokens = np.full((len(rows), WIDTH), junk, np.int32)
  for i, row in enumerate(rows):
    tokens[i, : len(row)] = row
  length = jnp.array([len(row) for row in rows])
  tokens = jnp.array(tokens)
  state = drafter.init(None, tokens, length, None)
  call = jax.jit(drafter.propose) if jit else drafter.propose
  proposal, _ = call(None, state, tokens, length, None, None)
  assert proposal.probs is None
  return [
    drafts[:n].tolist()
    for drafts, n in zip(
      np.asarray(proposal.tokens), proposal.length, strict=True
    )
  ]


@pytest.mark.parametrize(
  'row, drafts',
  (
    ([1, 2, 3, 9, 1, 2], [3, 9, 1, 2, 3]),
    ([1, 2, 5, 1, 2, 6, 1, 2], [6, 1, 2, 6, 1]),  # the latest match wins
    ([7, 1, 2, 5, 9, 2, 6, 7, 1, 2], [5, 9, 2, 6, 7]),  # unless one is longer
    ([4, 4, 4], [4, 4, 4, 4, 4]),  # on past the row's end, in a loop
    ([8, 1, 2, 1, 2], [1, 2, 1, 2, 1]),
    ([1, 2, 3], []),  # nothing to look up
    ([1], []),
    ([1, 1], [1, 1, 1, 1, 1]),
  ),
)
def test_what_followed_the_longest_latest_match_is_proposed(row, drafts):
  assert propose([row]) == [drafts]


@pytest.mark.parametrize(
  'gamma, most, least', ((5, 3, 1), (4, 5, 3), (1, 1, 1))
)
def test_random_rows_equal_the_reference_jitted_and_not(gamma, most, least):
  draws = np.random.default_rng(gamma)
  rows = [
    draws.integers(0, 3, draws.integers(1, WIDTH + 1)).tolist()
    for _ in range(400)
  ]
  want = [lookup(row, gamma, most, least) for row in rows]
  assert any(want) and not all(want)
  assert propose(rows, gamma, most, least) == want
  assert propose(rows, gamma, most, least, jit=False) == want


def test_junk_behind_a_row_is_never_read():
  draws = np.random.default_rng(9)
  rows = [draws.integers(0, 3, n).tolist() for n in range(1, WIDTH)]
  for junk in (0, 2, -1):
    assert propose(rows, junk=junk) == propose(rows)


def test_a_loop_of_the_text_is_continued_without_a_rejection():
  # The target counts 0..4 for ever; nothing to look up until 0 returns.
  cycle = jnp.log(jnp.eye(5)[jnp.array([1, 2, 3, 4, 0])])
  decoder = speculative.build(markov.build(5), ngram.build(2, 3, 1), token.RULE)
  weights = Weights(cycle, None)
  state = decoder.init(
    weights, [[0], [0]], rng.sequence_keys(0, 2), sampling.params(2), 17
  )
  state = decoder.generate(weights, state)
  assert_array_equal(state.tokens[:, :18] - np.arange(18)[None] % 5, 0)
  # Five rounds of one token each feed one token a row; four of three tokens
  # feed three.
  assert_array_equal(state.calls, [0, 5, 0, 4])
  assert_array_equal(state.counters.accepted, state.counters.drafted)


@pytest.mark.parametrize(
  'asked, message',
  (
    ({'gamma': -1}, 'gamma = -1: it must be at least 0'),
    ({'gamma': 2, 'max_match': 2, 'min_match': 3}, 'min_match = 3'),
    ({'gamma': 2, 'min_match': 0}, 'min_match = 0'),
  ),
)
def test_a_number_out_of_range_is_named(asked, message):
  with pytest.raises(UsageError, match=message):
    ngram.build(**asked)
