"""Tiny checkpoints whose weights follow from their names.

Both sides of a comparison write the same folder, so that a reference is
logits alone. `make_references.py` says how those were made.
"""

import json
import zlib

import numpy as np
from safetensors.numpy import save_file

VOCAB, WIDTH, HIDDEN, LAYERS, HEADS, HEAD_DIM = 48, 32, 40, 2, 4, 12
TOKENS = [(7 * i * i + 3 * i + 5) % VOCAB for i in range(24)]
FAMILIES = ('Llama', 'Mistral', 'Qwen2', 'Qwen3')

# The context is 24 tokens, grown from 8, so that every pair is stretched.
ROPES = {
  'none': {},
  'linear': {'rope_scaling': {'type': 'linear', 'factor': 3.0}},
  'llama3': {
    'rope_parameters': {
      'rope_type': 'llama3',
      'rope_theta': 500.0,
      'factor': 4.0,
      'low_freq_factor': 1.0,
      'high_freq_factor': 4.0,
      'original_max_position_embeddings': 8,
    }
  },
  'yarn': {
    'rope_theta': 500.0,
    'rope_scaling': {
      'rope_type': 'yarn',
      'factor': 4.0,
      'original_max_position_embeddings': 8,
    },
  },
}


def config(family, **fields):
  """A config.json; fields that are None are left out."""
  base = {
    'architectures': [f'{family}ForCausalLM'],
    'model_type': family.lower(),
    'vocab_size': VOCAB,
    'hidden_size': WIDTH,
    'intermediate_size': HIDDEN,
    'num_hidden_layers': LAYERS,
    'num_attention_heads': HEADS,
    'num_key_value_heads': 2,
    'head_dim': HEAD_DIM,
    'max_position_embeddings': 64,
    'rms_norm_eps': 1e-5,
    'tie_word_embeddings': False,
    'sliding_window': None,
    'bos_token_id': 1,
    'eos_token_id': 2,
  }
  return {**base, **fields}


def _grid():
  """Every combination of tie, key-value heads and rope; families in turn."""
  cases = {}
  for tie in ('tied', 'untied', 'disagree'):
    for kv_heads in (1, 2, HEADS):
      for rope, fields in ROPES.items():
        family = FAMILIES[(len(cases) + len(cases) // 4) % 4]
        cases[f'{family}-{tie}-kv{kv_heads}-{rope}'] = config(
          family,
          tie_word_embeddings=tie != 'untied',
          num_key_value_heads=kv_heads,
          **fields,
        )
  return cases


def _yarn(family, **fields):
  params = {'rope_type': 'yarn', 'rope_theta': 500.0, 'factor': 4.0, **fields}
  return config(family, rope_parameters=params)


def _default_head_dim(family):
  fields = config(family)
  del fields['head_dim']
  return fields


CASES = {
  **_grid(),
  'Llama-default-head-dim': _default_head_dim('Llama'),
  'Mistral-default-head-dim': _default_head_dim('Mistral'),
  'Qwen2-default-head-dim': _default_head_dim('Qwen2'),
  'Qwen3-default-head-dim': _default_head_dim('Qwen3'),
  'Llama-attention-bias': config('Llama', attention_bias=True),
  'Qwen3-attention-bias': config('Qwen3', attention_bias=True),
  'Mistral-window': config('Mistral', sliding_window=5),
  'Qwen2-window': config(
    'Qwen2', sliding_window=5, use_sliding_window=True, max_window_layers=0
  ),
  'Llama-window-ignored': config('Llama', sliding_window=5),
  'Llama-yarn-original-length-absent': _yarn('Llama'),
  'Mistral-yarn-factor-null': _yarn(
    'Mistral', factor=None, original_max_position_embeddings=8
  ),
  'Llama-yarn-attention-factor': _yarn(
    'Llama', attention_factor=0.7, original_max_position_embeddings=8
  ),
  'Qwen2-yarn-mscale': _yarn(
    'Qwen2',
    mscale=0.8,
    mscale_all_dim=0.3,
    original_max_position_embeddings=8,
  ),
  'Qwen3-yarn-ramp': _yarn(
    'Qwen3',
    beta_fast=2.0,
    beta_slow=0.1,
    truncate=False,
    original_max_position_embeddings=8,
  ),
}


def tensors(fields, head=None):
  """{name: float32 array} of a config.json.

  Args:
    fields: the config.
    head: is there a head in the file? None follows tie_word_embeddings.
  """
  family = fields['architectures'][0].removesuffix('ForCausalLM')
  head_dim = fields.get(
    'head_dim', 128 if family == 'Qwen3' else WIDTH // HEADS
  )
  q_width = HEADS * head_dim
  kv_width = fields['num_key_value_heads'] * head_dim
  shapes = {
    'model.embed_tokens.weight': (VOCAB, WIDTH),
    'model.norm.weight': (WIDTH,),
  }
  if head if head is not None else not fields['tie_word_embeddings']:
    shapes['lm_head.weight'] = (VOCAB, WIDTH)
  bias = fields.get('attention_bias', False)
  for layer in range(LAYERS):
    at = f'model.layers.{layer}.'
    shapes |= {
      f'{at}input_layernorm.weight': (WIDTH,),
      f'{at}self_attn.q_proj.weight': (q_width, WIDTH),
      f'{at}self_attn.k_proj.weight': (kv_width, WIDTH),
      f'{at}self_attn.v_proj.weight': (kv_width, WIDTH),
      f'{at}self_attn.o_proj.weight': (WIDTH, q_width),
      f'{at}post_attention_layernorm.weight': (WIDTH,),
      f'{at}mlp.gate_proj.weight': (HIDDEN, WIDTH),
      f'{at}mlp.up_proj.weight': (HIDDEN, WIDTH),
      f'{at}mlp.down_proj.weight': (WIDTH, HIDDEN),
    }
    if family == 'Qwen3':
      shapes |= {
        f'{at}self_attn.q_norm.weight': (head_dim,),
        f'{at}self_attn.k_norm.weight': (head_dim,),
      }
    if bias or family == 'Qwen2':
      shapes |= {
        f'{at}self_attn.q_proj.bias': (q_width,),
        f'{at}self_attn.k_proj.bias': (kv_width,),
        f'{at}self_attn.v_proj.bias': (kv_width,),
      }
    if bias:
      shapes[f'{at}self_attn.o_proj.bias'] = (WIDTH,)
  return {name: _draw(name, shape) for name, shape in shapes.items()}


def _draw(name, shape):
  noise = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)
  if 'norm' in name:
    noise = 1 + 0.2 * noise
  elif len(shape) == 2 and 'embed' not in name:
    noise *= 1.5 * shape[1] ** -0.5
  return noise.astype(np.float32)


def write(folder, name, dtype=np.float32):
  """Writes the folder of a case. Returns its path."""
  fields = CASES[name]
  head = True if '-disagree-' in name else None
  return write_checkpoint(folder, fields, tensors(fields, head), dtype)


def write_checkpoint(folder, fields, arrays, dtype=np.float32, shards=1):
  """Writes config.json and safetensors, in shards when more than one."""
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(fields))
  arrays = {
    name: np.ascontiguousarray(array.astype(dtype))
    for name, array in arrays.items()
  }
  if shards == 1:
    save_file(arrays, folder / 'model.safetensors', {'format': 'pt'})
    return folder
  weight_map = {}
  for shard in range(shards):
    file = f'model-{shard + 1:05}-of-{shards:05}.safetensors'
    part = dict(list(arrays.items())[shard::shards])
    save_file(part, folder / file, {'format': 'pt'})
    weight_map |= dict.fromkeys(part, file)
  index = {'metadata': {}, 'weight_map': weight_map}
  (folder / 'model.safetensors.index.json').write_text(json.dumps(index))
  return folder
