"""The ablation of losses: cells of a seed are pairs, and none is run twice."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_training import SIZES, config_of, rows, text  # noqa: F401, a fixture

from specdec.base import UsageError
from specdec.experiments import losses, losses_bench, losses_summary
from specdec.train import distill

SMALL = {
  'target': SIZES,
  'draft': SIZES,
  'batch_size': 4,
  'target_steps': 21,
  'draft_steps': 21,
  'distill_steps': 21,
  'losses': ('forward_kl',),
  'prefixes': ('text', 'student'),
  'source': {
    'prompt_tokens': 4,
    'new_tokens': 13,
    'refresh_steps': 11,
    'batch_size': 44,
  },
  'gamma': 2,
  'prompts': 4,
  'prompt_tokens': 5,
  'max_new_tokens': 8,
  'seeds': 2,
}
CELLS = (
  ('none', 'none'),
  ('cross_entropy', 'text'),
  ('forward_kl', 'text'),
  ('forward_kl', 'student'),
)


def test_an_interrupted_cell_is_measured_twice_or_never(
  text,  # noqa: F811
  tmp_path,
  monkeypatch,
):
  workdir, traces, benches = tmp_path / 'run', [], []
  config = config_of('losses', text={**text, 'vocab_size': 270}, **SMALL)
  loss, bench = distill.LOSSES['forward_kl'], losses_bench.Bench
  collect = losses_bench.rollouts.collect

  def traced(*args):
    traces.append(args)
    return loss(*args)

  def cut(folder, *args):
    if folder.match('cells/0-forward_kl-student/rollouts/000001'):
      raise KeyboardInterrupt
    return collect(folder, *args)

  def shared(*args):
    # Both runs have one, so that they compile once.
    benches[:] = benches or [bench(*args)]
    return benches[0]

  monkeypatch.setitem(distill.LOSSES, 'forward_kl', traced)
  monkeypatch.setattr(losses_bench, 'Bench', shared)
  monkeypatch.setattr(losses_bench.rollouts, 'collect', cut)
  with pytest.raises(KeyboardInterrupt):
    losses.run(config, workdir)
  assert [tuple(r['cell']) for r in rows(workdir)[1:]] == [
    (0, *cell) for cell in CELLS[:3]
  ]
  monkeypatch.setattr(losses_bench.rollouts, 'collect', collect)
  summary = losses.run(config, workdir)
  # Of two seeds and two sources, one program.
  assert len(traces) == 1
  assert [tuple(r['cell']) for r in rows(workdir)[1:]] == [
    (seed, *cell) for seed in (0, 1) for cell in CELLS
  ]
  assert not [*(workdir / 'cells').iterdir()]
  assert (workdir / 'figures' / 'losses.png').exists()
  assert len(summary['cells']) == 2 * len(CELLS)
  # Every cell moved away from the draft that it began with.
  by_seed = [
    [r['figures'][1]['overlap'] for r in rows(workdir)[1 + at : 5 + at]]
    for at in (0, 4)
  ]
  assert all(len({*overlaps}) == 4 for overlaps in by_seed)


def test_a_difference_of_two_cells_is_not_that_of_their_seeds():
  overlaps = {
    ('forward_kl', 'text'): (0.5, 0.7),
    ('forward_kl', 'student'): (0.6, 0.9),
    ('lk_hybrid', 'student'): (0.65, 0.95),
  }
  made = [
    {
      'cell': [seed, *cell],
      'figures': [
        {
          'temperature': 1.0,
          'overlap': values[seed],
          'block_efficiency': 1 + values[seed],
        }
      ],
      'seconds': 1.0,
    }
    for seed in (0, 1)
    for cell, values in overlaps.items()
  ]
  config = {
    'seeds': 2,
    'gamma': 4,
    'distill_steps': 9,
    'source': {'mixture': {}},
    'prompts': 8,
  }
  found = losses_summary.summarize(config, [{'held_out_documents': 5}, *made])
  assert found['prompts'] == 5 and found['seconds'] == 6
  base, student, hybrid = found['cells']
  assert_allclose(base['overlap'][0], 0.6)
  assert base['overlap_above_loss'] is base['overlap_above_source'] is None
  assert_allclose(student['overlap_above_source'][0], 0.15)
  assert_allclose(student['block_efficiency_above_source'][0], 0.15)
  # Both seeds differ by the same: the spread of seeds is no part of it.
  assert_allclose(hybrid['overlap_above_loss'], [0.05] * 3)
  assert np.ptp(hybrid['overlap']) > 1
  assert hybrid['overlap_above_source'] is None
  json.dumps(found)


@pytest.mark.parametrize(
  'fields, line',
  (
    ({'losses': ('lk_hybrid',)}, "losses = .*: add 'forward_kl', the baseline"),
    ({'losses': ('forward_kl', 'mse')}, "losses = 'mse': it must be one of"),
    ({'prefixes': ('student',)}, "prefixes = .*: add 'text', the baseline"),
    ({'seeds': 1}, 'seeds = 1: it must be at least 2'),
    ({'distill_steps': 20}, 'distill_steps = 20: it must be at least 21'),
    ({'source': {'new_tokens': 0}}, 'new_tokens = 0: it must be at least 1'),
    ({'temperatures': (-1.0,)}, 'temperature'),
  ),
)
def test_a_bad_field_gets_past_the_start(tmp_path, fields, line):
  with pytest.raises(UsageError, match=line):
    losses.run(config_of('losses', **fields), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_the_default_config_does_not_read():
  config = losses.Config.of(config_of('losses'))
  assert len(config.cells) == 3 * (2 + 7 * 4)
