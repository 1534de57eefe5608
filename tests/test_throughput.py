"""Training throughput: what is counted, and what counts as idle."""

import jax
import pytest
from numpy.testing import assert_allclose
from test_training import config_of

from specdec.base import UsageError
from specdec.experiments import throughput, training
from specdec.models import functional

SIZES = {'layers': 1, 'width': 8, 'hidden': 16, 'heads': 2}


def test_a_step_is_not_charged_six_flop_a_weight():
  model = training.SizeConfig(**{**SIZES, 'layers': 3}).model(50, 10)
  params = functional.init(model, jax.random.key(0))
  weights = 3 * (4 * 8 * 8 + 3 * 8 * 16) + 50 * 8
  assert throughput.flop(params, model, 10) == 6 * weights + 6 * 3 * 8 * 10


def test_time_in_which_a_step_runs_is_idle():
  # The second comes before the first has ended, the third half a second late.
  assert_allclose(throughput.idle([0, 1, 4.5], [2, 4, 7]), 0.5 / 5)


def test_the_experiment_does_not_run(tmp_path):
  config = config_of(
    'throughput', target=SIZES, size=SIZES, vocab_size=20, batch_size=2,
    row_tokens=4, matrix=8, repeats=1, loop_steps=4,
  )  # fmt: skip
  summary = throughput.run(config, tmp_path / 'run')
  for name in ('target', 'size'):
    assert summary[name]['step_over_product'] > 0
    assert 0 <= summary[name]['idle_share'] < 1
  assert (tmp_path / 'run' / 'summary.json').exists()


@pytest.mark.parametrize(
  'fields, line',
  (
    ({'loop_steps': 2}, 'loop_steps = 2: it must be at least 3'),
    ({'size': {'width': 9}}, 'width = 9: it must be a multiple'),
    ({'dtype': 'int8'}, "dtype = 'int8'"),
  ),
)
def test_a_bad_field_gets_past_the_start(tmp_path, fields, line):
  with pytest.raises(UsageError, match=line):
    throughput.run(config_of('throughput', **fields), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
