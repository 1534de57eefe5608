"""The gamma sweep from end to end on tiny checkpoints, and its arithmetic."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_generate import PROMPTS, write_model
from test_run import config

from specdec import metrics
from specdec.base import UsageError
from specdec.experiments import gamma_sweep, gamma_sweep_summary, sweeping

GAMMAS = (0, 2)


@pytest.fixture(scope='module')
def fields(tmp_path_factory):
  folder = tmp_path_factory.mktemp('models')
  lines = (
    json.dumps({'prompt': text, 'kind': 'ab'[place % 2]}) + '\n'
    for place, text in enumerate(PROMPTS)
  )
  (folder / 'prompts.jsonl').write_text(''.join(lines))
  return {
    'target': write_model(folder / 'target'),
    'drafts': (f'near={write_model(folder / "draft", noise=0.05)}',),
    'temperatures': (0.0,),
    'gammas': GAMMAS,
    'policies': ('heuristic', 'cost_aware'),
    'prompts': str(folder / 'prompts.jsonl'),
    'max_new_tokens': 10,
    'repeats': 1,
  }


def cut_off(run, config, workdir, rows):
  """The summary of a run that was cut off after so many rows, and went on."""
  append, left = metrics.append, [rows]

  def cut(*args):
    if not left[0]:
      raise KeyboardInterrupt
    left[0] -= 1
    append(*args)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(metrics, 'append', cut)
    with pytest.raises(KeyboardInterrupt):
      run(config, workdir)
  before = (workdir / 'metrics.jsonl').read_text()
  assert before.count('\n') == rows
  summary = run(config, workdir)
  assert (workdir / 'metrics.jsonl').read_text().startswith(before)
  return summary


def refused(run, name, changes, line, workdir):
  """A field is refused in one line, before a model is read."""
  with pytest.raises(UsageError) as error:
    run(config(name, **{'target': 'none', **changes}), workdir)
  assert line in str(error.value) and '\n' not in str(error.value)
  assert not workdir.exists()


@pytest.fixture(scope='module')
def finished(fields, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('sweep') / 'run'
  fields = config('gamma_sweep', **fields)
  return workdir, cut_off(gamma_sweep.run, fields, workdir, 3)


def test_every_batch_is_run_once_and_every_cell_is_there(finished):
  workdir, summary = finished
  rows = list(map(json.loads, open(workdir / 'metrics.jsonl')))
  keys = [(row['draft'], row.get('start')) for row in rows]
  assert len(set(keys)) == len(keys) == 1 + len(PROMPTS)
  assert len(summary['cells']) == len(GAMMAS) + 2
  assert (workdir / 'figures' / 'gamma_sweep.png').stat().st_size > 10_000


def test_greedy_rounds_are_as_predicted_and_no_text_differs(finished):
  _, summary = finished
  for cell in summary['cells']:
    assert cell['differ'] == 0
    if cell['policy'] == 'fixed':
      found = cell['predicted']
      assert_allclose(found['block_efficiency'], cell['block_efficiency'][0])
      assert cell['accept_rate_by_position'] == pytest.approx(
        found['accept_rate_by_position'], nan_ok=True
      )
      assert_allclose(
        cell['efficiency'], cell['speedup'][0] / found['measured_costs']
      )
    else:
      assert cell['predicted'] is None and cell['gamma'] == max(GAMMAS)


def test_policies_are_compared_with_the_best_gamma_of_each_kind(finished):
  _, summary = finished
  assert len(summary['policies']) == 2 * 3
  cells = {
    (cell['gamma'], cell['policy']): cell['speedup'][0]
    for cell in summary['cells']
  }
  for row in summary['policies']:
    assert_allclose(
      row['of_best'][0], row['speedup'][0] / row['best_speedup'][0]
    )
    if row['kind'] == 'all':
      fixed = [cells[gamma, 'fixed'] for gamma in GAMMAS]
      assert_allclose(row['best_speedup'][0], max(fixed))
      assert row['best_gamma'] == GAMMAS[int(np.argmax(fixed))]
  gains = [row.get('over_heuristic') for row in summary['policies']]
  assert [gain is None for gain in gains] == [True, False] * 3


RESTS = [0.1, 0.2, 0.3, 0.4, 0.5]
PRICE = {
  'costs': {'target_s': [1.0, 2.0, 2.0, 3.0, 3.0], 'draft_s': 0.5},
  'by_temperature': {
    '0': {'step_s': 1.25, 'rest_s': [0.1, 0.2, 0.3, 0.4, 0.5]}
  },
}


def test_a_round_costs_the_call_that_its_decoder_is_compiled_for():
  # Of gamma 4 the calls take 1, 3 or 5 tokens; of gamma 2, 1, 2 or 3.
  assert_allclose(sweeping.round_s(PRICE, 0.0, 4), (1.1, 2.7, 3.3, 4.9, 5.5))
  assert_allclose(sweeping.round_s(PRICE, 0.0, 2), (1.1, 2.7, 3.3))


def test_predictions_of_a_row_that_is_known():
  row = {
    'plain': {'tokens': 12, 'calls': 12, 'seconds': 15.0},
    'overlap': [6.0, 12],
    'replayed': [
      {
        'gamma': 2,
        'calls': [1.0, 0.0, 5.0],
        'rounds': [6.0],
        'drafted_at': [5.0, 5.0],
        'accepted_at': [4.0, 0.0],
      }
    ],
  }
  found = sweeping.predict([row, row], PRICE, 0.0, 2)
  assert found.block_efficiency == 2
  assert found.accept_rate_by_position == [0.8, 0.0]
  assert_allclose(found.constant_alpha, 1.75 / (2 * 0.5 + 1))
  assert_allclose(found.by_position, 12 / (1 + 5 * (2 * 0.5 + 1)))
  assert_allclose(found.measured_costs, 12 * 1.25 / (1.1 + 5 * 3.3))
  assert_allclose(found.tokens_per_s, 12 / (1.1 + 5 * 3.3))


@pytest.mark.parametrize(
  'changes, line',
  (
    ({'drafts': ()}, 'drafts = (): give one or more'),
    ({'drafts': ('a=ngram', 'a=bigram:x')}, 'give each another label'),
    ({'gammas': (1, 1)}, 'gammas = (1, 1)'),
    ({'gammas': (0,)}, 'gammas: the greatest = 0'),
    ({'gammas': (-1, 2)}, 'gammas = -1'),
    ({'policies': ('fixed',)}, "policies = 'fixed'"),
    ({'rules': ('none',)}, "rule = 'none'"),
    ({'temperatures': (-1.0,)}, 'temperature = -1'),
    ({'max_new_tokens': 1}, 'max_new_tokens = 1'),
    ({'repeats': 0}, 'repeats = 0'),
  ),
)
def test_a_bad_field_is_refused_before_a_model_is_read(tmp_path, changes, line):
  refused(gamma_sweep.run, 'gamma_sweep', changes, line, tmp_path / 'run')


def test_other_rules_are_not_predicted_where_they_keep_other_drafts():
  row = {'rule': 'block', 'temperature': 1.0, 'lossless': True}
  assert not gamma_sweep_summary.is_predicted(row)
  for change in ({'rule': 'token'}, {'temperature': 0.0}):
    assert gamma_sweep_summary.is_predicted(row | change)
