"""GGUF files, of any quantisation that the `gguf` package can dequantise.

The llama architecture stores the rows of queries and keys for interleaved
rotary pairs (0, 1), (2, 3), ...; the model rotates halves, so that they are
permuted back.
"""

import collections
import dataclasses
import functools
import pathlib

import gguf
import numpy as np

from specdec.base import UsageError
from specdec.models import byte_bpe, gguf_config, weights
from specdec.models.tokenizer import Tokenizer
from specdec.models.weights import Slot

_LAYER = {
  'attn_norm.weight': Slot('blocks/attention_norm/scale'),
  'attn_q.weight': Slot('blocks/attention/qkv/kernel', 'query'),
  'attn_k.weight': Slot('blocks/attention/qkv/kernel', 'key'),
  'attn_v.weight': Slot('blocks/attention/qkv/kernel', 'value'),
  'attn_q.bias': Slot('blocks/attention/qkv/bias', 'query'),
  'attn_k.bias': Slot('blocks/attention/qkv/bias', 'key'),
  'attn_v.bias': Slot('blocks/attention/qkv/bias', 'value'),
  'attn_q_norm.weight': Slot('blocks/attention/query_norm/scale'),
  'attn_k_norm.weight': Slot('blocks/attention/key_norm/scale'),
  'attn_output.weight': Slot('blocks/attention/out/kernel'),
  'attn_output.bias': Slot('blocks/attention/out/bias'),
  'ffn_norm.weight': Slot('blocks/mlp_norm/scale'),
  'ffn_gate.weight': Slot('blocks/mlp/gate_up/kernel', 'gate'),
  'ffn_up.weight': Slot('blocks/mlp/gate_up/kernel', 'up'),
  'ffn_down.weight': Slot('blocks/mlp/down/kernel'),
}
TABLE = {
  'token_embd.weight': Slot('embedding'),
  'output_norm.weight': Slot('norm/scale'),
  'output.weight': Slot('head'),
  **{f'blk.{{}}.{name}': slot for name, slot in _LAYER.items()},
}
# What llama3 scaling divides each rotary pair's frequency by.
_DIVISORS = 'rope_freqs.weight'
# Values of tokenizer.ggml.token_type.
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5


def load(path, dtype='float32'):
  """Reads a model with its tokenizer.

  Args:
    path: of the file.
    dtype: of the params.

  Returns:
    weights.Checkpoint.

  Raises:
    UsageError: the file is absent, broken, or holds what is not supported.
  """
  path = pathlib.Path(path).expanduser()
  reader = _open(path)
  metadata = {key: field.contents() for key, field in reader.fields.items()}
  sources = {tensor.name: _source(tensor, path) for tensor in reader.tensors}
  config = gguf_config.parse(metadata, sources, path)
  if _DIVISORS in sources:
    config = _divided(config, sources.pop(_DIVISORS), path)
  if metadata['general.architecture'] == 'llama':
    sources |= _permuted(config, sources)
  vocabulary = tokenizer(metadata, path)
  params = weights.fill(config, TABLE, sources, dtype, path)
  return weights.Checkpoint(
    metadata.get('general.name', path.stem),
    config,
    params,
    vocabulary,
    vocabulary.stop_tokens,
  )


def tokenizer(metadata, where):
  """The tokenizer of a file.

  Args:
    metadata: {key: value}.
    where: the file's name, for messages.

  Returns:
    Tokenizer.

  Raises:
    UsageError: it is of a kind that is not supported.
  """

  def get(key, default=None):
    return metadata.get(f'tokenizer.ggml.{key}', default)

  if get('model') != 'gpt2' or not get('tokens'):
    raise UsageError(
      f'{where}: tokenizer.ggml.model = {get("model")!r}; only gpt2 (byte-level'
      ' BPE) is supported: give the Hugging Face form of this model, as hf:PATH'
    )
  if get('pre', 'default') not in byte_bpe.WORDS:
    raise UsageError(
      f'{where}: tokenizer.ggml.pre = {get("pre")!r}; it must be one of'
      f' {", ".join(byte_bpe.WORDS)}'
    )
  words = byte_bpe.WORDS[get('pre', 'default')]
  tokens = get('tokens')
  types = get('token_type', [1] * len(tokens))
  by_type = collections.defaultdict(list)
  for token, kind in zip(tokens, types, strict=True):
    by_type[kind].append(token)
  unused = set(by_type[_UNUSED])
  pieces = {token: i for i, token in enumerate(tokens) if token not in unused}
  begins = get('add_bos_token', words.bos) and get('bos_token_id') is not None
  backend = byte_bpe.build(
    pieces,
    [tuple(merge.split(' ', 1)) for merge in get('merges', [])],
    words,
    by_type[_CONTROL],
    by_type[_USER_DEFINED],
    tokens[get('bos_token_id')] if begins else None,
  )
  ids = {name: get(f'{name}_token_id') for name in ('bos', 'eos', 'eot')}
  return Tokenizer(
    backend,
    metadata.get('tokenizer.chat_template'),
    {
      f'{name}_token': tokens[ids[name]]
      for name in ('bos', 'eos')
      if ids[name] is not None
    },
    [ids[name] for name in ('eos', 'eot') if ids[name] is not None],
  )


class _Reader(gguf.GGUFReader):
  """Slices a plain array: through np.memmap 150,000 strings take 4 s, not 1."""

  @property
  def data(self):
    return self._data

  @data.setter
  def data(self, mapped):
    self._data = mapped.view(np.ndarray)


def _open(path):
  try:
    return _Reader(path)
  except FileNotFoundError as error:
    raise UsageError(
      f'{path}: no such file; give gguf:PATH of an existing one'
    ) from error
  except (OSError, ValueError, IndexError, KeyError, OverflowError) as error:
    raise UsageError(
      f'{path}: not a whole GGUF file ({error}); download it again'
    ) from error


def _source(tensor, where):
  """A tensor of the file; GGUF lists the innermost axis first."""

  def read():
    try:
      return gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
      raise UsageError(
        f'{where}: tensor {tensor.name} is {tensor.tensor_type.name}, which the'
        ' gguf package cannot dequantise; give another quantisation'
      ) from error

  return weights.Source(tuple(map(int, tensor.shape[::-1])), read)


def _divided(config, source, where):
  """The config, rotary frequencies divided as the file says."""
  if config.rope.kind != 'none' or source.shape != (config.head_dim // 2,):
    raise UsageError(
      f'{where}: {_DIVISORS} {list(source.shape)} beside rope scaling'
      f' {config.rope.kind}; it must be [{config.head_dim // 2}] and the only'
      ' scaling'
    )
  divisors = tuple(map(float, source.read()))
  rope = dataclasses.replace(config.rope, kind='divided', divisors=divisors)
  return dataclasses.replace(config, rope=rope)


def _permuted(config, sources):
  """The queries' and keys' sources, rows reordered for rotated halves."""

  def read(source, heads):
    rows = source.read()
    paired = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape)

  permuted = {}
  for name, source in sources.items():
    kind = name.split('.')[-2]
    if kind in ('attn_q', 'attn_k'):
      heads = config.num_heads if kind == 'attn_q' else config.num_kv_heads
      permuted[name] = source._replace(
        read=functools.partial(read, source, heads)
      )
  return permuted
