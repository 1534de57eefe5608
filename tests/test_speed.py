import pytest

from specdec.base import UsageError
from specdec.experiments import speed

FIELDS = {
  'target': 'smollm2-135m',
  'gamma': 1,
  'feeds': (1, 2),
  'batch_size': 2,
  'rows': (128, 256),
  'steps': 2,
  'repeats': 1,
  'dtype': 'float32',
}


@pytest.mark.parametrize(
  'changes, words',
  (
    ({'feeds': (2, 3)}, 'feeds = (2, 3): it must be positive, 1 among them'),
    ({'feeds': (0, 1)}, 'feeds = (0, 1)'),
    ({'rows': (64, 256)}, 'it must be at least 104'),
    ({'steps': 0}, 'steps = 0: it must be at least 1'),
    ({'dtype': 'int8'}, "dtype = 'int8': it must be one of auto"),
  ),
)
def test_a_field_that_cannot_be_timed_is_found_late(changes, words):
  with pytest.raises(UsageError) as error:
    speed.Config(**(FIELDS | changes))
  assert words in str(error.value)
  assert '\n' not in str(error.value)
