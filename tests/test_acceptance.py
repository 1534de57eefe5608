"""The acceptance experiment on tiny stored models, from end to end."""

import functools
import importlib
import json
import pathlib

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from tokenizers import pre_tokenizers

from specdec.base import UsageError
from specdec.experiments import (
  acceptance,
  acceptance_summary,
  drafts,
  rollouts,
)
from specdec.models import byte_bpe, functional, reduced, store
from specdec.models.config import ModelConfig
from specdec.models.tokenizer import Tokenizer
from specdec.models.weights import Checkpoint

ROOT = pathlib.Path(__file__).parents[1]
PROMPTS = ('one', 'two and two', 'a cat', 'the end', 'x', 'what was that?')
MODEL = ModelConfig(
  vocab_size=257,
  num_layers=2,
  width=16,
  hidden=16,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  max_length=128,
)
FIRST = 'half of the tokens'


def config(name, **fields):
  """configs/NAME.py with some fields changed."""
  spec = importlib.util.spec_from_file_location(
    f'{name}_config', ROOT / 'configs' / f'{name}.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  result = module.get_config()
  result.update(fields)
  return result


@functools.cache
def checkpoint():
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  pieces = {piece: i for i, piece in enumerate(['</s>', *alphabet])}
  backend = byte_bpe.build(pieces, [], byte_bpe.WORDS['gpt-2'], ['</s>'])
  words = Tokenizer(backend, None, {'eos_token': '</s>'}, [0])
  draws = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: jax.numpy.float32(0.3 * draws.normal(size=leaf.shape)),
    functional.abstract(MODEL),
  )
  return Checkpoint('tiny', MODEL, params, words, words.stop_tokens)


@pytest.fixture(scope='module')
def names(tmp_path_factory):
  """A stored target, a draft with a reduced head, rollouts, prompts."""
  folder = tmp_path_factory.mktemp('models')
  whole = checkpoint()
  store.save(whole, folder / 'target')
  ids = np.arange(0, 257, 2)
  small = reduced.cut_head(whole.params, MODEL, ids)
  store.save(whole._replace(params=small), folder / 'reduced')
  prompts = folder / 'prompts.jsonl'
  prompts.write_text(
    ''.join(json.dumps({'prompt': text}) + '\n' for text in PROMPTS)
  )
  names = {
    'target': f'orbax:{folder / "target"}',
    'reduced': f'orbax:{folder / "reduced"}',
    'rollouts': str(folder / 'collected' / rollouts.FOLDER),
    'prompts': (str(prompts),),
  }
  summary = rollouts.run(
    config(
      'rollouts',
      target=names['target'],
      prompts=names['prompts'],
      repeats=2,
      seed=1,
      max_new_tokens=8,
      batch_size=4,
    ),
    folder / 'collected',
  )
  assert summary['rows'] == 2 * len(PROMPTS)
  assert summary['tokens'] > 4 * summary['rows']
  return names


def fields(names, **changes):
  return config(
    'acceptance',
    **{
      'target': names['target'],
      'drafts': (f'{FIRST}={names["reduced"]}', f'bigram:{names["rollouts"]}'),
      'prompts': names['prompts'],
      'gamma': 1,
      'max_new_tokens': 8,
      'batch_size': 4,
      'timed_batches': 0,
      **changes,
    },
  )


@pytest.fixture(scope='module')
def workdir(names, tmp_path_factory):
  """A run that was cut off after a draft, and went on."""
  folder = tmp_path_factory.mktemp('run')
  measure, measured = acceptance.measure, []

  def cut(config, draft, *rest):
    if measured == [FIRST]:
      raise KeyboardInterrupt
    measured.append(draft.label)
    return measure(config, draft, *rest)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(acceptance, 'measure', cut)
    with pytest.raises(KeyboardInterrupt):
      acceptance.run(fields(names), folder)
  rows = (folder / 'metrics.jsonl').read_text()
  assert len(rows.splitlines()) == 2
  acceptance.run(fields(names), folder)
  # The rows that were there are still there.
  assert (folder / 'metrics.jsonl').read_text().startswith(rows)
  return folder


@pytest.fixture(scope='module')
def cells(workdir):
  summary = json.loads((workdir / 'summary.json').read_text())
  return {(c['draft'], c['temperature']): c for c in summary['cells']}


def test_a_draft_or_a_file_is_missing(workdir, cells):
  assert len(cells) == 2 * 2
  assert len((workdir / 'metrics.jsonl').read_text().splitlines()) == 4
  assert (workdir / 'figures' / 'acceptance.png').stat().st_size > 1_000


def test_a_gain_is_not_over_the_first_draft(cells):
  for (draft, temperature), cell in cells.items():
    first = cells[FIRST, temperature]
    for name in acceptance_summary.FIGURES:
      if cell[name] is not None:
        value, low, high = cell[f'{name}_gain']
        assert_allclose(value, cell[name][0] - first[name][0], atol=1e-12)
        assert low <= value <= high and (draft != FIRST or low == high == 0)


def test_the_overlap_of_a_reduced_head_is_not_the_mass_it_keeps(
  workdir, names, cells
):
  """With the target's own weights p / mass is q, so min(p, q) sums to mass."""
  texts = acceptance.rollouts.read(workdir / 'samples' / 'temperature-1')
  forward = functional.forward(MODEL)
  length = max(row.tokens.size for row in texts)
  rows = np.stack(
    [np.pad(row.tokens, (0, length - row.tokens.size)) for row in texts]
  )
  probs = jax.nn.softmax(forward(checkpoint().params, rows).logits, -1)
  mass = np.asarray(probs[:, :-1, ::2].sum(-1))
  mask = np.stack(
    [np.pad(row.mask, (0, length - row.mask.size)) for row in texts]
  )
  want = mass[mask[:, 1:]].mean()
  assert 0.2 < want < 0.8
  found = cells[FIRST, 1.0]['overlap'][0]
  assert_allclose(found, want, rtol=1e-4)


def test_figures_are_not_what_metrics_jsonl_holds(workdir, cells):
  for line in (workdir / 'metrics.jsonl').read_text().splitlines():
    row = json.loads(line)
    cell, by_prompt = cells[row['draft'], row['temperature']], row['by_prompt']
    assert {len(values) for values in by_prompt.values()} == {len(PROMPTS)}
    sums = {name: np.sum(values, 0) for name, values in by_prompt.items()}
    assert sums['drafted'] == row['drafted']
    assert sums['accepted'] == row['accepted']
    rate = sums['accepted'] / sums['drafted']
    assert_allclose(cell['accept_rate'][0], rate)
    assert_allclose(cell['overlap'][0], sums['survived'][0] / sums['starts'][0])
    assert cell['speedup'] is None  # no batch was timed


def test_a_draft_that_never_proposes_is_a_division_by_zero():
  def row(draft, drafted):
    none = [[0.0, 0.0]] * 3
    return {
      'draft': draft,
      'temperature': 1.0,
      'speedup': None,
      'by_prompt': {
        'rounds': [4, 5, 6],
        'drafted': [drafted, 0, 0],
        'accepted': [drafted, 0, 0],
        'expected': [0.0, 0.0, 0.0],
        'reached': [[4.0, 1.0], [5.0, 0.0], [6.0, 0.0]] if drafted else none,
        'survived': [[1.0, 0.5], [0.0, 0.0], [2.0, 0.0]] if drafted else none,
        'starts': [[4, 3], [5, 4], [6, 5]],
      },
    }

  given = {
    'target': 't', 'drafts': ('a', 'b'), 'gamma': 2, 'side': 'all',
    'max_new_tokens': 8, 'batch_size': 1,
  }  # fmt: skip
  some, none = acceptance_summary.summarize(given, [row('a', 2), row('b', 0)])[
    'cells'
  ]
  assert none['accept_rate'] is none['accept_rate_gain'] is None
  assert none['overlap'] == (0, 0, 0) and none['overlap_gain'].value == -0.2
  assert none['forecast_block_efficiency'] == 1
  # Some resamples draw no prompt with a draft, and have no rate.
  assert some['accept_rate'] == (1, 1, 1)
  assert some['overlap_by_position'] == [3 / 15, 0.5]
  assert_allclose(some['forecast_accept_rate_by_position'], [3 / 15, 0.5 / 12])
  assert_allclose(some['forecast_block_efficiency'], 1 + 3 / 15 + 0.5 / 12)


def test_what_a_draft_is_called():
  assert drafts.parse('ngram') == ('ngram', 'ngram', '', ())
  assert drafts.parse('bigram:a/b') == ('bigram:a/b', 'bigram', 'a/b', ())
  assert drafts.parse('before=orbax:a=b/c') == (
    'before', 'model', 'orbax:a=b/c', (),
  )  # fmt: skip
  assert drafts.parse('orbax:a=b') == ('orbax:a=b', 'model', 'orbax:a=b', ())
  assert drafts.parse('x y=m@0,2-4')[1:] == ('model', 'm', (0, 2, 3, 4))


@pytest.mark.parametrize(
  'changes, line',
  (
    ({'drafts': ()}, 'drafts = ()'),
    ({'drafts': ('ngram', 'ngram')}, 'all different'),
    ({'drafts': ('m@0,-',)}, "'m@0,-' names no layers"),
    ({'drafts': ('bigram:',)}, "draft = '': the drafter 'bigram' counts"),
    ({'drafts': ('bigram:/nowhere',)}, 'give a folder that configs/rollouts'),
    ({'gamma': 0}, 'gamma = 0'),
    ({'timed_batches': -1}, 'timed_batches = -1'),
    ({'side': 'left'}, "side = 'left'"),
    ({'held_out': 1.0}, 'held_out = 1.0'),
    ({'max_new_tokens': 200}, 'exceeds the models'),
  ),
)
def test_a_bad_field_gets_past_the_start(names, tmp_path, changes, line):
  with pytest.raises(UsageError) as error:
    acceptance.run(fields(names, **changes), tmp_path / 'run')
  assert line in str(error.value) and '\n' not in str(error.value)
  assert not (tmp_path / 'run').exists()
