"""Finished runs side by side, on small workdirs made by hand."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

from specdec.base import UsageError
from specdec.experiments import compare, compared_runs, intervals

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = {'target': 't', 'draft': 'd', 'prompts': '', 'seed': 0}


def write(folder, summary, config=(), rows=(), device='cpu'):
  """A finished run."""
  folder.mkdir(parents=True)
  (folder / 'summary.json').write_text(json.dumps(summary))
  (folder / 'config.json').write_text(json.dumps(CONFIG | dict(config)))
  (folder / 'versions.json').write_text(json.dumps({'device': device}))
  lines = ''.join(json.dumps(row) + '\n' for row in rows)
  (folder / 'metrics.jsonl').write_text(lines)
  return folder


def counts(seed, rate):
  """What 20 prompts count; how hard each is depends on it alone."""
  rounds = np.random.default_rng(0).integers(5, 30, 20)
  hard = np.random.default_rng(1).uniform(0.2, 0.8, 20)
  accepted = np.random.default_rng(seed).binomial(2 * rounds, rate * hard)
  return {
    'rounds': rounds.tolist(),
    'drafted': (2 * rounds).tolist(),
    'accepted': accepted.tolist(),
  }


def rules_run(folder, draw, rate, num=20, **config):
  """A run with two rules at two gammas, as experiments/rules.py leaves it."""
  rows, cells = [], []
  for rule in ('token', 'block'):
    for gamma in (2, 4):
      by_prompt = {n: x[:num] for n, x in counts(draw + gamma, rate).items()}
      parts = np.add(by_prompt['rounds'], by_prompt['accepted'])
      key = {'rule': rule, 'gamma': gamma, 'temperature': 1.0}
      rows.append({**key, 'by_prompt': by_prompt})
      found = intervals.ratio(parts, by_prompt['rounds'])
      cells.append({**key, 'block_efficiency': found, 'lossless': True})
      cells[-1]['accept_rate_by_position'] = [0.5, 0.4, 0.6]
  return write(folder, {'cells': cells, 'seed': 0}, config, rows)


def simulated_run(folder, speeds, overlaps=(0.5, 0.9)):
  cells = [
    {'target': '2x8', 'gamma': 4, 'overlap': x, 'speedup': speed, 'c': 0.1}
    for x, speed in zip(overlaps, speeds, strict=True)
  ]
  summary = {'compile_s': sum(speeds), 'versions': {'jax': 1}, 'cells': cells}
  return write(folder, summary, {'overlaps': list(overlaps)})


def lines_of(summary, figure):
  return [line for line in summary['lines'] if line['figure'] == figure]


def test_cells_are_not_matched_or_a_pair_has_no_interval(tmp_path, capsys):
  first = rules_run(tmp_path / 'first', 0, 0.5)
  second = rules_run(tmp_path / 'second', 50, 0.9, seed=1)
  summary = compare.run([first, second], tmp_path / 'out')
  assert summary['keys'] == ['rule', 'temperature', 'gamma']
  lines = lines_of(summary, 'block_efficiency')
  assert len(lines) == len(summary['lines']) == 4
  for line in lines:
    gamma = line['cell']['gamma']
    sums = [counts(seed + gamma, r) for seed, r in ((50, 0.9), (0, 0.5))]
    parts = [(np.add(x['rounds'], x['accepted']), x['rounds']) for x in sums]
    (found,) = line['paired']
    assert_allclose(found, intervals.ratio_difference(*parts))
    assert_allclose(found[0], line['values'][1][0] - line['values'][0][0])
    assert 0 < found[1] < found[0] < found[2]
  assert summary['config'] == [{'field': 'seed', 'values': [0, 1]}]
  assert summary == json.loads((tmp_path / 'out' / 'summary.json').read_text())
  figures = list((tmp_path / 'out' / 'figures').iterdir())
  assert [path.name for path in figures] == ['block_efficiency_by_gamma.png']
  assert figures[0].stat().st_size > 10_000
  shown = capsys.readouterr().out
  assert 'paired' in shown and 'no paired intervals' not in shown


@pytest.mark.parametrize(
  'config', ({'num': 19}, {'prompts': 'other.jsonl'}, {'side': 'held_out'})
)
def test_different_prompts_are_paired(tmp_path, capsys, config):
  first = rules_run(tmp_path / 'first', 0, 0.5)
  second = rules_run(tmp_path / 'second', 50, 0.9, **config)
  summary = compare.run([first, second], tmp_path / 'out')
  assert summary['unpaired'] == 'second and first decoded different prompts'
  assert all(line['paired'] == [None] for line in summary['lines'])
  assert 'no paired intervals: second and first' in capsys.readouterr().out


def test_three_runs_without_prompts_or_gammas(tmp_path, capsys):
  runs = [
    simulated_run(tmp_path / name, speeds)
    for name, speeds in (('a', (1, 2)), ('b', (1.5, 2)), ('c', (3, 4)))
  ]
  summary = compare.run(runs, tmp_path / 'out')
  assert summary['keys'] == ['target', 'gamma', 'overlap']
  speedups = lines_of(summary, 'speedup')
  assert [line['values'] for line in speedups] == [[1, 1.5, 3], [2, 2, 4]]
  assert [line['cell']['overlap'] for line in speedups] == [0.5, 0.9]
  (whole,) = lines_of(summary, 'compile_s')
  assert whole['cell'] == {} and whole['values'] == [3, 3.5, 7]
  # An overlap that was chosen is no figure, and one gamma is no axis.
  assert not lines_of(summary, 'overlap')
  assert not (tmp_path / 'out' / 'figures').exists()
  assert summary['unpaired'] == 'a holds no figures by prompt'
  shown = capsys.readouterr().out
  assert '+50.0' in shown and 'compile_s' not in shown
  compare.run(runs, tmp_path / 'out', ['compile_s'])
  assert 'compile_s' in capsys.readouterr().out


def test_kinds_of_runs_meet_where_their_cells_do(tmp_path):
  # One run tells its gamma in the config, and rules only the other one.
  offline = write(
    tmp_path / 'offline',
    {'cells': [{'draft': 'd', 'temperature': 1.0, 'speedup': 1.2}]},
    {'gamma': 2},
  )
  cells = [
    {'rule': rule, 'gamma': gamma, 'temperature': 1.0, 'speedup': speed}
    for rule, gamma, speed in (('token', 2, 1.4), ('token', 4, 2.0))
  ]
  loop = write(tmp_path / 'loop', {'cells': cells})
  summary = compare.summarize(compared_runs.read([offline, loop]))
  (line,) = summary['lines']
  assert summary['unmatched'] == [0, 1]
  assert line['values'] == [1.2, 1.4]
  assert line['cell'] == {'draft': 'd', 'temperature': 1.0, 'gamma': 2}
  # Two rules at that gamma: which of them is meant?
  cells.append(cells[0] | {'rule': 'block'})
  twice = write(tmp_path / 'twice', {'cells': cells})
  with pytest.raises(UsageError, match='their summaries share no figure'):
    compare.summarize(compared_runs.read([offline, twice]))


def test_what_cannot_be_compared_is_one_line(tmp_path):
  first = simulated_run(tmp_path / 'first', (1, 2))
  other = write(tmp_path / 'other', {'verdict': 'yes', 'share': 0.5})
  empty = tmp_path / 'empty'
  empty.mkdir()
  broken = write(tmp_path / 'broken', {})
  (broken / 'summary.json').write_text('{')
  for workdirs, words in (
    ((first,), 'give two or more'),
    ((first, first), 'all different'),
    ((first, empty), f"workdir = '{empty}': it has no summary.json"),
    ((first, tmp_path / 'no'), 'it has no summary.json'),
    ((first, broken), 'is no JSON'),
    ((first, other), 'first, other: their summaries share no figure'),
  ):
    with pytest.raises(UsageError) as error:
      compare.run(workdirs, tmp_path / 'out')
    assert words in str(error.value) and '\n' not in str(error.value)
  second = simulated_run(tmp_path / 'second', (1, 2))
  with pytest.raises(UsageError, match="'speed': the runs share no such"):
    compare.run([first, second], tmp_path / 'out', ['speed'])
  assert not (tmp_path / 'out').exists()


def test_the_command_ends_with_a_traceback(tmp_path):
  command = [sys.executable, str(ROOT / 'scripts' / 'compare.py'), 'a', 'b']
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode == 2 and done.stdout == ''
  assert done.stderr == (
    "error: workdir = 'a': it has no summary.json; give the folder of a"
    ' finished run\n'
  )
