"""A Hugging Face config.json to a ModelConfig.

Absent fields take the values that transformers gives them; what this package
does not compute is refused by name.
"""

import math

from specdec.base import UsageError
from specdec.models.config import ModelConfig, Rope

# What an absent field means, where that differs from one family to another.
DEFAULTS = {
  'LlamaForCausalLM': {'max_position_embeddings': 2048},
  'MistralForCausalLM': {
    'max_position_embeddings': 131_072,
    'num_key_value_heads': 8,
    'sliding_window': 4096,
  },
  'Qwen2ForCausalLM': {
    'max_position_embeddings': 32_768,
    'num_key_value_heads': 32,
    'sliding_window': 4096,
  },
  'Qwen3ForCausalLM': {
    'max_position_embeddings': 32_768,
    'num_key_value_heads': 32,
    'sliding_window': 4096,
    'head_dim': 128,
  },
}
# Fields of which one value is supported, which is also what absence means.
_ONLY = {
  'hidden_act': 'silu',
  'mlp_bias': False,
  'quantization_config': None,
}
_REQUIRED = object()


def parse(raw, where):
  """Reads the sizes and switches of a model.

  Args:
    raw: the parsed config.json.
    where: the checkpoint's name, for messages.

  Returns:
    ModelConfig.

  Raises:
    UsageError: a field is absent, malformed, or asks for what is not
      supported.
  """
  family = _family(raw, where)
  raw = {**DEFAULTS[family], **raw}
  for field, accepted in _ONLY.items():
    if raw.get(field, accepted) != accepted:
      raise _refusal(where, field, raw[field], f'only {accepted} is supported')

  def get(field, default=_REQUIRED, kind=int):
    return _get(raw, field, default, kind, where)

  heads, width = get('num_attention_heads'), get('hidden_size')
  bias = get('attention_bias', False, bool)
  if family == 'Qwen2ForCausalLM':
    qkv_bias, out_bias = True, False
  elif family == 'MistralForCausalLM':
    qkv_bias, out_bias = False, False
  else:
    qkv_bias, out_bias = bias, bias
  return ModelConfig(
    vocab_size=get('vocab_size'),
    num_layers=get('num_hidden_layers'),
    width=width,
    hidden=get('intermediate_size'),
    num_heads=heads,
    num_kv_heads=get('num_key_value_heads', None) or heads,
    head_dim=get('head_dim', None) or width // heads,
    max_length=get('max_position_embeddings'),
    rope=_rope(raw, where),
    norm_eps=get('rms_norm_eps', 1e-6, float),
    tie_embeddings=get('tie_word_embeddings', False, bool),
    qkv_bias=qkv_bias,
    out_bias=out_bias,
    qk_norm=family == 'Qwen3ForCausalLM',
    sliding_window=_window(raw, family, where),
  )


def _family(raw, where):
  """The one architecture that config.json names."""
  names = raw.get('architectures')
  if not isinstance(names, list) or len(names) != 1 or names[0] not in DEFAULTS:
    raise _refusal(
      where, 'architectures', names, f'it must be one of {", ".join(DEFAULTS)}'
    )
  return names[0]


def _window(raw, family, where):
  """Tokens that a query sees, itself included; None is all."""
  if family == 'LlamaForCausalLM':
    return None
  window = _get(raw, 'sliding_window', None, int, where)
  if family == 'MistralForCausalLM':
    return window
  if not _get(raw, 'use_sliding_window', False, bool, where):
    window = None
  types = raw.get('layer_types')
  if types is None:
    count = _get(raw, 'num_hidden_layers', _REQUIRED, int, where)
    first = _get(raw, 'max_window_layers', 28, int, where)
    slides = [window is not None and layer >= first for layer in range(count)]
    types = ['sliding_attention' if s else 'full_attention' for s in slides]
  if set(types) == {'full_attention'}:
    return None
  if set(types) == {'sliding_attention'} and window is not None:
    return window
  raise _refusal(
    where,
    'layer_types',
    types,
    'every layer must attend alike, within sliding_window or without',
  )


def _rope(raw, where):
  """Rotary embedding, in the old form (rope_scaling) or rope_parameters."""
  params = raw.get('rope_scaling') or raw.get('rope_parameters') or {}
  if not isinstance(params, dict) or any(
    isinstance(value, dict) for value in params.values()
  ):
    raise _refusal(
      where, 'rope_parameters', params, 'it must be one flat set of fields'
    )
  params = {
    'rope_theta': raw.get('rope_theta', 10_000.0),
    'partial_rotary_factor': raw.get('partial_rotary_factor'),
    **params,
  }
  if params['partial_rotary_factor'] not in (None, 1):
    raise _refusal(
      where,
      'partial_rotary_factor',
      params['partial_rotary_factor'],
      'only 1 is supported',
    )

  def get(field, default=_REQUIRED, kind=float):
    return _get(params, field, default, kind, where)

  kind = params.get('rope_type', params.get('type', 'default'))
  theta = get('rope_theta')
  length = _get(raw, 'max_position_embeddings', _REQUIRED, int, where)
  original = raw.get('original_max_position_embeddings')
  if original is None:
    original = get('original_max_position_embeddings', length, int)
  if kind == 'default':
    return Rope(theta)
  if kind == 'linear':
    return Rope(theta, 'linear', get('factor'))
  if kind == 'llama3':
    return Rope(
      theta,
      'llama3',
      get('factor'),
      original,
      low_freq_factor=get('low_freq_factor'),
      high_freq_factor=get('high_freq_factor'),
    )
  if kind == 'yarn':
    factor = get('factor', None) or length / original
    return Rope(
      theta,
      'yarn',
      factor,
      original,
      beta_fast=get('beta_fast', None) or 32.0,
      beta_slow=get('beta_slow', None) or 1.0,
      attention_factor=_attention_factor(get, factor),
      truncate=get('truncate', True, bool),
    )
  raise _refusal(
    where, 'rope_type', kind, 'it must be default, linear, llama3 or yarn'
  )


def _attention_factor(get, factor):
  """How yarn scales queries and keys; None is its own rule."""
  given = get('attention_factor', None)
  mscale, over = get('mscale', None), get('mscale_all_dim', None)
  if given is not None or not (mscale and over) or factor <= 1:
    return given
  growth = 0.1 * math.log(factor)
  return (growth * mscale + 1) / (growth * over + 1)


def _get(fields, field, default, kind, where):
  """A field of the right type; null counts as absent only with a default."""
  value = fields.get(field, default)
  if value is _REQUIRED:
    raise UsageError(
      f'{where}: config.json lacks {field}; it must be of type {kind.__name__}'
    )
  if value is None and default is None:
    return None
  accepted = (int, float) if kind is float else kind
  wrong = isinstance(value, bool) and kind is not bool
  if wrong or not isinstance(value, accepted):
    raise _refusal(where, field, value, f'it must be of type {kind.__name__}')
  return kind(value)


def _refusal(where, field, value, mend):
  return UsageError(f'{where}: config.json has {field} = {value!r}; {mend}')
