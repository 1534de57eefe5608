"""The two experiments on the mathematics, run small and whole."""

import json
import pathlib
import runpy

import ml_collections
import numpy as np
import pytest
from PIL import Image

from specdec import rng
from specdec.base import UsageError
from specdec.experiments import article, published
from specdec.plots import article as plots

ROOT = pathlib.Path(__file__).parents[1]
FIGURES = (
  '1_envelopes',
  '2_candidates',
  '3_histograms',
  '4_residual',
  '5_speedup',
)


def default(name):
  return runpy.run_path(str(ROOT / 'configs' / f'{name}.py'))['get_config']()


def small(**changes):
  config = default('article')
  config.update(proposals=20_000, shown=500, rounds=100_000)
  config.update(changes)
  return config


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('runs') / 'article'
  return article.run(small(), workdir), workdir


def test_every_figure_of_the_article_is_met(finished):
  # 20,000 candidates an envelope and 100,000 rounds: each within 3 standard
  # errors.
  summary, workdir = finished
  assert json.loads((workdir / 'summary.json').read_text()) == summary
  assert summary['compared'] == summary['within_3_standard_errors'] == 11
  assert round(summary['normaliser'], 5) == 5.73807
  for row in summary['figures'].values():
    off = row['ours'] - row['article']
    if row['standard_error']:
      assert abs(off / row['standard_error'] - row['deviation']) < 1e-9
    else:
      assert off == 0
  rows = (workdir / 'metrics.jsonl').read_text().splitlines()
  assert [json.loads(row) for row in rows] == list(summary['figures'].values())


def test_accepted_and_replaced_make_the_whole(finished):
  curves = np.load(finished[1] / 'curves.npz')
  assert curves['drafted'].sum() == 100_000
  assert (curves['accepted'] + curves['replaced']).sum() == 100_000
  assert np.all(curves['accepted'] <= curves['drafted'])
  # Drafts are rare nowhere that the target is rarer: cat is never the residual.
  assert curves['replaced'][0] == 0


def test_a_rule_that_replaces_from_the_target_itself_is_caught():
  # Residual p instead of max(p - q, 0): 30 % of rounds would give p = .3 cat.
  row = article.compare('cat in all', 39_000, 100_000, 10_000, 3_000.0, 3_000)
  assert row['deviation'] > 3
  assert article.compare('never', 1, 10, 100, 0.0, 0)['deviation'] == np.inf
  assert article.compare('never', 0, 10, 100, 0.0, 0)['deviation'] == 0


def test_figures_are_drawn_from_the_files_alone(finished, tmp_path):
  for name in ('config.json', 'curves.npz'):
    (tmp_path / name).write_bytes((finished[1] / name).read_bytes())
  plots.draw(tmp_path)
  for name in FIGURES:
    file = f'figures/{name}.png'
    again, before = Image.open(tmp_path / file), Image.open(finished[1] / file)
    assert np.array_equal(again, before)
    # Something is drawn, and there is room around it.
    pixels = np.asarray(again.convert('L'))
    assert pixels.shape == (800, 1760)
    assert pixels.std() > 10
    for border in (pixels[:8], pixels[-8:], pixels[:, :8], pixels[:, -8:]):
      assert border.min() == 255


def test_a_seed_fixes_all_draws_whatever_else_changes(finished, tmp_path):
  config = small(normal_constant=12.0, alphas=(1.0,), shown=1)
  ours = article.run(config, tmp_path / 'run')['figures']
  before = finished[0]['figures']
  differ = [name for name in ours if ours[name] != before[name]]
  assert differ == ['accepted under the normal, %']
  # No figure was printed for this constant: the exact value is the reference.
  row = ours[differ[0]]
  assert row['article'] is None
  assert abs(row['exact'] - 100 * 5.73807 / 12) < 1e-4
  assert abs(row['deviation']) < 3
  # At overlap 1 the longest draft is the best.
  assert np.load(tmp_path / 'run' / 'curves.npz')['best_gammas'] == [16]


def test_another_seed_draws_anew():
  first, second = (
    article.simulate_rounds(rng.sequence_keys(seed, 100_000)) for seed in (0, 1)
  )
  assert not np.array_equal(first, second)


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'normal_constant': 5.0}, r'normal_constant = 5: .* at x = -?\d.*least C'),
    ({'uniform_constant': 20.0}, r'uniform_constant = 20: .* at x = -0\.36'),
    ({'proposals': 99}, 'proposals = 99: it must be at least 100'),
    ({'shown': 20_001}, r'shown = 20001: it must be in 1\.\.20000'),
    ({'rounds': 0}, 'rounds = 0: it must be at least 1'),
    ({'alphas': (0.5, 1.5)}, r'alphas = \(0.5, 1.5\): .* in \[0, 1\]'),
    ({'alphas': ()}, 'alphas = .*one or more'),
    ({'c': 0.0}, 'c = 0.0: it must be above 0'),
    ({'max_gamma': 0}, 'max_gamma = 0: it must be at least 1'),
  ],
)
def test_bad_fields_end_before_anything_is_written(changes, message, tmp_path):
  with pytest.raises(UsageError, match=message):
    article.run(small(**changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_every_published_figure_is_reproduced_or_within_rounding(tmp_path):
  summary = published.run(default('published'), tmp_path / 'run')
  assert summary['lines'] == 39
  assert summary[published.REPRODUCED] == 36
  assert summary[published.WITHIN_ROUNDING] == 3
  assert summary[published.DOES_NOT_FOLLOW] == 0
  assert {row['setting'] for row in summary['not_reproduced']} == {
    'alpha 0.68, gamma 5, c 0.04',
    'alpha 0.71, gamma 3, c 0.11',
    'alpha 0.56, gamma 3, c 0.11',
  }
  rows = (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()
  assert len(rows) == 39


def test_a_figure_that_does_not_follow_is_shown(monkeypatch, tmp_path, capsys):
  # Two figures of table 4 swapped, and one altered by a unit.
  table = list(published.TABLE_4)
  table[0] = (7, '0.75', '0.02', '3.3')
  table[4] = (5, '0.68', '0.04', '2.9')
  monkeypatch.setattr(published, 'TABLE_4', tuple(table))
  summary = published.run(default('published'), tmp_path / 'run')
  assert summary['lines'] == 39
  assert summary[published.DOES_NOT_FOLLOW] == 1
  shown = [row for row in capsys.readouterr().out.splitlines() if '2.9' in row]
  assert any(published.DOES_NOT_FOLLOW in row for row in shown)


@pytest.mark.parametrize(
  'printed, inputs, verdict',
  [
    ('2.0', (1.95,), published.REPRODUCED),
    ('2.0', (1.94,), published.DOES_NOT_FOLLOW),
    ('2.0', ('1.94',), published.DOES_NOT_FOLLOW),  # to 1.945
    ('2.0', ('1.9',), published.WITHIN_ROUNDING),  # to 1.95
    ('2.0', ('3',), published.DOES_NOT_FOLLOW),  # from 2.5
    ('2', ('3',), published.WITHIN_ROUNDING),  # from 2.5, and 2 reaches it
  ],
)
def test_verdicts_take_rounding_from_the_printed_digits(
  printed, inputs, verdict
):
  line = published.Line('source', 'setting', printed, lambda x: x, inputs)
  assert published.check(line)['verdict'] == verdict


@pytest.mark.parametrize('field', ['panels', 'grid_points'])
def test_published_fields_are_validated(field, tmp_path):
  config = default('published')
  config[field] = 0
  with pytest.raises(UsageError, match=f'{field} = 0: it must be at least'):
    published.run(config, tmp_path / 'run')


@pytest.mark.parametrize('name', ['article', 'published'])
def test_a_config_names_its_experiment_and_its_card(name):
  config = default(name)
  assert isinstance(config, ml_collections.ConfigDict)
  assert config.experiment == name
  card = (ROOT / 'configs' / f'{name}.py').read_text()
  for heading in ('Source:', 'Command:', 'Time:', 'Expected:'):
    assert heading in card
