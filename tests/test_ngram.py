"""Prompt lookup against a plain reading of its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec.base import UsageError
from specdec.drafters import ngram


def proposed(rows, gamma, max_match=5, min_match=1, width=None, junk=0):
  """The drafts of each row, as lists."""
  drafter = ngram.build(gamma, max_match, min_match)
  length = np.array([len(row) for row in rows], np.int32)
  tokens = np.full((len(rows), width or length.max()), junk, np.int32)
  for row, values in enumerate(rows):
    tokens[row, : len(values)] = values
  tokens, length = jnp.asarray(tokens), jnp.asarray(length)
  state = drafter.init(None, tokens, length, None)
  propose = jax.jit(drafter.propose)
  proposal, _ = propose(None, state, tokens, length, None, None)
  assert proposal.probs is None
  drafts, count = np.asarray(proposal.tokens), np.asarray(proposal.length)
  return [drafts[row, : count[row]].tolist() for row in range(len(rows))]


def expected(row, gamma, max_match, min_match):
  """Slices and a search from the back."""
  for size in range(min(max_match, len(row)), min_match - 1, -1):
    for end in range(len(row) - 1, size - 1, -1):
      if row[end - size : end] == row[len(row) - size :]:
        copy = list(row)
        for i in range(gamma):
          copy.append(copy[end + i])
        return copy[len(row) :]
  return []


@pytest.mark.parametrize(
  ('max_match', 'min_match', 'gamma'), [(5, 3, 8), (3, 1, 4), (1, 1, 1)]
)
@pytest.mark.parametrize('letters', [1, 2, 3, 5])
def test_drafts_differ_from_a_plain_search(
  letters, max_match, min_match, gamma
):
  draw = np.random.default_rng(letters)
  rows = [
    draw.integers(letters, size=draw.integers(1, 24)).tolist()
    for _ in range(200)
  ]
  # The junk beyond a row's end would continue a match, were it read.
  for junk in range(2):
    assert proposed(rows, gamma, max_match, min_match, 32, junk) == [
      expected(row, gamma, max_match, min_match) for row in rows
    ]


def test_a_shorter_suffix_wins_over_a_longer_one():
  # [1, 2] stood before 3; the later 2 alone stood before 4.
  assert proposed([[1, 2, 3, 9, 2, 4, 1, 2]], 1) == [[3]]


def test_a_suffix_beyond_max_match_counts():
  assert proposed([[1, 2, 3, 9, 2, 4, 1, 2]], 1, max_match=1) == [[4]]


def test_an_early_match_wins_over_the_latest():
  assert proposed([[1, 2, 3, 1, 2, 4, 1, 2]], 2) == [[4, 1]]


def test_a_loop_is_not_continued_beyond_the_end_of_the_row():
  assert proposed([[7, 1, 2, 3, 1, 2, 3]], 8) == [[1, 2, 3, 1, 2, 3, 1, 2]]
  assert proposed([[5, 5]], 4) == [[5, 5, 5, 5]]


def test_a_row_without_a_match_gets_drafts():
  assert proposed([[1, 2, 3], [4]], 4) == [[], []]


def test_a_match_below_min_match_counts():
  row = [1, 2, 3, 4, 1, 2]
  assert proposed([row], 1, min_match=2) == [[3]]
  assert proposed([row], 1, min_match=3) == [[]]


def test_no_draft_slots_are_an_error():
  assert proposed([[1, 1, 1]], 0) == [[]]


def test_a_number_outside_its_range_is_taken():
  for arguments, words in (
    ((-1,), 'gamma = -1: it must be at least 0'),
    ((4, 2, 3), 'draft.min_match = 3: it must be in 1..draft.max_match = 2'),
    ((4, 5, 0), 'draft.min_match = 0'),
  ):
    with pytest.raises(UsageError, match=words):
      ngram.build(*arguments)
