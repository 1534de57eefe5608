"""The pair of the paper, at scale 1 on paper and very small in practice."""

import json

import pytest
from test_training import config_of, text  # noqa: F401, a fixture

from specdec.base import UsageError
from specdec.experiments import leviathan_pair as experiment
from specdec.experiments import training

TINY = {
  'scale': 0.01,
  'batch_size': 4,
  'gamma': 1,
  'prompts': 3,
  'prompt_tokens': 6,
  'max_new_tokens': 6,
  'decode_batch_size': 3,
  'timed_batches': 0,
}


def config(**fields):
  return experiment.Config.of(config_of('leviathan_pair', **fields))


def test_scale_1_is_not_the_published_pair():
  whole = config(scale=1.0)
  assert whole.sizes(experiment.TARGET) == training.SizeConfig(
    layers=12, width=768, hidden=3072, heads=12
  )
  assert whole.sizes(experiment.DRAFT) == training.SizeConfig(
    layers=2, width=256, hidden=1024, heads=4
  )
  assert whole.text.vocab_size == 8192
  assert whole.fit(experiment.TARGET).steps == experiment.STEPS


@pytest.mark.parametrize('scale', (1e-3, 0.05, 0.25, 0.5, 0.77))
def test_a_smaller_scale_is_another_shape(scale):
  small = config(scale=scale)
  for whole in (experiment.TARGET, experiment.DRAFT):
    sizes = small.sizes(whole)
    assert sizes.width == 64 * sizes.heads
    assert sizes.hidden == 4 * sizes.width
    assert abs(sizes.heads - max(1, scale * whole.heads)) <= 0.5
    assert abs(sizes.layers - max(1, scale * whole.layers)) <= 0.5
  found = small.sizes(experiment.TARGET), small.sizes(experiment.DRAFT)
  assert found[0].width >= found[1].width
  assert small.fit(experiment.TARGET).steps == small.fit(experiment.DRAFT).steps


def test_the_table_lacks_a_draft_or_a_temperature(text, tmp_path):  # noqa: F811
  given = config_of('leviathan_pair', text=text, **TINY)
  summary = experiment.run(given, tmp_path / 'run')
  found = {(c['draft'], c['temperature']): c for c in summary['cells']}
  names = experiment.SMALL, experiment.UNIGRAM, experiment.BIGRAM
  assert found.keys() == {(x, t) for x in names for t in (0.0, 1.0)}
  written = json.loads((tmp_path / 'run' / 'summary.json').read_text())
  assert written['published_overlap']['bigram'] == [0.05, 0.05]
  # Sentences of independent words: the last one says all but how words go on.
  one, two, model = (
    found[name, 1.0]['overlap'].value
    for name in (experiment.UNIGRAM, experiment.BIGRAM, experiment.SMALL)
  )
  assert one < two < 1 and model > one


@pytest.mark.parametrize(
  'fields, line',
  (
    ({'scale': 0.0}, r'scale = 0.0: it must be in \(0, 1\]'),
    ({'scale': 1.5}, 'scale = 1.5'),
    ({'prompts': 0}, 'prompts = 0'),
    ({'gamma': 0}, 'gamma = 0'),
    ({'text': {'source': 'no/such'}}, "source = 'no/such': no such"),
  ),
)
def test_a_bad_field_gets_past_the_start(tmp_path, fields, line):
  with pytest.raises(UsageError, match=line):
    experiment.run(config_of('leviathan_pair', **fields), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
