"""GGUF files: SmolLM2 itself, tiny files of each architecture, refusals."""

import pathlib

import gguf as gguf_format
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from specdec.base import UsageError
from specdec.models import functional, gguf, hf_config, rotary
from specdec.models.config import Rope

FOLDER = pathlib.Path(__file__).parent / 'references'
TINY = np.load(FOLDER / 'tiny.npz')
SMOLLM2 = np.load(FOLDER / 'smollm2.npz')
TOLERANCE = 2e-4  # max |a - b| / max |b|; measured: 4e-6
NAMES = {
  'model.embed_tokens': 'token_embd',
  'model.norm': 'output_norm',
  'lm_head': 'output',
  'input_layernorm': 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'self_attn.o_proj': 'attn_output',
  'post_attention_layernorm': 'ffn_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'model.layers': 'blk',
}


def renamed(name):
  for old, new in NAMES.items():
    name = name.replace(old, new)
  return name


def interleaved(rows):
  """Rows i and i + head_dim / 2 of each head, side by side."""
  dim = tiny_models.HEAD_DIM
  order = [
    head * dim + half * dim // 2 + pair
    for head in range(len(rows) // dim)
    for pair in range(dim // 2)
    for half in (0, 1)
  ]
  return rows[order]


def tiny_tensors(name):
  """A case's tensors as a GGUF file holds them."""
  config = tiny_models.CASES[name]
  disagree = True if 'disagree' in name else None
  tensors = {}
  for key, array in tiny_models.tensors(config, disagree).items():
    if config['model_type'] in ('llama', 'mistral') and (
      'q_proj' in key or 'k_proj' in key
    ):
      array = interleaved(array)
    tensors[renamed(key)] = array
  return tensors


def tiny_fields(name):
  """A case's metadata, but for the rotary scaling."""
  config = tiny_models.CASES[name]
  rope = hf_config.parse(config, name).rope
  return {
    'attention.head_count': config['num_attention_heads'],
    'attention.head_count_kv': config['num_key_value_heads'],
    'attention.key_length': config['head_dim'],
    'attention.layer_norm_rms_epsilon': config['rms_norm_eps'],
    'block_count': config['num_hidden_layers'],
    'context_length': config['max_position_embeddings'],
    'embedding_length': config['hidden_size'],
    'feed_forward_length': config['intermediate_size'],
    'rope.freq_base': rope.theta,
  }


def write(path, arch, fields, tensors, pre='gpt-2', model='gpt2'):
  writer = gguf_format.GGUFWriter(path, arch)
  for key, value in fields.items():
    add = {
      int: writer.add_uint32,
      float: writer.add_float32,
      str: writer.add_string,
      list: writer.add_array,
    }[type(value)]
    add(f'{arch}.{key}', value)
  writer.add_tokenizer_model(model)
  writer.add_tokenizer_pre(pre)
  writer.add_token_list(['<s>', '</s>', 'a', 'b', 'ab', '[PAD5]'])
  writer.add_token_types([3, 3, 1, 1, 1, 5])
  writer.add_token_merges(['a b'])
  writer.add_bos_token_id(0)
  writer.add_eos_token_id(1)
  writer.add_add_bos_token(True)
  for name, array in tensors.items():
    writer.add_tensor(name, np.ascontiguousarray(array))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def write_case(path, name, extra_fields=(), extra_tensors=()):
  arch = tiny_models.CASES[name]['model_type'].replace('mistral', 'llama')
  fields = {**tiny_fields(name), **dict(extra_fields)}
  return write(
    path, arch, fields, {**tiny_tensors(name), **dict(extra_tensors)}
  )


def logits(checkpoint, ids):
  model = functional.build(checkpoint.config)
  with jax.disable_jit():
    cache = model.init_cache(1, len(ids))
    return model.apply(checkpoint.params, jnp.array([ids]), cache).logits[0]


def error(found, expected):
  return np.max(np.abs(found - expected)) / np.max(np.abs(expected))


def refusal(path):
  with pytest.raises(UsageError) as caught:
    gguf.load(path)
  assert '\n' not in str(caught.value)
  return str(caught.value)


@pytest.fixture
def path(tmp_path):
  return tmp_path / 'tiny.gguf'


def test_smollm2_logits_equal_transformers(smollm2):
  model = functional.build(smollm2.config)
  ids = SMOLLM2['text_ids']
  output = jax.jit(model.apply)(
    smollm2.params, jnp.array([ids]), model.init_cache(1, len(ids))
  )
  found = output.logits[0]
  columns = found[:, SMOLLM2['columns']]
  worst = np.max(np.abs(columns - SMOLLM2['logits'])) / SMOLLM2['largest']
  assert worst < TOLERANCE
  np.testing.assert_array_equal(np.argmax(found, -1), SMOLLM2['argmax'])


def test_smollm2_knows_the_capital_of_france(smollm2):
  model = functional.build(smollm2.config)
  prompt = smollm2.tokenizer.chat(
    [{'role': 'user', 'content': str(SMOLLM2['question'])}]
  )
  apply = jax.jit(model.apply)
  cache, feed, reply = model.init_cache(1, 64), prompt, []
  while len(reply) < 12 and not set(reply) & set(smollm2.stop_tokens):
    output = apply(smollm2.params, jnp.array([feed]), cache)
    cache, feed = output.cache, [int(jnp.argmax(output.logits[0, -1]))]
    reply += feed
  assert 'Paris' in smollm2.tokenizer.decode(reply)
  assert reply == SMOLLM2['reply_ids'].tolist()


def test_smollm2_padding_and_stop(smollm2):
  assert smollm2.name == 'smollm2-135m'
  assert smollm2.tokenizer.size == smollm2.config.vocab_size == 49_152
  assert smollm2.stop_tokens == (2,)


@pytest.mark.parametrize(
  'name',
  [
    'Llama-tied-kv1-none',
    'Llama-attention-bias',
    'Qwen2-tied-kv4-none',
    'Qwen3-disagree-kv2-none',
    'Llama-disagree-kv4-none',
  ],
)
def test_logits_equal_transformers(name, path):
  checkpoint = gguf.load(write_case(path, name))
  assert error(logits(checkpoint, tiny_models.TOKENS), TINY[name]) < TOLERANCE


def test_linear_rope_of_new_and_old_files(path):
  name = 'Llama-disagree-kv2-linear'
  for fields in (
    {'rope.scaling.type': 'linear', 'rope.scaling.factor': 3.0},
    {'rope.scale_linear': 3.0},
  ):
    checkpoint = gguf.load(write_case(path, name, fields))
    assert error(logits(checkpoint, tiny_models.TOKENS), TINY[name]) < TOLERANCE


def test_yarn_rope(path):
  name = 'Llama-yarn-attention-factor'
  fields = {
    'rope.scaling.type': 'yarn',
    'rope.scaling.factor': 4.0,
    'rope.scaling.original_context_length': 8,
    'rope.scaling.attn_factor': 0.7 / (1 + 0.1 * np.log(4.0).item()),
  }
  checkpoint = gguf.load(write_case(path, name, fields))
  assert error(logits(checkpoint, tiny_models.TOKENS), TINY[name]) < TOLERANCE


def test_llama3_rope_is_a_tensor_of_divisors(path):
  name = 'Llama-disagree-kv1-llama3'
  rope = hf_config.parse(tiny_models.CASES[name], name).rope
  plain, _ = rotary.frequencies(Rope(rope.theta), tiny_models.HEAD_DIM)
  scaled, _ = rotary.frequencies(rope, tiny_models.HEAD_DIM)
  divisors = {'rope_freqs.weight': (plain / scaled).astype(np.float32)}
  checkpoint = gguf.load(write_case(path, name, extra_tensors=divisors))
  assert error(logits(checkpoint, tiny_models.TOKENS), TINY[name]) < TOLERANCE


def test_a_sliding_window(path):
  name = 'Mistral-window'
  fields = {'attention.sliding_window': 5}
  checkpoint = gguf.load(write_case(path, name, fields))
  assert error(logits(checkpoint, tiny_models.TOKENS), TINY[name]) < TOLERANCE


def test_padding_ids_are_not_the_tokenizers(path):
  tokenizer = gguf.load(write_case(path, 'Llama-tied-kv1-none')).tokenizer
  assert tokenizer.size == 5
  assert tokenizer.encode('abba') == [0, 4, 3, 2]
  assert tokenizer.stop_tokens == (1,)


def test_missing_and_unexpected_tensors_are_named_at_once(path):
  tensors = tiny_tensors('Llama-tied-kv1-none')
  tensors['blk.1.ffn_upp.weight'] = tensors.pop('blk.1.ffn_up.weight')
  write(path, 'llama', tiny_fields('Llama-tied-kv1-none'), tensors)
  message = refusal(path)
  assert 'missing tensors: blk.1.ffn_up.weight' in message
  assert 'unexpected tensors: blk.1.ffn_upp.weight' in message


def test_what_is_no_gguf_file_is_one_line(path):
  assert 'no such file' in refusal(path)
  for content in (b'', b'GGUF', b'PK\x03\x04' + bytes(100), b'GGUF' * 20):
    path.write_bytes(content)
    assert 'not a whole GGUF file' in refusal(path)


@pytest.mark.parametrize('kept', [0.05, 0.5, 0.99])
def test_a_truncated_file_is_one_line(kept, path):
  content = write_case(path, 'Llama-tied-kv1-none').read_bytes()
  path.write_bytes(content[: int(len(content) * kept)])
  assert 'not a whole GGUF file' in refusal(path)


@pytest.mark.parametrize(
  'arch, fields, line',
  [
    ('gemma', {}, "general.architecture = 'gemma'; it must be one of llama"),
    ('llama', {'expert_count': 8}, 'llama.expert_count = 8; only 0'),
    ('llama', {'rope.dimension_count': 4}, 'rope.dimension_count = 4; only 12'),
    ('llama', {'rope.scaling.type': 'longrope'}, "= 'longrope' with factor"),
    ('llama', {'attention.head_count_kv': [1, 2]}, 'layers that differ'),
  ],
)
def test_what_is_not_computed_is_refused_by_name(arch, fields, line, path):
  name = 'Llama-tied-kv1-none'
  write(path, arch, {**tiny_fields(name), **fields}, tiny_tensors(name))
  assert line in refusal(path)


def test_an_absent_size_is_named(path):
  name = 'Llama-tied-kv1-none'
  fields = tiny_fields(name)
  del fields['feed_forward_length']
  write(path, 'llama', fields, tiny_tensors(name))
  assert 'llama.feed_forward_length is absent' in refusal(path)


def test_other_tokenizers_are_refused_by_name(path):
  name = 'Llama-tied-kv1-none'
  fields, tensors = tiny_fields(name), tiny_tensors(name)
  write(path, 'llama', fields, tensors, pre='viking')
  assert "tokenizer.ggml.pre = 'viking'; it must be one of" in refusal(path)
  write(path, 'llama', fields, tensors, model='llama')
  assert "tokenizer.ggml.model = 'llama'; only gpt2" in refusal(path)
