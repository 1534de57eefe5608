"""The ablation of rules from end to end, on a tiny random checkpoint."""

import json

import numpy as np
import pytest
from test_generate import PROMPTS, write_model
from test_run import config

from specdec.base import UsageError
from specdec.experiments import rule_cost, rules
from specdec.verify import token


@pytest.fixture(scope='module')
def fields(tmp_path_factory):
  folder = tmp_path_factory.mktemp('models')
  lines = (json.dumps({'prompt': text}) + '\n' for text in PROMPTS)
  (folder / 'prompts.jsonl').write_text(''.join(lines))
  return {
    'target': write_model(folder / 'target'),
    'draft': write_model(folder / 'draft', noise=0.05),
    'draft_layers': (),
    'rules': ('token', 'block'),
    'temperatures': (1.0,),
    'gammas': (2,),
    'prompts': str(folder / 'prompts.jsonl'),
    'rounds': 5,
    'max_new_tokens': 12,
    'batch_size': 4,
  }


@pytest.fixture(scope='module')
def finished(fields, tmp_path_factory):
  workdir = tmp_path_factory.mktemp('rules') / 'run'
  return workdir, rules.run(config('rules', **fields), workdir)


def test_every_cell_has_its_intervals_and_the_baseline_no_difference(finished):
  workdir, summary = finished
  assert len(summary['cells']) == 2
  for cell in summary['cells']:
    value, low, high = cell['block_efficiency']
    assert 1 <= low <= value <= high <= 3
    assert 1 <= cell['law_block_efficiency'][0] <= 3
  assert summary['cells'][0]['above_token'] == (0, 0, 0)
  assert (workdir / 'figures' / 'rules.png').stat().st_size > 10_000


def test_every_counted_round_has_all_its_drafts(finished):
  workdir, summary = finished
  for row in map(json.loads, open(workdir / 'metrics.jsonl')):
    assert row['drafted'] == 2 * row['rounds'] <= 2 * 5 * len(PROMPTS)
    assert max(row['by_prompt']['rounds']) == 5
  # Tokens that a stop did not cut off.
  for cell in summary['cells']:
    tokens = cell['rounds'] + cell['accepted']
    assert cell['block_efficiency'][0] == tokens / cell['rounds']


def test_law_expects_what_the_coins_give(finished):
  # Over all rounds of the run, within 4 standard errors of a round's tau.
  workdir, _ = finished
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  for row in map(json.loads, lines):
    counts = row['by_prompt']
    rounds, gap = (
      sum(counts['rounds']),
      np.subtract(counts['accepted'], counts['expected']).sum(),
    )
    assert abs(gap) < 4 * np.sqrt(rounds)
    assert sum(counts['expected']) > 0


def test_an_interrupted_run_goes_on_and_repeats_no_cell(
  finished, fields, tmp_path, monkeypatch
):
  workdir, summary = finished
  lines = (workdir / 'metrics.jsonl').read_text().splitlines(keepends=True)
  again = tmp_path / 'run'
  again.mkdir()
  (again / 'config.json').write_text((workdir / 'config.json').read_text())
  # The second row was being written when the run was killed.
  (again / 'metrics.jsonl').write_text(lines[0] + lines[1][:40])
  measured = []
  measure = rules.measure

  def spy(config, decoding, batches, name, gamma, temperatures):
    measured.append((name, temperatures))
    if name == 'block':
      yield json.loads(lines[1])
    else:
      yield from measure(config, decoding, batches, name, gamma, temperatures)

  monkeypatch.setattr(rules, 'measure', spy)
  resumed = rules.run(config('rules', **fields), again)
  assert measured == [('token', []), ('block', [1.0])]
  assert resumed['cells'] == summary['cells']


@pytest.mark.parametrize(
  'changes, words',
  (
    ({'rules': ('token', 'magic')}, "rules = 'magic': it must be one of token"),
    ({'rules': ('block',)}, "add 'token', the baseline"),
    ({'gammas': (0,)}, 'gammas = 0: it must be at least 1'),
    ({'rounds': 0}, 'rounds = 0: it must be at least 1'),
    ({'rounds': 4_000}, 'max_new_tokens = 12001 it exceeds'),
    ({'temperatures': (-1.0,)}, 'sampling.temperature = -1.0'),
    ({'draft_layers': (7,)}, 'draft_layers = (7,): give some of 0..0'),
  ),
)
def test_an_impossible_ablation_is_one_line(fields, tmp_path, changes, words):
  with pytest.raises(UsageError) as error:
    rules.run(config('rules', **fields | changes), tmp_path / 'run')
  assert words in str(error.value)


def test_costs_are_ratios_to_reading_p_and_q(tmp_path, monkeypatch):
  monkeypatch.setattr(rule_cost, 'RULES', {'token': token.RULE})
  monkeypatch.setattr(rule_cost, 'lossy_rules', dict)
  options = config('rule_cost', batch_size=2, gamma=2, vocab_size=64, repeats=2)
  summary = rule_cost.run(options, tmp_path / 'run')
  assert summary['ratios']['reading p and q'] == 1
  assert summary['ratios']['token'] > 0
