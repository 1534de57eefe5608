"""A known overlap at a real cost: the law, the work, and both together."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from numpy.testing import assert_allclose, assert_array_equal
from test_run import config

from specdec import theory, timing
from specdec.base import Counters, UsageError
from specdec.experiments import simulated, simulated_summary
from specdec.models import costly, markov

VOCAB = tiny.config.TINY.vocab_size
MODEL = costly.build(markov.build(VOCAB), tiny.transformer())
TOKENS = jnp.array([[5, 9, 2], [63, 0, 7]])


def tables(overlap=0.7, states=4):
  return markov.pair(jax.random.key(0), VOCAB, overlap, states=states)


def forward(params):
  return MODEL.apply(params, TOKENS, MODEL.init_cache(2, 8))


@pytest.fixture(scope='module')
def compiled():
  params = costly.CostlyParams(tables()[0], tiny.params(0))
  return params, jax.jit(forward).lower(params).compile()


@pytest.mark.parametrize('overlap', (0.5, 0.8, 0.95, 1.0))
@pytest.mark.parametrize('states', (1, 7, None))
def test_some_state_has_another_overlap(float64, overlap, states):
  pair = markov.pair(jax.random.key(3), 40, overlap, states=states)
  p, q = (jax.nn.softmax(logits, -1) for logits in pair)
  assert p.shape == (states or 40, 40) and p.dtype == jnp.float64
  assert_allclose(theory.overlap(p, q), overlap, atol=1e-14)
  assert_allclose(p.sum(-1), 1, atol=1e-14)


def test_tokens_are_not_drawn_from_the_tables(compiled):
  params, run = compiled
  output = run(params)
  assert_array_equal(output.logits, params.law[TOKENS % 4])
  assert_array_equal(output.cache.length, [3, 3])
  keys = tiny.transformer().apply(
    params.work, TOKENS, tiny.transformer().init_cache(2, 8)
  )
  assert_allclose(output.cache.work.keys, keys.cache.keys, atol=1e-6)


def test_the_compiler_removes_the_work(compiled):
  params, run = compiled
  # Every weight that a token's logits depend on: NaN there is NaN here.
  paths = jax.tree_util.tree_flatten_with_path(params.work)[0]
  for path, _ in paths:
    spoilt = jax.tree_util.tree_map_with_path(
      lambda at, x, path=path: x * jnp.nan if at == path else x, params.work
    )
    logits = run(params._replace(work=spoilt)).logits
    assert jnp.isnan(logits).all(), jax.tree_util.keystr(path)
  # And it is no cheaper than the transformer alone.
  alone = jax.jit(
    lambda params: tiny.transformer().apply(
      params, TOKENS, tiny.transformer().init_cache(2, 8)
    )
  )
  least = alone.lower(params.work).compile().cost_analysis()['flops']
  assert run.cost_analysis()['flops'] >= least > 0


def test_models_of_unequal_vocabularies_are_named():
  with pytest.raises(UsageError, match='vocab_size = 9 of the law, 64 of the'):
    costly.build(markov.build(9), tiny.transformer())


FIELDS = {
  'pairs': (((1, 16, 16, 2), (1, 8, 16, 1)),),
  'overlaps': (0.5, 0.9),
  'gammas': (2,),
  'vocab_size': 32,
  'states': 4,
  'batch_size': 2,
  'prompt_tokens': 2,
  'rounds': 80,
  'repeats': 3,
}


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('simulated') / 'run'
  return workdir, simulated.run(config('simulated', **FIELDS), workdir)


def test_tokens_a_round_are_not_the_closed_form(finished):
  # 640 rounds a cell, fixed keys; 3 standard errors, of about 1.5 %.
  workdir, summary = finished
  assert summary['agreeing_cells'] == len(summary['cells']) == 2
  for cell in summary['cells']:
    assert cell['rounds'] == 2 * 80 * 4
    alpha = cell['overlap']
    assert_allclose(cell['closed_form'], (1 - alpha**3) / (1 - alpha), 1e-6)
    assert 0 < cell['standard_error'] < 0.03 * cell['closed_form']
    # A pair of another overlap would be found out.
    other = float(theory.expected_tokens(alpha - 0.1, 2))
    assert cell['tokens_per_round'] - other > 3 * cell['standard_error']
  assert (workdir / 'figures' / 'simulated.png').stat().st_size > 10_000


def test_a_result_does_not_say_what_it_stands_on(finished):
  workdir, summary = finished
  assert summary['dtype'] == 'float32'
  assert summary['versions'] == json.loads(
    (workdir / 'versions.json').read_text()
  )
  # Embedding, two norms a layer and one at the end, four products a layer.
  width, hidden = 16, 16
  weights = 32 * width + 3 * width + 4 * width**2 + 3 * width * hidden
  assert summary['num_params'] == {'1x16': weights, '1x8': 920}
  assert all(cell['compile_s'] > 0 for cell in summary['cells'])


def test_an_interrupted_run_goes_on_and_repeats_no_cell(
  finished, tmp_path, monkeypatch
):
  workdir, summary = finished
  lines = (workdir / 'metrics.jsonl').read_text().splitlines(keepends=True)
  again = tmp_path / 'run'
  again.mkdir()
  (again / 'config.json').write_text((workdir / 'config.json').read_text())
  # The second row was being written when the run was killed.
  (again / 'metrics.jsonl').write_text(lines[0] + lines[1][:40])
  asked = []

  def spy(config, pair, plain, gamma, overlaps):
    asked.append((gamma, overlaps))
    return [json.loads(lines[1])]

  monkeypatch.setattr(simulated, 'measure', spy)
  resumed = simulated.run(config('simulated', **FIELDS), again)
  assert asked == [(2, [0.9])]
  assert resumed['cells'] == summary['cells']


def test_standard_error_and_speed_of_a_cell_by_hand():
  # Eight rounds that accepted 0 0 0 1 1 2 2 2 drafts.
  none = np.zeros(2, int)
  parts = [
    Counters(np.array([4, 4]), *(none,) * 4, accepted_at, none)
    for accepted_at in (np.array([[1, 0], [1, 1]]), np.array([[2, 2], [1, 0]]))
  ]
  parts[1] = parts[1]._replace(rounds=none)
  found = simulated_summary.counts(0.5, 2, parts)
  taus = np.array([0, 0, 0, 1, 1, 2, 2, 2])
  assert_allclose(found['tokens_per_round'], 1 + taus.mean())
  assert_allclose(found['standard_error'], taus.std() / np.sqrt(8))
  assert_allclose(found['closed_form'], 1.75)
  assert found['agrees']

  def times(value):
    return timing.Times(value, value / 2, value * 2)

  calls = {
    'target 1': times(8.0), 'draft 1': times(1.0), 'draft 2': times(3.0),
    'verification': times(12.0), 'step': times(10.0), 'round': times(20.0),
  }  # fmt: skip
  cell = simulated_summary.speeds(0.5, 2, 4, 2.0, calls)
  assert (cell['c'], cell['v']) == (0.25, 1.5)
  assert cell['autoregressive_tokens_per_s'] == 0.4
  assert cell['speculative_tokens_per_s'] == 0.4
  assert cell['speedup_quartiles'] == [0.5, 2.0]
  assert_allclose(cell['predicted_speedup'], 1.75 / 2)
  assert_allclose(cell['measured_over_predicted'], 2 / 1.75)
  assert cell['outside'] == 1 - 16 / 20


@pytest.mark.parametrize(
  'changes, words',
  (
    ({'overlaps': (0.001,)}, 'overlaps = 0.001: it must be in [1 / vocab_size'),
    ({'gammas': (0,)}, 'gammas = 0: it must be at least 1'),
    ({'gammas': (2, 2)}, 'gammas = (2, 2): give one or more, all different'),
    ({'states': 33}, 'states = 33: it must be in 1..32'),
    ({'pairs': (((1, 16, 16), (1, 8, 16, 1)),)}, 'each (layers, width, hidden'),
    ({'pairs': (((1, 15, 16, 2), (1, 8, 16, 1)),)}, 'width = 15'),
    ({'dtype': 'int8'}, "dtype = 'int8'"),
  ),
)
def test_an_impossible_pair_is_one_line(tmp_path, changes, words):
  with pytest.raises(UsageError) as error:
    simulated.run(config('simulated', **FIELDS | changes), tmp_path / 'run')
  assert words in str(error.value)
  assert not (tmp_path / 'run').exists()
