"""A draft for a tiny target: every phase, cut off in each, and refusals."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_acceptance import MODEL, checkpoint, config

from specdec.base import UsageError
from specdec.data import packing
from specdec.experiments import acceptance, pipeline
from specdec.experiments import pipeline_phases as phases
from specdec.models import hf, load, reduced, store
from specdec.train import rollouts

WORDS = ('one', 'two', 'cat', 'mat', 'sun', 'sea')
FIT = {
  'steps': 6,
  'batch_size': 4,
  'peak_rate': 0.03,
  'warmup_steps': 1,
  'checkpoint_every': 3,
  'held_out_rows': 4,
}
MEASURE = {
  'gamma': 1,
  'temperatures': (1.0,),
  'prompts': 3,
  'report_prompts': 3,
  'max_new_tokens': 6,
  'batch_size': 3,
  'timed_batches': 0,
}


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """A stored target and two files of prompts."""
  folder = tmp_path_factory.mktemp('given')
  store.save(checkpoint(), folder / 'target')
  texts = [f'{a} {b}' for a in WORDS for b in WORDS]
  for name, part in (('asked', texts[:30]), ('report', texts[30:])):
    lines = [json.dumps({'prompt': text}) + '\n' for text in part]
    (folder / f'{name}.jsonl').write_text(''.join(lines))
  return folder


def fields(files, **changes):
  target = f'orbax:{files / "target"}'
  return config(
    'distill_smollm2',
    **{
      'target': target,
      'draft': target,
      'draft_layers': (1,),
      'head_tokens': 128,
      'prompts': str(files / 'asked.jsonl'),
      'report_prompts': str(files / 'report.jsonl'),
      'held_out': 0.3,
      'rollout_tokens': 200,
      'rollout_new_tokens': 8,
      'rollout_batch_size': 8,
      'prompt_tokens': 5,
      'fit': FIT,
      'measure': MEASURE,
      **changes,
    },
  )


def cut(function, at):
  """A function that is interrupted at its call number `at`."""
  calls = []

  def call(*args, **options):
    calls.append(0)
    if len(calls) == at:
      raise KeyboardInterrupt
    return function(*args, **options)

  return call


@pytest.fixture(scope='module')
def workdir(files, tmp_path_factory):
  """A run that was cut off in each phase, and went on."""
  folder = tmp_path_factory.mktemp('pipeline') / 'run'
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(phases, 'drafts', one_draft)
    for owner, name, at in (
      (rollouts, '_write', 3),
      (packing.Batches, '__next__', 5),
      (acceptance, 'measure', 2),
      (phases, 'find_limits', 1),
    ):
      before = {p: p.read_bytes() for p in folder.rglob('*.npz')}
      with pytest.MonkeyPatch.context() as inner:
        inner.setattr(owner, name, cut(getattr(owner, name), at))
        with pytest.raises(KeyboardInterrupt):
          pipeline.run(fields(files), folder)
      assert all(path.read_bytes() == x for path, x in before.items())
      assert not (folder / 'summary.json').exists()
    pipeline.run(fields(files), folder)
  assert not list(folder.parent.glob('run.*'))
  return folder


def one_draft(workdir):
  """The others would only compile: test_acceptance.py measures several."""
  return (f'distilled=orbax:{workdir / phases.DISTILLED / "model"}',)


@pytest.fixture(scope='module')
def summary(workdir):
  return json.loads((workdir / 'summary.json').read_text())


def test_a_phase_is_lost_or_done_twice(workdir, summary):
  lines = (workdir / phases.DISTILLED / 'metrics.jsonl').read_text()
  steps = [json.loads(line)['step'] for line in lines.splitlines()]
  assert steps == list(range(1, 7))
  assert summary['seconds'] is None
  assert (workdir / 'figures' / 'pipeline.png').stat().st_size > 1_000
  for name in phases.SETS:
    measured = workdir / phases.MEASURED / name
    assert len((measured / 'metrics.jsonl').read_text().splitlines()) == 1
    assert not list(measured.parent.glob(f'{name}.*'))


def test_rollouts_stop_early_or_late_or_ask_what_is_held_out(
  workdir, files, summary
):
  rows = rollouts.read(workdir / phases.ROLLOUTS)
  said = [int(row.mask.sum()) for row in rows]
  assert sum(said) == summary['rollouts']['tokens']
  assert sum(said[:-8]) < 200 <= sum(said)
  asked, held = (
    {tuple(row.tokens[~row.mask]) for row in rollouts.read(workdir / name)}
    for name in (phases.ROLLOUTS, phases.REPLIES)
  )
  assert held and not asked & held


def test_the_curve_does_not_end_at_the_overlap_of_the_draft(summary):
  """Both are 1 - total variation, on the same replies."""
  found = summary['limits'][phases.HELD_OUT]
  (none, first), *_, (seen, last) = summary['curve']
  assert none == 0 and seen > 0 and len(summary['curve']) == 3
  assert_allclose(first, found['undistilled'][0], rtol=1e-5)
  assert_allclose(last, found['distilled'][0], rtol=1e-5)
  for name in (phases.ROLLOUTS, *phases.SETS):
    found = summary['limits'][name]
    assert found['distilled'][0] < found['head'][0] < 1
    assert found['undistilled'][0] < found['distilled'][0]


def test_the_head_has_not_the_tokens_of_the_rollouts(workdir, summary):
  draft = load.load(f'orbax:{summary["export"]}')
  assert isinstance(draft.params, reduced.Reduced)
  assert draft.config.num_layers == 1
  rows = rollouts.read(workdir / phases.ROLLOUTS)
  counts = np.bincount(
    np.concatenate([row.tokens[row.mask] for row in rows]), minlength=257
  )
  ids = np.asarray(draft.params.ids)
  assert ids.size == 128
  assert counts[ids].sum() == np.sort(counts)[-128:].sum()


def test_a_draft_of_all_tokens_is_no_hugging_face_folder(tmp_path):
  whole = checkpoint()
  folder = phases.export_draft(tmp_path, whole)
  assert folder == phases.export_draft(tmp_path, whole)
  assert hf.load(folder).config.num_layers == MODEL.num_layers


@pytest.mark.parametrize(
  'changes, line',
  (
    ({'prompts': ''}, "prompts = '': give JSON Lines files of prompts that"),
    ({'prompts': 'a,'}, "prompts = 'a,': give"),
    ({'report_prompts': ''}, "report_prompts = '': give JSON Lines files"),
    ({'report_prompts': 'no/such'}, "'no/such'"),
    ({'head_tokens': 258}, 'head_tokens = 258: it must be at most the .* 257'),
    ({'draft_layers': (2,)}, r'layers = \(2,\): give some of 0..1'),
    ({'draft': ''}, r'draft_layers = \(1,\): they are cut from'),
    ({'rollout_tokens': 0}, 'rollout_tokens = 0'),
    ({'rollout_new_tokens': 200}, "exceeds the models' context"),
    ({'held_out': 1.0}, 'held_out = 1.0'),
    ({'measure': {'temperatures': (0.0,)}}, 'it must be some, 1 among them'),
    ({'measure': {'gamma': 0}}, 'gamma = 0'),
    ({'loss': 'cross_entropy'}, "loss = 'cross_entropy'"),
  ),
)
def test_a_bad_field_gets_past_the_start(files, tmp_path, changes, line):
  with pytest.raises(UsageError, match=line) as caught:
    pipeline.run(fields(files, **changes), tmp_path / 'run')
  assert '\n' not in str(caught.value)
  assert not (tmp_path / 'run').exists()


def test_the_default_config_does_not_refuse_alone():
  with pytest.raises(UsageError, match="prompts = ''"):
    pipeline.Config.of(config('distill_smollm2'))
  given = {'prompts': 'a,b', 'report_prompts': 'c'}
  found = pipeline.Config.of(config('distill_smollm2', **given))
  assert found.files('prompts') == ('a', 'b')
  assert found.acceptance('report', ())['prompts'] == ('c',)
