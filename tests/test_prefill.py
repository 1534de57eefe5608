"""What a decoder refuses to start with, and how it lays out the rest."""

import numpy as np
import pytest

from specdec.base import UsageError
from specdec.decode import prefill
from specdec.models import markov

TARGET = markov.build(8)._replace(max_length=10)


def refusal(prompts, budget=2, stops=(), max_len=None):
  with pytest.raises(UsageError) as error:
    prefill.arrays(TARGET, 3, prompts, budget, stops, max_len)
  return str(error.value)


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ({'prompts': []}, ['prompts', 'at least one token']),
    ({'prompts': [[1], []]}, ['prompts', 'at least one token']),
    ({'prompts': [[1], [1] * 9]}, ['prompt 1', '9 tokens', 'not exceed 10']),
    ({'prompts': [[1]], 'max_len': 2}, ['prompt 0', 'not exceed 2']),
    ({'prompts': [[1]], 'budget': 20, 'max_len': 30}, ['not exceed 10']),
    ({'prompts': [[1], [2]], 'budget': [2, -1]}, ['max_new_tokens = -1']),
    ({'prompts': [[7], [8]]}, ['prompt 1', 'outside 0..7', 'tokenizer']),
    ({'prompts': [[-1, 3]]}, ['prompt 0', 'outside 0..7']),
    ({'prompts': [[1], [2]], 'stops': [[1]]}, ['stops has 1 rows']),
  ],
)
def test_a_prompt_that_cannot_be_decoded_is_taken(arguments, words):
  line = refusal(**arguments)
  assert all(word in line for word in words), line


def test_prompts_of_two_lengths_share_a_budget_or_a_buffer_wrongly():
  tokens, length, max_length, _ = prefill.arrays(
    TARGET, 3, [[1, 2, 3], [4]], [4, 9], (), None
  )
  assert length.tolist() == [3, 1]
  assert max_length.tolist() == [7, 10]
  # The largest row, and one round beyond its end.
  assert tokens.tolist() == [[1, 2, 3] + [0] * 11, [4] + [0] * 13]


def test_one_max_len_gives_prompts_of_two_lengths_two_shapes():
  shapes = {
    prefill.arrays(TARGET, 3, [[1] * n], 2, (), 9)[0].shape for n in (1, 4, 7)
  }
  assert shapes == {(1, 13)}


@pytest.mark.parametrize(
  ('stops', 'rows'),
  [
    ((), [[-1], [-1]]),
    ([5, 6], [[5, 6], [5, 6]]),
    ([[5, 6], [7]], [[5, 6], [7, -1]]),
    ([[], [7]], [[-1], [7]]),
    ([[], []], [[-1], [-1]]),
    (np.array([5]), [[5], [5]]),
  ],
)
def test_a_row_gets_the_stop_tokens_of_another(stops, rows):
  arrays = prefill.arrays(TARGET, 3, [[1], [2]], 2, stops)
  assert arrays[3].tolist() == rows
