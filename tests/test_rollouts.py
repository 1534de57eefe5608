"""Stored rollouts: the same bits however they came, or one line why not."""

import errno
import functools
import os
import pathlib
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from specdec import rng, sampling
from specdec.base import UsageError, Weights
from specdec.decode import autoregressive, stats
from specdec.models import markov
from specdec.train import rollouts
from specdec.train.rollouts import RolloutConfig

CONFIG = RolloutConfig('chain', temperature=0.5, max_new_tokens=6, seed=3)
# Eleven rows: the last batch of four is not full.
PROMPTS = [[(7 * r + i) % 60 for i in range(1 + r % 5)] for r in range(11)]
STOPS = (5, 6, 7, 8)
VOCAB = 60


@functools.cache
def chain():
  """A decoder of a Markov table, and its weights."""
  table = jax.random.normal(jax.random.key(5), (VOCAB, VOCAB))
  return autoregressive.build(markov.build(VOCAB)), Weights(table, None)


def collect(folder, config=CONFIG, decoder=None, **changes):
  asked = {'prompts': PROMPTS, 'stops': STOPS, 'batch_size': 4} | changes
  decoder = decoder or chain()[0]
  return rollouts.collect(folder, config, decoder, chain()[1], **asked)


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
  """A collection without interruption."""
  folder = tmp_path_factory.mktemp('rollouts')
  collect(folder)
  return folder


@pytest.fixture
def copied(straight, tmp_path):
  """One to spoil."""
  return pathlib.Path(shutil.copytree(straight, tmp_path / 'copied'))


def contents(folder):
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_equal(found, wanted):
  for a, b in zip(found, wanted, strict=True):
    assert_array_equal(a.tokens, b.tokens)
    assert_array_equal(a.mask, b.mask)


def refusal(act):
  with pytest.raises(UsageError) as caught:
    act()
  assert '\n' not in str(caught.value)
  return str(caught.value)


def interrupted(decoder, at):
  """A decoder whose process hears SIGINT in batch `at`."""
  calls = []

  def generate(weights, state):
    calls.append(state)
    if len(calls) == at:
      signal.raise_signal(signal.SIGINT)
    return decoder.generate(weights, state)

  return decoder._replace(generate=generate)


def test_an_interrupted_collection_is_not_the_straight_one(straight, tmp_path):
  folder = tmp_path / 'rollouts'
  for at, held in ((2, 4), (1, 4), (2, 8)):
    with pytest.raises(KeyboardInterrupt):
      collect(folder, decoder=interrupted(chain()[0], at))
    # What is there is valid: it can be read, and is what it would be.
    assert_equal(rollouts.read(folder), rollouts.read(straight)[:held])
  collect(folder)
  assert contents(folder) == contents(straight)


def test_a_finished_collection_is_made_again(straight, copied):
  collect(copied, decoder=interrupted(chain()[0], at=1))
  assert contents(copied) == contents(straight)


def test_rollouts_depend_on_the_batch(straight, tmp_path):
  collect(tmp_path / 'rollouts', batch_size=1)
  assert_equal(rollouts.read(tmp_path / 'rollouts'), rollouts.read(straight))


def test_a_row_is_not_what_its_prompt_and_its_key_make(straight):
  rows = rollouts.read(straight)
  assert len(rows) == len(PROMPTS)
  decoder, weights = chain()
  reasons = set()
  for picks in ([9, 1, 4, 2], [0, 10, 3, 8], [7, 5, 6, 6]):
    state = decoder.init(
      weights,
      [PROMPTS[r] for r in picks],
      rng.sequence_keys(CONFIG.seed, len(PROMPTS))[jnp.array(picks)],
      sampling.params(4, CONFIG.temperature),
      CONFIG.max_new_tokens,
      STOPS,
      max(map(len, PROMPTS)) + CONFIG.max_new_tokens,
    )
    outputs = stats.outputs(decoder.generate(weights, state))
    for r, output in zip(picks, outputs, strict=True):
      tokens, mask = rows[r]
      assert tokens.dtype == np.int32 and mask.dtype == bool
      # The mask is on the reply, and on nothing else.
      assert_array_equal(mask, np.arange(tokens.size) >= len(PROMPTS[r]))
      assert_array_equal(tokens[~mask], PROMPTS[r])
      assert_array_equal(tokens[mask], output['tokens'])
      reasons.add(output['finish_reason'])
  assert reasons == {'stop', 'budget'}


def test_the_manifest_miscounts(straight):
  manifest = rollouts.read_manifest(straight)
  rows = rollouts.read(straight)
  assert (manifest['target'], manifest['temperature']) == ('chain', 0.5)
  assert manifest['rows'] == len(PROMPTS)
  assert manifest['tokens'] == sum(row.mask.sum() for row in rows)
  assert [s['start'] for s in manifest['shards']] == [0, 4, 8]
  assert [s['rows'] for s in manifest['shards']] == [4, 4, 3]
  by_shard = [rows[s['start'] :][: s['rows']] for s in manifest['shards']]
  assert [s['tokens'] for s in manifest['shards']] == [
    sum(row.mask.sum() for row in part) for part in by_shard
  ]


@pytest.mark.parametrize(
  'field, changes',
  (
    ('target', {'config': RolloutConfig('other', 0.5, 6, 3)}),
    ('temperature', {'config': RolloutConfig('chain', 1.0, 6, 3)}),
    ('max_new_tokens', {'config': RolloutConfig('chain', 0.5, 7, 3)}),
    ('seed', {'config': RolloutConfig('chain', 0.5, 6, 4)}),
    ('decoder', {'config': RolloutConfig('chain', 0.5, 6, 3, 'ngram')}),
    ('stops', {'stops': (5,)}),
    ('prompts', {'prompts': PROMPTS[:-1]}),
    ('prompts', {'prompts': [[1, 2], *PROMPTS[1:]]}),
  ),
)
def test_rollouts_of_another_setting_are_mixed_in(copied, field, changes):
  before = contents(copied)
  line = refusal(lambda: collect(copied, **changes))
  assert line.startswith(f'{field} = ') and str(copied) in line
  assert contents(copied) == before


@pytest.mark.parametrize('harm', ('cut', 'flip', 'remove'))
def test_a_broken_shard_is_read_or_stays(straight, copied, harm):
  path = copied / 'rows-00000004.npz'
  data = path.read_bytes()
  if harm == 'remove':
    path.unlink()
  elif harm == 'cut':
    path.write_bytes(data[:-40])
  else:
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
  line = refusal(lambda: rollouts.read(copied))
  assert line.startswith(f'{path}: the shard is lost or broken; run the')
  # Only that shard is made anew, the batch being as it was or not.
  collect(copied, decoder=interrupted(chain()[0], at=2))
  assert contents(copied) == contents(straight)


def test_enough_tokens_are_not_enough(straight, tmp_path):
  wanted = rollouts.read(straight)[:8]
  said = sum(int(row.mask.sum()) for row in wanted)
  folder = tmp_path / 'rollouts'
  for enough in (said // 2 + 1, said):
    assert collect(folder, enough=enough)['tokens'] >= enough
  assert_equal(rollouts.read(folder), wanted)
  collect(folder, decoder=interrupted(chain()[0], at=1), enough=said)
  collect(folder)
  assert contents(folder) == contents(straight)


def test_a_smaller_batch_fills_the_gap_of_a_lost_shard(straight, copied):
  (copied / 'rows-00000004.npz').unlink()
  collect(copied, batch_size=1)
  assert_equal(rollouts.read(copied), rollouts.read(straight))


def test_a_folder_of_something_else_is_filled(tmp_path):
  line = refusal(lambda: rollouts.read(tmp_path))
  assert 'No such file' in line and 'configs/rollouts.py' in line
  (tmp_path / 'thesis.txt').write_text('years of work')
  assert 'it holds files, but no' in refusal(lambda: collect(tmp_path))
  for foreign in ('{"shards', '[]', '{"shards": [{}], "rows": 1, "tokens": 1}'):
    (tmp_path / rollouts.MANIFEST).write_text(foreign)
    assert 'not the manifest' in refusal(lambda: collect(tmp_path))
  assert len(contents(tmp_path)) == 2


@pytest.mark.parametrize('file', ('rows-00000000.npz.part', 'manifest.part'))
def test_a_full_disk_is_a_traceback_or_leaves_half_a_file(
  tmp_path, monkeypatch, file
):
  folder = tmp_path / 'rollouts'
  write_bytes, write_text = pathlib.Path.write_bytes, pathlib.Path.write_text

  def full(path, data):
    if path.name == file:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return (write_text if isinstance(data, str) else write_bytes)(path, data)

  monkeypatch.setattr(pathlib.Path, 'write_bytes', full)
  monkeypatch.setattr(pathlib.Path, 'write_text', full)
  line = refusal(lambda: collect(folder))
  assert 'not written (No space left on device)' in line
  assert not list(folder.glob('*.npz'))
  monkeypatch.undo()
  if (folder / rollouts.MANIFEST).exists():
    assert rollouts.read(folder) == []
  collect(folder)
  assert len(rollouts.read(folder)) == len(PROMPTS)


def test_a_bad_argument_leaves_a_folder_behind(tmp_path):
  folder = tmp_path / 'rollouts'
  for line, changes in (
    ('batch_size = 0', {'batch_size': 0}),
    ('prompts: give', {'prompts': []}),
    ('prompts: give', {'prompts': [[1], []]}),
  ):
    assert refusal(lambda c=changes: collect(folder, **c)).startswith(line)
  assert 'max_new_tokens = 0' in refusal(lambda: RolloutConfig('x', 1, 0, 0))
  assert 'temperature = -1' in refusal(lambda: RolloutConfig('x', -1, 1, 0))
  assert not folder.exists()
