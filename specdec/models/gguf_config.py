"""GGUF metadata to a ModelConfig.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import math

from specdec.base import UsageError
from specdec.models.config import ModelConfig, Rope

ARCHITECTURES = ('llama', 'qwen2', 'qwen3')
_REQUIRED = object()


def parse(metadata, sources, where):
  """Reads the sizes of a model.

  Args:
    metadata: {key: value}.
    sources: {tensor name: weights.Source}; biases and an untied head show in
      the names only.
    where: the file's name, for messages.

  Returns:
    ModelConfig, but for the divisors of `rope_freqs.weight`.

  Raises:
    UsageError: the architecture, or a feature of it, is not supported.
  """
  arch = metadata.get('general.architecture')
  if arch not in ARCHITECTURES:
    raise UsageError(
      f'{where}: general.architecture = {arch!r}; it must be one of'
      f' {", ".join(ARCHITECTURES)}'
    )

  def get(key, default=_REQUIRED):
    value = metadata.get(f'{arch}.{key}', default)
    if value is _REQUIRED:
      raise UsageError(
        f'{where}: {arch}.{key} is absent; convert the model again'
      )
    if isinstance(value, list):
      if len(set(value)) != 1:
        raise UsageError(
          f'{where}: {arch}.{key} = {value}; layers that differ are not'
          ' supported'
        )
      value = value[0]
    return value

  def refuse(key, accepted):
    if get(key, accepted) != accepted:
      raise UsageError(
        f'{where}: {arch}.{key} = {get(key)}; only {accepted} is supported'
      )

  if 'token_embd.weight' not in sources:
    raise UsageError(
      f'{where}: missing tensors: token_embd.weight; give a complete model'
    )
  heads, width = get('attention.head_count'), get('embedding_length')
  head_dim = get('attention.key_length', width // heads)
  refuse('attention.value_length', head_dim)
  refuse('rope.dimension_count', head_dim)
  refuse('expert_count', 0)
  length = get('context_length')
  return ModelConfig(
    vocab_size=sources['token_embd.weight'].shape[0],
    num_layers=get('block_count'),
    width=width,
    hidden=get('feed_forward_length'),
    num_heads=heads,
    num_kv_heads=get('attention.head_count_kv', heads),
    head_dim=head_dim,
    max_length=length,
    rope=_rope(get, length, where),
    norm_eps=get('attention.layer_norm_rms_epsilon'),
    tie_embeddings='output.weight' not in sources,
    qkv_bias='blk.0.attn_q.bias' in sources,
    out_bias='blk.0.attn_output.bias' in sources,
    qk_norm=arch == 'qwen3',
    sliding_window=get('attention.sliding_window', 0) or None,
  )


def _rope(get, length, where):
  """Rotary embedding, and how llama.cpp stretches it."""
  theta = get('rope.freq_base', 10_000.0)
  factor = get('rope.scaling.factor', get('rope.scale_linear', 0.0))
  # A factor without a kind is an old file's: linear.
  kind = get('rope.scaling.type', 'linear' if factor else 'none')
  if kind == 'none' or (kind == 'linear' and not factor):
    return Rope(theta)
  if kind == 'linear':
    return Rope(theta, 'linear', factor)
  if kind != 'yarn' or not factor:
    raise UsageError(
      f'{where}: rope.scaling.type = {kind!r} with factor {factor}; it must be'
      ' none, linear or yarn, the latter with a factor'
    )
  scale = get('rope.scaling.attn_factor', 1.0)
  return Rope(
    theta,
    'yarn',
    factor,
    get('rope.scaling.original_context_length', length),
    beta_fast=get('rope.scaling.yarn_beta_fast', 32.0),
    beta_slow=get('rope.scaling.yarn_beta_slow', 1.0),
    attention_factor=scale * (1 + 0.1 * math.log(factor)),
  )
