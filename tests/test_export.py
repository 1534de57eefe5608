"""Exported folders: read back bit for bit, whole or not at all."""

import dataclasses
import errno
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models
from numpy.testing import assert_array_equal
from safetensors import safe_open
from tokenizers import pre_tokenizers

from specdec.base import UsageError
from specdec.models import byte_bpe, export, functional, hf, reduced
from specdec.models.config import TINY, Rope
from specdec.models.tokenizer import Tokenizer
from specdec.models.weights import Checkpoint

TEMPLATE = (
  '{% for m in messages %}{{ bos_token }}{{ m.content }}<end>{% endfor %}'
)
MESSAGES = [{'role': 'user', 'content': 'abé'}]


def tokenizer():
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  special = ['<s>', '</s>', '<end>', '<pad>']
  pieces = {piece: i for i, piece in enumerate([*special, *alphabet, 'ab'])}
  backend = byte_bpe.build(
    pieces, [('a', 'b')], byte_bpe.WORDS['gpt-2'], special, bos='<s>'
  )
  names = {'bos_token': '<s>', 'eos_token': '</s>', 'pad_token': '<pad>'}
  return Tokenizer(backend, TEMPLATE, names, stop_tokens=[1])


def checkpoint(config=TINY, tokenizer=None, stop_tokens=(), dtype='float32'):
  params = functional.init(config, jax.random.key(0))
  params = jax.tree.map(lambda x: x.astype(dtype), params)
  return Checkpoint('ours', config, params, tokenizer, stop_tokens)


def fields(folder, name='config.json'):
  return json.loads((folder / name).read_text())


def check_equal(one, two):
  assert one.config == two.config
  assert one.stop_tokens == two.stop_tokens
  assert jax.tree.structure(one.params) == jax.tree.structure(two.params)
  for a, b in zip(
    jax.tree.leaves(one.params), jax.tree.leaves(two.params), strict=True
  ):
    assert a.dtype == b.dtype
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize('name', tiny_models.CASES)
def test_every_family_is_read_back_bit_for_bit(name, tmp_path):
  # Config and params are all that the logits come from.
  want = hf.load(tiny_models.write(tmp_path / 'one', name))
  found = hf.load(export.save(want, tmp_path / 'two'))
  check_equal(found, want)
  family = name.partition('-')[0]
  if family in ('Qwen2', 'Qwen3'):
    assert fields(tmp_path / 'two')['architectures'] == [f'{family}ForCausalLM']


def test_logits_of_the_copy_are_the_same_bits(tmp_path):
  want = hf.load(tiny_models.write(tmp_path / 'one', 'Qwen3-attention-bias'))
  found = hf.load(export.save(want, tmp_path / 'two'))
  tokens = jnp.array([tiny_models.TOKENS])
  model = functional.build(want.config)
  apply = jax.jit(model.apply)
  one, two = (
    apply(x.params, tokens, model.init_cache(1, 24)).logits
    for x in (want, found)
  )
  assert_array_equal(one, two)


@pytest.mark.parametrize('dtype', ('bfloat16', 'float16'))
def test_half_precision_stays_what_it_is(dtype, tmp_path):
  want = checkpoint(dtype=dtype)
  folder = export.save(want, tmp_path / 'half')
  assert fields(folder)['torch_dtype'] == dtype
  check_equal(hf.load(folder, dtype), want)


def test_the_names_and_shapes_are_those_that_transformers_reads(tmp_path):
  # The tensors of the file that a checkpoint came from, and none besides.
  name = 'Qwen2-default-head-dim'
  folder = tiny_models.write(tmp_path / 'one', name)
  export.save(hf.load(folder), tmp_path / 'two')
  one, two = (
    dict(_tensors(tmp_path / copy / 'model.safetensors'))
    for copy in ('one', 'two')
  )
  assert one.keys() == two.keys()
  for key in one:
    assert_array_equal(one[key], two[key])


def _tensors(path):
  with safe_open(path, framework='numpy') as file:
    for key in file.keys():
      yield key, file.get_tensor(key)


def test_the_tokenizer_its_template_and_its_stops_come_along(tmp_path):
  ours = tokenizer()
  want = checkpoint(tokenizer=ours, stop_tokens=ours.stop_tokens)
  found = hf.load(export.save(want, tmp_path / 'out'))
  check_equal(found, want)
  assert found.stop_tokens == (1, 2)
  theirs = found.tokenizer
  assert theirs.pieces == ours.pieces
  for text in ('ab é', 'a<end>b'):
    assert theirs.encode(text) == ours.encode(text)
  assert theirs.chat(MESSAGES) == ours.chat(MESSAGES)
  ids = {'bos_token_id': 0, 'eos_token_id': [1, 2], 'pad_token_id': 3}
  assert fields(tmp_path / 'out', 'generation_config.json') == ids
  settings = fields(tmp_path / 'out', 'tokenizer_config.json')
  assert settings['pad_token'] == '<pad>'
  assert settings['model_max_length'] == TINY.max_length


def test_a_reduced_head_is_refused(tmp_path):
  whole = checkpoint()
  draft = reduced.cut_head(whole.params, TINY, [0, 1, 2])
  line = 'ours: it has a reduced head, which no Hugging Face model has; export'
  with pytest.raises(UsageError, match=line):
    export.save(whole._replace(params=draft), tmp_path / 'out')
  with pytest.raises(UsageError, match='ours: its params are not those of its'):
    export.save(whole._replace(params=draft.weights), tmp_path / 'out')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'changes, line',
  (
    ({'rope': Rope(kind='divided', divisors=(1,) * 4)}, "rope kind 'divided'"),
    ({'out_bias': True}, 'no family has all of it'),
    ({'qkv_bias': True, 'out_bias': True, 'sliding_window': 4}, 'no family'),
    ({'qk_norm': True, 'qkv_bias': True}, 'no family has all of it'),
  ),
)
def test_what_transformers_does_not_know_is_refused(changes, line, tmp_path):
  config = dataclasses.replace(TINY, **changes)
  with pytest.raises(UsageError, match=line):
    export.save(checkpoint(config), tmp_path / 'out')
  assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
  folder = tmp_path / 'out'
  folder.mkdir()
  export.save(checkpoint(), folder)  # an empty folder will do
  before = {path.name: path.read_bytes() for path in folder.iterdir()}
  with pytest.raises(
    UsageError, match='out: it exists; give a new or an empty'
  ):
    export.save(checkpoint(dtype='float16'), folder)
  assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
  file = tmp_path / 'file'
  file.write_text('mine')
  with pytest.raises(
    UsageError, match='file: it exists; give a new or an empty'
  ):
    export.save(checkpoint(), file)
  assert file.read_text() == 'mine'


def test_a_full_disk_leaves_nothing_and_is_one_line(tmp_path, monkeypatch):
  def fail(arrays, path, metadata):
    del arrays, metadata
    path.write_bytes(b'half')
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(export, 'save_file', fail)
  with pytest.raises(UsageError, match='No space left on device; give a fold'):
    export.save(checkpoint(), tmp_path / 'deep' / 'out')
  assert not list((tmp_path / 'deep').iterdir())


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
  def stop(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(export, 'save_file', stop)
  with pytest.raises(KeyboardInterrupt):
    export.save(checkpoint(), tmp_path / 'out')
  assert not list(tmp_path.iterdir())


def test_others_may_read_what_is_exported(tmp_path):
  mode = export.save(checkpoint(), tmp_path / 'out').stat().st_mode
  (tmp_path / 'plain').mkdir()
  assert mode == (tmp_path / 'plain').stat().st_mode
