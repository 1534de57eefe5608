"""The layout of a batch, and what is refused before any compute."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from specdec.base import UsageError
from specdec.decode import prefill
from specdec.models import config, functional

TARGET = functional.build(config.TINY)  # 64 tokens, a context of 1,024


def arrays(prompts=((1, 2), (3,)), budget=4, stops=(), max_len=None, gamma=8):
  return prefill.arrays(TARGET, gamma, prompts, budget, stops, max_len)


def test_buffer_has_room_for_the_drafts_behind_the_last_token():
  tokens, length, max_length, _ = arrays(budget=[5, 2])
  assert tokens.shape[1] >= max(max_length) + 8 + 1
  assert_array_equal(length, [2, 1])
  assert_array_equal(max_length, [7, 3])
  assert arrays(max_len=50)[0].shape[1] == 50 + 8 + 1


def test_a_text_may_fill_the_context_exactly():
  arrays(prompts=[[1] * 1000], budget=24)
  with pytest.raises(UsageError, match='prompt 0 has 1000 tokens'):
    arrays(prompts=[[1] * 1000], budget=25)


def test_stops_are_one_list_for_all_or_one_for_each_row():
  one, each = arrays(stops=[7, 9])[3], arrays(stops=[[7, 9], [5]])[3]
  assert set(np.ravel(one)) == {7, 9, -1}
  assert [set(row.tolist()) - {-1} for row in each] == [{7, 9}, {5}]
  # Another number of stop tokens is no other shape.
  assert one.shape == each.shape == arrays()[3].shape


@pytest.mark.parametrize(
  'asked, message',
  (
    ({'prompts': []}, 'prompts: each needs at least one token'),
    ({'prompts': [[1], []]}, 'prompts: each needs at least one token'),
    ({'budget': -1}, 'max_new_tokens = -1: it must be at least 0'),
    ({'budget': [3, -2]}, 'max_new_tokens = -2'),
    ({'budget': [3, 2, 1]}, 'give an integer, or one for each of 2 prompts'),
    ({'budget': 2.7}, 'max_new_tokens = 2.7: give an integer'),
    ({'max_len': 5}, 'prompt 0 has 2 tokens and max_new_tokens = 4.* exceed 5'),
    ({'prompts': [[1], [64]]}, r'prompt 1 has a token outside 0\.\.63'),
    ({'prompts': [[-1]]}, r'prompt 0 has a token outside 0\.\.63'),
    ({'stops': [[1], [2], [3]]}, 'stops has 3 rows'),
  ),
)
def test_a_bad_batch_is_one_line_that_names_the_field(asked, message):
  with pytest.raises(UsageError, match=message) as error:
    arrays(**asked)
  assert '\n' not in str(error.value)
