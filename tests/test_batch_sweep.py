"""The batch sweep from end to end on tiny checkpoints, and its arithmetic."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_gamma_sweep import cut_off, refused
from test_generate import PROMPTS, write_model
from test_run import config

from specdec.experiments import (
  batch_sweep,
  batch_sweep_summary,
  intervals,
  sweep_cells,
  sweeping,
  timed,
)
from specdec.plots import batch_sweep as plot

GAMMA, ROWS, NEW_TOKENS = 2, 4, 8


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """A run that was cut off within the second batch size, and went on."""
  folder = tmp_path_factory.mktemp('batches')
  # One prompt less than rows: the first is decoded again.
  lines = (json.dumps({'prompt': text}) + '\n' for text in PROMPTS[: ROWS - 1])
  (folder / 'prompts.jsonl').write_text(''.join(lines))
  fields = config(
    'batch_sweep',
    target=write_model(folder / 'target'),
    drafts=(f'near={write_model(folder / "draft", noise=0.05)}',),
    batch_sizes=(1, 4),
    gammas=(GAMMA,),
    prompts=str(folder / 'prompts.jsonl'),
    rows=ROWS,
    timed_batches=2,
    max_new_tokens=NEW_TOKENS,
    repeats=1,
  )
  return folder / 'run', cut_off(batch_sweep.run, fields, folder / 'run', 4)


def test_each_size_has_its_costs_and_as_many_batches_as_asked(finished):
  workdir, summary = finished
  rows = list(map(json.loads, open(workdir / 'metrics.jsonl')))
  keys = [(row['batch_size'], row.get('start')) for row in rows]
  # Batches of 1 are 4, of which 2 are timed, evenly.
  assert keys == [(1, None), (1, 0), (1, 2), (4, None), (4, 0)]
  for row in rows:
    if 'costs' in row:
      assert row['measured']['batch_size'] == row['batch_size']
  assert set(summary['costs']['near']) == {'1', '4'}
  assert (workdir / 'figures' / 'batch_sweep.png').stat().st_size > 10_000


def test_cells_are_as_predicted_wherever_no_clock_is_read(finished):
  _, summary = finished
  assert [cell['batch_size'] for cell in summary['cells']] == [1, 4]
  for cell in summary['cells']:
    size = str(cell['batch_size'])
    costs = summary['costs']['near'][size]
    predicted = cell['predicted']
    assert cell['differ'] == 0 and cell['gamma'] == GAMMA
    assert (cell['c'], cell['v']) == (costs['c'], costs['v'][str(GAMMA)])
    assert_allclose(predicted['block_efficiency'], cell['block_efficiency'][0])
    assert_allclose(
      cell['efficiency'], cell['speedup'][0] / predicted['measured_costs']
    )
    assert_allclose(
      cell['speedup'][0],
      cell['tokens_per_s'] / cell['autoregressive_tokens_per_s'],
    )
  assert summary['close']['of'] == 2
  (crossings,) = summary['crossings']
  assert crossings['measured'] == batch_sweep_summary.crossing(
    (1, 4), [cell['speedup'][0] for cell in summary['cells']]
  )


def test_a_single_batch_has_no_interval(finished):
  _, summary = finished
  for cell in summary['cells']:
    bounds = cell['speedup'][1:], cell['block_efficiency'][1:]
    assert all((None in pair) == (cell['batches'] == 1) for pair in bounds)
  speeds = np.array([12.0]), np.array([3.0])
  alone = sweep_cells.quotient(speeds, (speeds[0], 2 * speeds[1]))
  assert alone == intervals.Interval(2.0, None, None)


def test_rounds_of_several_rows_take_the_call_of_the_longest(finished):
  workdir, _ = finished
  rows = map(json.loads, open(workdir / 'metrics.jsonl'))
  for row in rows:
    if 'loops' in row:
      (loop,), (played,) = row['loops'], row['replayed']
      assert_allclose(sum(played['calls']), loop['calls'])
      assert_allclose(sum(played['rounds']), loop['rounds'])
      assert loop['calls'] <= loop['rounds'] <= loop['calls'] * row['count']


def test_prompts_are_repeated_in_order():
  assert batch_sweep.repeated([[1], [2], [3]], 7) == [
    [1], [2], [3], [1], [2], [3], [1],
  ]  # fmt: skip


def test_costs_are_measured_where_the_longest_rows_of_batches_are():
  ids = [[7] * length for length in (10, 30, 20, 20)]
  lengths = [
    sweeping.cached_tokens(timed.batches(ids, size, 8), 8) for size in (1, 2, 4)
  ]
  assert lengths == [20 + 4, 25 + 4, 30 + 4]


@pytest.mark.parametrize(
  'gains, size, side',
  (
    ((2.0, 1.5, 0.5, 0.25), 2**1.5, None),  # halfway between 2 and 4
    ((1.25, 0.5, 0.4, 0.3), 2 ** (1 / 3), None),
    ((1.5, 1.0, 0.9, 0.8), 2.0, None),  # exactly at 2
    ((1.2, 0.9, 1.3, 0.7), 2**2.5, None),  # noise: it stays below from the last
    ((2.0, 1.5, 1.2, 1.0), None, 'above'),
    ((0.8, 0.9, 0.9, 1.1), None, 'above'),
    ((0.9, 0.8, 0.7, 0.6), None, 'below'),
  ),
)
def test_crossings_of_speedups_that_are_known(gains, size, side):
  found = batch_sweep_summary.crossing((1, 2, 4, 8), gains)
  assert found['side'] == side
  assert found['batch_size'] == (size and pytest.approx(size))


def test_a_crossing_in_words():
  sizes = (1, 2, 4, 8)
  for gains, words in (
    ((2.0, 1.5, 0.5, 0.25), 'up to 2.8'),
    ((2.0, 2.0, 2.0, 2.0), 'still at 8'),
    ((0.5, 0.5, 0.5, 0.5), 'not even at 1'),
  ):
    found = batch_sweep_summary.crossing(sizes, gains)
    assert plot.limit(found, sizes) == words


@pytest.mark.parametrize(
  'changes, line',
  (
    ({'drafts': ()}, 'drafts = (): give one or more'),
    ({'drafts': ('a=ngram', 'a=bigram:x')}, 'give each another label'),
    ({'batch_sizes': ()}, 'batch_sizes = ()'),
    ({'batch_sizes': (2, 2)}, 'batch_sizes = (2, 2)'),
    ({'batch_sizes': (0, 1)}, 'batch_sizes: the least = 0'),
    ({'batch_sizes': (1, 3)}, 'rows = 32: it must be a multiple of each'),
    ({'gammas': (0, 2)}, 'gammas: the least = 0'),
    ({'temperature': -1.0}, 'temperature = -1'),
    ({'rows': 0}, 'rows = 0'),
    ({'timed_batches': 0}, 'timed_batches = 0'),
    ({'max_new_tokens': 1}, 'max_new_tokens = 1'),
    ({'repeats': 0}, 'repeats = 0'),
    ({'seed': -1}, 'seed = -1'),
    ({'dtype': 'float8'}, "dtype = 'float8'"),
  ),
)
def test_a_bad_field_is_refused_before_a_model_is_read(tmp_path, changes, line):
  refused(batch_sweep.run, 'batch_sweep', changes, line, tmp_path / 'run')
