"""Experiments that train: one corpus to a target, a draft and a verdict."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from specdec import metrics
from specdec.base import UsageError
from specdec.data import packing
from specdec.experiments import (
  distill,
  pretrain,
  quickstart,
  sources,
  training,
)
from specdec.models import load, reduced
from specdec.train import rollouts

ROOT = pathlib.Path(__file__).parents[1]
SIZES = {'layers': 1, 'width': 8, 'hidden': 16, 'heads': 2}
FIT = {
  'steps': 60,
  'batch_size': 4,
  'peak_rate': 0.03,
  'warmup_steps': 1,
  'checkpoint_every': 30,
  'held_out_rows': 4,
}


def config_of(name, **fields):
  """A config file's fields, some of them changed."""
  path = ROOT / 'configs' / f'{name}.py'
  spec = importlib.util.spec_from_file_location(name, path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  config = module.get_config()
  config.update(fields)
  return config


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  """A corpus of sentences that none of which is like another."""
  folder = tmp_path_factory.mktemp('text')
  draws = np.random.default_rng(0)
  words = ['a', 'cat', 'sat', 'on', 'mats', 'and', 'ran', 'away', '.']
  for number in range(40):
    sentence = ' '.join(draws.choice(words, 60))
    (folder / f'{number}.txt').write_text(sentence)
  return {'source': str(folder), 'held_out': 0.2, 'row_tokens': 16}


def rows(workdir):
  text = (workdir / 'metrics.jsonl').read_text()
  return [json.loads(line) for line in text.splitlines()]


class Cut(packing.Batches):
  """Batches that end in an interruption."""

  def __next__(self):
    if self.get_state()['next_index'] == 40:
      raise KeyboardInterrupt
    return super().__next__()


@pytest.fixture(scope='module')
def pretrained(text, tmp_path_factory):
  """The workdir of a run that was interrupted after step 40 and went on."""
  workdir = tmp_path_factory.mktemp('pretrain') / 'run'
  config = config_of(
    'pretrain', text={**text, 'vocab_size': 270}, model=SIZES, fit=FIT
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(training.packing, 'Batches', Cut)
    with pytest.raises(KeyboardInterrupt):
      pretrain.run(config, workdir)
  assert not (workdir / 'summary.json').exists()
  pretrain.run(config, workdir)
  return workdir


def test_an_interrupted_run_begins_again_or_skips_a_step(pretrained):
  assert [row['step'] for row in rows(pretrained)] == list(range(1, 61))
  assert not list(pretrained.parent.glob('run.*'))
  summary = json.loads((pretrained / 'summary.json').read_text())
  assert summary['held_out_loss'] == rows(pretrained)[-1]['validation']


def test_the_trained_model_does_not_load_by_name(pretrained):
  found = load.load(f'orbax:{pretrained / training.MODEL}')
  assert found.tokenizer.size == found.config.vocab_size == 270
  assert found.tokenizer.decode(found.tokenizer.encode('a cat')) == 'a cat'


def test_a_draft_of_few_tokens_is_not_told_apart_from_what_it_was(
  pretrained, text, tmp_path
):
  name = f'orbax:{pretrained / training.MODEL}'
  source = {
    'prompt_tokens': 4,
    'new_tokens': 13,
    'refresh_steps': 45,
    'pool_rows': 24,
    'batch_size': 12,
  }
  config = config_of(
    'distill',
    target=name,
    text=text,
    size=SIZES,
    head_tokens=40,
    fit=FIT,
    prefixes='mixture',
    source=source,
  )
  summary = distill.run(config, tmp_path / 'run')
  before, after = (summary['overlap'][x] for x in ('before', 'after'))
  assert before.high < after.low
  trained = load.load(f'orbax:{tmp_path / "run" / training.MODEL}').params
  assert isinstance(trained, reduced.Reduced)
  # The embedding was trained, the ids were not: the commonest tokens.
  words = load.load(name).tokenizer.encode('a cat sat on mats and ran away .')
  assert {*words[1:]} <= {*trained.ids.tolist()}
  assert trained.ids.size == 40
  # It wrote with its own words alone, half of each pool, and learnt on them.
  for phase in range(2):
    written = rollouts.read(
      tmp_path / 'run' / sources.ROLLOUTS / 'student' / f'{phase:06d}'
    )
    assert len(written) == 12
    said = np.concatenate([row.tokens[row.mask] for row in written])
    assert np.all(np.isin(said, trained.ids))


def test_an_unfinished_run_of_another_config_is_lost(
  pretrained, text, tmp_path
):
  workdir = tmp_path / 'run'
  workdir.mkdir()
  for name in ('config.json', 'metrics.jsonl'):
    (workdir / name).write_bytes((pretrained / name).read_bytes())
  opened, kept = metrics.resume(workdir, {'another': 'config'})
  assert opened == workdir and kept == []
  assert rows(tmp_path / 'run.1') == rows(pretrained)
  assert not (workdir / 'metrics.jsonl').exists()


def test_windows_come_from_the_middle_and_short_documents_are_padded():
  long = packing.Row(np.arange(10), np.ones(10, bool))
  short = packing.Row(np.arange(3), np.array([False, True, True]))
  found = training.windows([long, short], 4)
  assert_array_equal(found.tokens, [[2, 3, 4, 5, 6], [0, 1, 2, 0, 0]])
  assert_array_equal(found.mask, [[1] * 5, [0, 1, 1, 0, 0]])


@pytest.mark.parametrize(
  'run, fields, line',
  (
    (pretrain, {'model': {'width': 100}}, 'width = 100: it must be a multiple'),
    (pretrain, {'fit': {'steps': 0}}, 'steps = 0: it must be at least 1'),
    (
      pretrain,
      {'fit': {'accumulation': 3}},
      '3: it must be a divisor',
    ),
    (pretrain, {'text': {'vocab_size': 9}}, 'vocab_size = 9: it must be at'),
    (pretrain, {'text': {'source': 'no/such'}}, "source = 'no/such': no such"),
    (pretrain, {'tokenizer': 'gpt9'}, "model 'gpt9': give hf:"),
    (pretrain, {'max_length': 64}, 'max_length = 64: it must be at least 128'),
    (distill, {'loss': 'cross_entropy'}, "loss = 'cross_entropy': it must be"),
    (distill, {'temperature': 0.0}, 'temperature = 0.0: it must be above 0'),
    (distill, {'strengths': {'k': 0}}, 'strengths.k = 0: it must be at least'),
    (distill, {'prefixes': 'words'}, "prefixes = 'words': it must be one of"),
    (distill, {'source': {'refresh_steps': 0}}, 'refresh_steps = 0: it must'),
    (distill, {'source': {'mixture': {'text': 0.9}}}, 'mixture = {.*: give'),
    (distill, {'draft_layers': (0,)}, r'draft_layers = \(0,\): they are cut'),
    (distill, {'target': 'orbax:no/such'}, 'no/such: no such folder'),
    (quickstart, {'gammas': ()}, 'gammas = 0: it must be at least 1'),
    (quickstart, {'draft_steps': 20}, 'draft_steps = 20: it must be at least'),
  ),
)
def test_a_bad_field_gets_past_the_start(tmp_path, run, fields, line):
  name = run.__name__.rpartition('.')[2]
  with pytest.raises(UsageError, match=line):
    run.run(config_of(name, **fields), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_the_default_configs_do_not_read():
  for run in (pretrain, distill, quickstart):
    run.Config.of(config_of(run.__name__.rpartition('.')[2]))
