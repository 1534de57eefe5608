"""The generate experiment from end to end, on tiny random checkpoints."""

import json
import string

import jax
import numpy as np
import pytest
import tiny_models
from test_run import config

from specdec import metrics
from specdec.base import UsageError
from specdec.experiments import generate, report
from specdec.models import byte_bpe

REQUIRED = {
  *('target', 'drafter', 'rule', 'gamma', 'temperature', 'rows', 'tokens'),
  *('rounds', 'drafted', 'accepted', 'committed', 'accept_rate'),
  *('block_efficiency', 'accept_rate_by_position', 'speedup'),
  *('autoregressive_tokens_per_s', 'speculative_tokens_per_s'),
  *('greedy_mismatches', 'ties', 'compile_s'),
}
PROMPTS = ('a cat and a cat and', 'the end', 'one two one two one', 'x')
NEW_TOKENS = 12
SPECIAL = ['<pad>', '<s>', '</s>']
MERGES = [
  ('t', 'h'),
  ('a', 'n'),
  ('i', 'n'),
  ('r', 'e'),
  ('o', 'n'),
  ('e', 'r'),
]


def write_model(folder, noise=0.0, swap=False, **changes):
  """A checkpoint with a tokenizer of 48 ids. Returns its name."""
  # One layer: nearly all the time of a run is compilation.
  fields = tiny_models.config('Llama', num_hidden_layers=1, **changes)
  draw = np.random.default_rng(0)
  arrays = {
    name: array + noise * draw.normal(size=array.shape)
    for name, array in tiny_models.tensors(fields).items()
    if '.layers.1.' not in name
  }
  tiny_models.write_checkpoint(folder, fields, arrays)
  letters = [*string.ascii_lowercase, *string.digits, 'Ġ', '.', ',']
  if swap:
    letters[4:6] = 'fe'
  pieces = [*SPECIAL, *letters, *map(''.join, MERGES)]
  assert len(pieces) == tiny_models.VOCAB
  ids = {piece: token for token, piece in enumerate(pieces)}
  backend = byte_bpe.build(ids, MERGES, byte_bpe.WORDS['gpt-2'], SPECIAL)
  backend.save(str(folder / 'tokenizer.json'))
  return f'hf:{folder}'


@pytest.fixture(scope='module')
def names(tmp_path_factory):
  """Where the models and the prompts are."""
  folder = tmp_path_factory.mktemp('models')
  (folder / 'prompts.jsonl').write_text(
    ''.join(
      json.dumps({'prompt': text, 'kind': f'kind {i % 2}'}) + '\n'
      for i, text in enumerate(PROMPTS)
    )
  )
  return {
    'target': write_model(folder / 'target'),
    'draft': write_model(folder / 'draft', noise=0.05),
    'swapped': write_model(folder / 'swapped', swap=True),
    'prompts': str(folder / 'prompts.jsonl'),
  }


def fields(names, **changes):
  """A small run; without changes it is the n-gram drafter, greedy."""
  return {
    'target': names['target'],
    'draft': names['draft'],
    'prompts': names['prompts'],
    'max_new_tokens': NEW_TOKENS,
    'gamma': 3,
    'ngram__min_match': 1,
    **changes,
  }


def read(workdir):
  """summary.json and the rows of metrics.jsonl."""
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  summary = json.loads((workdir / 'summary.json').read_text())
  return summary, [json.loads(line) for line in lines]


@pytest.fixture(scope='module')
def run(names, tmp_path_factory):
  """A function that runs the experiment, once for equal changes."""
  done = {}

  def run(**changes):
    key = tuple(sorted(changes.items()))
    if key not in done:
      workdir = tmp_path_factory.mktemp('run')
      generate.run(config(**fields(names, **changes)), workdir)
      done[key] = read(workdir)
    return done[key]

  return run


NGRAM = {'drafter': 'ngram', 'batch_size': 1}
MODEL = {'drafter': 'model', 'batch_size': 3}
SAMPLED = {'sampling__temperature': 1.0, 'baseline': False}
RUNS = [
  NGRAM,
  MODEL,
  {**MODEL, **SAMPLED},
  {**NGRAM, **SAMPLED, 'gamma': 0},
]


@pytest.mark.slow
@pytest.mark.parametrize('changes', RUNS)
def test_a_figure_that_people_quote_is_absent(run, names, changes):
  summary, rows = run(**changes)
  assert set(summary) >= REQUIRED
  assert summary['target'] == names['target']
  assert summary['drafter'] == changes['drafter']
  assert summary['gamma'] == len(summary['accept_rate_by_position'])
  baseline = changes.get('baseline', True)
  greedy = 'sampling__temperature' not in changes
  for name in ('autoregressive_tokens_per_s', 'speedup'):
    assert (summary[name] is not None) == baseline
  for name in ('greedy_mismatches', 'ties'):
    assert (summary[name] is not None) == (baseline and greedy)


@pytest.mark.slow
@pytest.mark.parametrize('changes', RUNS)
def test_fillers_of_the_last_batch_are_counted(run, changes):
  summary, rows = run(**changes)
  assert [row['row'] for row in rows] == [*range(len(PROMPTS))]
  assert [row['prompt'] for row in rows] == [*PROMPTS]
  assert summary['rows'] == len(PROMPTS)
  for name in ('tokens', 'rounds', 'drafted', 'accepted', 'committed'):
    assert summary[name] == sum(row[name] for row in rows)
    kinds = summary['kinds'].values()
    if name != 'committed':
      assert summary[name] == sum(kind[name] for kind in kinds)
  for row in rows:
    assert row['tokens'] == len(row['token_ids']) == row['committed']
    assert row['tokens'] <= row['rounds'] + row['accepted']
    assert row['accepted'] <= row['drafted']
    assert row['finish_reason'] in ('stop', 'budget')
    assert (row['tokens'] == NEW_TOKENS) or row['finish_reason'] == 'stop'


@pytest.mark.slow
@pytest.mark.parametrize('changes', RUNS)
def test_a_rate_is_not_the_quotient_of_its_counts(run, changes):
  summary, _ = run(**changes)
  assert summary['block_efficiency'] == summary['tokens'] / summary['rounds']
  if changes.get('gamma') == 0:
    assert summary['accept_rate'] is None
    assert summary['tokens'] == summary['rounds']
  else:
    rate = summary['accepted'] / summary['drafted']
    assert summary['accept_rate'] == rate
    assert 0 < rate < 1, 'the case tests nothing'


@pytest.mark.slow
def test_greedy_output_depends_on_drafter_or_batch(run):
  outputs = []
  for changes in RUNS:
    summary, rows = run(**changes)
    if summary['temperature'] == 0:
      assert summary['greedy_mismatches'] == summary['ties'] == 0
      outputs.append([row['token_ids'] for row in rows])
  assert len(outputs) == 2
  assert outputs[0] == outputs[1]


@pytest.mark.slow
@pytest.mark.parametrize('changes', RUNS)
def test_marks_change_the_text(run, changes):
  _, rows = run(**changes)
  for row in rows:
    text = report.marked(row)
    for mark in (report.OPEN, report.CLOSE):
      text = text.replace(mark, '')
    assert text == ''.join(row['pieces'])
    assert report.coloured(row).plain == text


def test_marks_stand_around_something_else_than_accepted_drafts():
  def marked(drafted):
    pieces = ['a', 'b', ' c', 'd']
    return report.marked({'pieces': pieces, 'from_draft': drafted})

  assert marked([False] * 4) == 'ab cd'
  assert marked([True] * 4) == '‹ab cd›'
  assert marked([False, True, True, False]) == 'a‹b c›d'
  assert marked([True, False, False, True]) == '‹a›b c‹d›'


def refusal(workdir, names, **changes):
  with pytest.raises(UsageError) as error:
    generate.run(config(**fields(names, **changes)), workdir)
  assert not workdir.exists()
  return str(error.value)


def test_a_draft_of_another_vocabulary_is_taken(tmp_path, names):
  line = refusal(
    tmp_path / 'run', names, drafter='model', draft=names['swapped']
  )
  assert "id 7 is 'f', not 'e'" in line
  assert names['swapped'] in line


def test_a_prompt_beyond_the_context_is_compiled_first(
  tmp_path, names, monkeypatch
):
  monkeypatch.setattr(jax, 'jit', None)  # nothing gets that far
  path = tmp_path / 'prompts.jsonl'
  path.write_text('{"prompt": "x"}\n' + json.dumps({'prompt': 'x' * 53}))
  line = refusal(tmp_path / 'run', names, prompts=str(path))
  assert 'prompt 2 has 53 tokens' in line
  assert f'max_new_tokens = {NEW_TOKENS}' in line
  assert 'context of 64' in line


def test_a_draft_runs_beyond_its_own_context(tmp_path, names):
  short = write_model(tmp_path / 'short', max_position_embeddings=16)
  line = refusal(tmp_path / 'run', names, drafter='model', draft=short)
  assert 'context of 16' in line


@pytest.mark.parametrize(
  'token, logprob, differs, tie',
  (
    (5, -1.0, False, False),
    (6, -1.0005, True, True),
    (6, -1.5, True, False),
  ),
)
def test_a_mismatch_hides_behind_a_tie(token, logprob, differs, tie):
  plain = {'tokens': [4, 5, 7], 'logprobs': [-0.1, -1.0, -0.2]}
  ours = {'tokens': [4, token, 7], 'logprobs': [-0.1, logprob, -0.2]}
  assert generate.compare(plain, ours) == (differs, tie)
  # What is cut short differs, and is no tie.
  assert generate.compare(plain, {k: v[:2] for k, v in plain.items()}) == (
    True,
    False,
  )


def test_a_temperature_that_acts_as_zero_counts_as_sampling():
  assert generate.Config.of(config(sampling__temperature=1e-9)).decode.greedy
  assert not generate.Config.of(config(sampling__temperature=0.5)).decode.greedy


def test_a_prompt_of_no_known_letter_is_found_after_others(tmp_path, names):
  path = tmp_path / 'prompts.jsonl'
  path.write_text('{"prompt": "x"}\n{"prompt": "ABC"}')
  line = refusal(tmp_path / 'run', names, prompts=str(path))
  assert 'prompt 2 has 0 tokens' in line


def test_an_earlier_run_is_overwritten(tmp_path):
  for seed in (0, 1, 2):
    workdir = metrics.start(tmp_path / 'run', {'seed': seed})
    metrics.append(workdir, {'seed': seed})
    metrics.summarize(workdir, {'seed': seed})
  for seed, name in enumerate(('run.1', 'run.2', 'run')):
    summary, rows = read(tmp_path / name)
    config = json.loads((tmp_path / name / 'config.json').read_text())
    assert [summary, *rows, config] == [{'seed': seed}] * 3


def test_an_unfinished_run_leaves_its_rows_to_the_next(tmp_path):
  for seed in (0, 1):
    workdir = metrics.start(tmp_path / 'run', {'seed': seed})
    metrics.append(workdir, {'seed': seed})
  metrics.summarize(workdir, {})
  assert read(workdir)[1] == [{'seed': 1}]
  lost = (tmp_path / 'run.1' / 'metrics.jsonl').read_text()
  assert json.loads(lost) == {'seed': 0}


def test_rows_that_are_not_of_a_run_are_deleted(tmp_path):
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'metrics.jsonl').write_text('precious\n')
  metrics.start(tmp_path / 'run', {})
  kept = tmp_path / 'run.1' / 'metrics.jsonl'
  assert kept.read_text() == 'precious\n'


def test_a_workdir_that_is_a_file_is_a_traceback(tmp_path):
  (tmp_path / 'run').write_text('')
  with pytest.raises(UsageError, match=r'workdir = .*; give a folder'):
    metrics.start(tmp_path / 'run', {})
