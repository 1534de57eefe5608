"""Models in folders of their own: bit for bit, alone, or refused."""

import dataclasses
import errno
import functools
import json
import os
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tokenizers import pre_tokenizers

from specdec import pytree
from specdec.base import UsageError
from specdec.models import byte_bpe, functional, load, reduced, store
from specdec.models.config import TINY, Rope
from specdec.models.tokenizer import Tokenizer
from specdec.models.weights import Checkpoint

CONFIG = dataclasses.replace(
  TINY,
  vocab_size=300,
  num_layers=1,
  rope=Rope(kind='divided', divisors=(1.0, 1.5, 2.0, 4.0)),
  tie_embeddings=True,
  qk_norm=True,
  sliding_window=9,
)
TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}"


def vocabulary():
  special = ['<s>', '</s>']
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  pieces = {p: i for i, p in enumerate([*special, *alphabet])}
  backend = byte_bpe.build(pieces, [], byte_bpe.WORDS['gpt-2'], special)
  return Tokenizer(backend, TEMPLATE, {'eos_token': '</s>'}, [7])


@functools.cache
def checkpoint(dtype=jnp.float32):
  draws = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: jnp.array(draws.normal(size=leaf.shape), dtype),
    functional.abstract(CONFIG),
  )
  words = vocabulary()
  return Checkpoint('draft', CONFIG, params, words, words.stop_tokens)


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  return store.save(checkpoint(), tmp_path_factory.mktemp('models') / 'draft')


def refusal(act):
  with pytest.raises(UsageError) as caught:
    act()
  assert '\n' not in str(caught.value)
  return str(caught.value)


def assert_equal(found, expected):
  pairs = zip(*map(jax.tree.leaves, (found, expected)), strict=True)
  for a, b in pairs:
    assert a.dtype == b.dtype
    assert_array_equal(a, b)
  assert jax.tree.structure(found) == jax.tree.structure(expected)


def test_a_model_loads_by_name_bit_for_bit(saved):
  found = load.load(f'orbax:{saved}')
  assert found.name == f'orbax:{saved}'
  assert found.config == CONFIG
  assert_equal(found.params, checkpoint().params)


def test_its_vocabulary_template_and_stop_tokens_come_with_it(saved):
  found, words = store.load(saved), checkpoint().tokenizer
  assert found.tokenizer.pieces == words.pieces
  messages = [{'role': 'user', 'content': 'naïve'}]
  assert found.tokenizer.chat(messages) == words.chat(messages)
  assert found.stop_tokens == found.tokenizer.stop_tokens == (1, 7)


def test_it_moves_and_stands_alone(saved, tmp_path):
  # Nothing in it knows where it was written, or what it was trained from.
  moved = shutil.copytree(saved, tmp_path / 'elsewhere')
  assert_equal(store.load(moved).params, checkpoint().params)
  assert not any(
    str(saved) in path.read_text() for path in moved.glob('*.json')
  )


def test_bfloat16_comes_back_as_it_was_and_as_exact_float32(tmp_path):
  rough = checkpoint(jnp.bfloat16)
  folder = store.save(rough, tmp_path / 'draft')
  assert_equal(store.load(folder, 'bfloat16').params, rough.params)
  exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rough.params)
  assert_equal(store.load(folder).params, exact)


def test_a_reduced_head_comes_back_with_its_ids(tmp_path):
  whole = checkpoint()
  draft = reduced.cut_head(whole.params, CONFIG, [3, 5, 200])
  small = whole._replace(params=draft)
  folder = store.save(small, tmp_path / 'draft')
  assert_equal(store.load(folder).params, draft)
  rough = store.load(folder, 'bfloat16').params
  assert rough.weights['head'].dtype == jnp.bfloat16
  assert_array_equal(rough.ids, draft.ids)


def test_a_model_without_vocabulary_keeps_its_stop_tokens(tmp_path):
  bare = checkpoint()._replace(tokenizer=None, stop_tokens=(3, 5))
  found = store.load(store.save(bare, tmp_path / 'bare'))
  assert found.tokenizer is None and found.stop_tokens == (3, 5)


def test_params_of_another_config_are_not_written(tmp_path):
  other = dataclasses.replace(CONFIG, tie_embeddings=False)
  wrong = checkpoint()._replace(config=other)
  message = refusal(lambda: store.save(wrong, tmp_path / 'wrong'))
  assert message.startswith('draft: missing: head;')
  assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_not_overwritten(saved):
  before = (saved / 'config.json').read_bytes()
  assert 'exists' in refusal(lambda: store.save(checkpoint(), saved))
  assert (saved / 'config.json').read_bytes() == before


@pytest.mark.parametrize('when', ['params', 'config.json'])
def test_a_full_disk_is_one_line_and_leaves_nothing(
  tmp_path, monkeypatch, when
):
  def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  if when == 'params':
    monkeypatch.setattr(pytree.ocp, 'save', full)
  else:
    monkeypatch.setattr(pathlib.Path, 'write_text', full)
  folder = tmp_path / 'draft'
  message = refusal(lambda: store.save(checkpoint(), folder))
  assert message.startswith(f'{folder}: not written (No space left on device)')
  assert not list(tmp_path.iterdir())


def test_an_absent_or_foreign_folder_is_one_line(saved, tmp_path):
  assert 'no such folder' in refusal(lambda: load.load('orbax:/nowhere'))
  assert 'not the configuration of' in refusal(lambda: store.load(tmp_path))
  (tmp_path / 'config.json').write_text(
    '{"architectures": ["LlamaForCausalLM"]}'
  )
  assert 'give hf:PATH' in refusal(lambda: store.load(tmp_path))
  (tmp_path / 'config.json').write_text('{"model')
  assert 'not the configuration of' in refusal(lambda: store.load(tmp_path))
  shutil.copy(saved / 'config.json', tmp_path)
  assert 'params: no such folder' in refusal(lambda: store.load(tmp_path))


@pytest.mark.parametrize(
  'field, value, line',
  [
    ('num_kv_heads', 3, 'num_kv_heads = 3: it must divide num_heads = 4'),
    ('depth', 2, "unexpected keyword argument 'depth'"),
    ('hidden', 65, 'blocks/mlp/down/kernel float32[1, 64, 32] instead'),
  ],
)
def test_an_edited_config_is_one_line(saved, tmp_path, field, value, line):
  folder = shutil.copytree(saved, tmp_path / 'edited')
  fields = json.loads((folder / 'config.json').read_text())
  fields['model'][field] = value
  (folder / 'config.json').write_text(json.dumps(fields))
  message = refusal(lambda: store.load(folder))
  assert line in message and str(folder) in message
