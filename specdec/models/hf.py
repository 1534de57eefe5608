"""Hugging Face checkpoints: a folder, or a repository of the hub.

A folder holds config.json, one model.safetensors or several of them beside
model.safetensors.index.json, and tokenizer.json.
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import re

import huggingface_hub
import numpy as np
import safetensors

from specdec.base import UsageError
from specdec.models import hf_config, tokenizer, weights
from specdec.models.weights import Slot

_LAYER = {
  'input_layernorm.weight': Slot('blocks/attention_norm/scale'),
  'self_attn.q_proj.weight': Slot('blocks/attention/qkv/kernel', 'query'),
  'self_attn.k_proj.weight': Slot('blocks/attention/qkv/kernel', 'key'),
  'self_attn.v_proj.weight': Slot('blocks/attention/qkv/kernel', 'value'),
  'self_attn.q_proj.bias': Slot('blocks/attention/qkv/bias', 'query'),
  'self_attn.k_proj.bias': Slot('blocks/attention/qkv/bias', 'key'),
  'self_attn.v_proj.bias': Slot('blocks/attention/qkv/bias', 'value'),
  'self_attn.q_norm.weight': Slot('blocks/attention/query_norm/scale'),
  'self_attn.k_norm.weight': Slot('blocks/attention/key_norm/scale'),
  'self_attn.o_proj.weight': Slot('blocks/attention/out/kernel'),
  'self_attn.o_proj.bias': Slot('blocks/attention/out/bias'),
  'post_attention_layernorm.weight': Slot('blocks/mlp_norm/scale'),
  'mlp.gate_proj.weight': Slot('blocks/mlp/gate_up/kernel', 'gate'),
  'mlp.up_proj.weight': Slot('blocks/mlp/gate_up/kernel', 'up'),
  'mlp.down_proj.weight': Slot('blocks/mlp/down/kernel'),
}
TABLE = {
  'model.embed_tokens.weight': Slot('embedding'),
  'model.norm.weight': Slot('norm/scale'),
  'lm_head.weight': Slot('head'),
  **{f'model.layers.{{}}.{name}': slot for name, slot in _LAYER.items()},
}
# Old checkpoints carry the frequencies that config.json determines.
_HARMLESS = re.compile(r'model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq')
_DTYPES = ('BF16', 'F16', 'F32')
_WEIGHTS, _INDEX = 'model.safetensors', 'model.safetensors.index.json'
# Some repositories hold the same weights twice, under other names.
_PATTERNS = (
  'model*.safetensors',
  _INDEX,
  'config.json',
  'generation_config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
)


def load(path, dtype='float32'):
  """Reads a model, with its tokenizer where there is a tokenizer.json.

  Args:
    path: a folder, or a repo id.
    dtype: of the params.

  Returns:
    weights.Checkpoint.

  Raises:
    UsageError: something is absent, broken or not supported.
  """
  folder = _folder(str(path))
  config = hf_config.parse(_json(folder / 'config.json'), path)
  with contextlib.ExitStack() as files:
    sources = _sources(folder, files)
    config, sources = _resolve_tie(config, sources)
    params = weights.fill(config, TABLE, sources, dtype, path)
  vocabulary, stop_tokens = _tokenizer(folder)
  return weights.Checkpoint(str(path), config, params, vocabulary, stop_tokens)


def _folder(path):
  """The local folder of a path or repo id."""
  folder = pathlib.Path(path).expanduser()
  if folder.is_dir():
    return folder
  if not re.fullmatch(r'[\w-][\w.-]*(/[\w.-]+)?', path):
    raise UsageError(
      f'hf:{path}: no such folder; give an existing one or a repo id such as'
      ' HuggingFaceTB/SmolLM2-135M-Instruct'
    )
  try:
    return pathlib.Path(
      huggingface_hub.snapshot_download(path, allow_patterns=_PATTERNS)
    )
  except Exception as error:  # network, authorisation, disk: all the user's
    reason = ' '.join(str(error).split())
    raise UsageError(
      f'hf:{path}: no such folder, and the hub did not give it ({reason});'
      ' give an existing folder or a repo id that you can reach'
    ) from error


def _json(path, default=None):
  """A parsed file, which may be absent if there is a default."""
  if default is not None and not path.exists():
    return default
  try:
    parsed = json.loads(path.read_text(encoding='utf-8'))
  except FileNotFoundError as error:
    raise UsageError(
      f'{path}: no such file; give the folder of a whole checkpoint'
    ) from error
  except (OSError, ValueError) as error:
    raise UsageError(
      f'{path}: not valid JSON ({error}); download it again'
    ) from error
  if not isinstance(parsed, dict):
    raise UsageError(f'{path}: not a JSON object; download it again')
  return parsed


def _sources(folder, files):
  """{name: weights.Source} of every shard.

  Args:
    folder: of the checkpoint.
    files: contextlib.ExitStack that closes them.
  """
  names = [_WEIGHTS]
  if not (folder / _WEIGHTS).exists() and (folder / _INDEX).exists():
    index = _json(folder / _INDEX).get('weight_map')
    if not isinstance(index, dict):
      raise UsageError(
        f'{folder / _INDEX}: weight_map is absent; download it again'
      )
    names = sorted(set(index.values()))
  absent = [name for name in names if not (folder / name).exists()]
  if absent:
    raise UsageError(
      f'{folder}: missing files: {", ".join(absent)}; give the folder of a'
      ' whole checkpoint in safetensors'
    )
  sources = {}
  for name in names:
    try:
      shard = files.enter_context(
        safetensors.safe_open(folder / name, framework='numpy')
      )
    except (safetensors.SafetensorError, OSError) as error:
      raise UsageError(
        f'{folder / name}: not a whole safetensors file ({error}); download it'
        ' again'
      ) from error
    for key in shard.keys():
      if not _HARMLESS.fullmatch(key):
        sources[key] = _source(shard, key, folder / name)
  return sources


def _source(shard, key, path):
  tensor = shard.get_slice(key)
  if tensor.get_dtype() not in _DTYPES:
    raise UsageError(
      f'{path}: tensor {key} is {tensor.get_dtype()}; it must be one of'
      f' {", ".join(_DTYPES)}'
    )
  return weights.Source(
    tuple(tensor.get_shape()), functools.partial(shard.get_tensor, key)
  )


def _resolve_tie(config, sources):
  """What a head in the file means when config.json says there is none.

  As in transformers: a copy of the embedding is dropped, another head counts.
  """
  if not config.tie_embeddings or 'lm_head.weight' not in sources:
    return config, sources
  embedding = sources.get('model.embed_tokens.weight')
  if embedding is not None and np.array_equal(
    embedding.read(), sources['lm_head.weight'].read()
  ):
    rest = {k: v for k, v in sources.items() if k != 'lm_head.weight'}
    return config, rest
  return dataclasses.replace(config, tie_embeddings=False), sources


def _tokenizer(folder):
  """The tokenizer, None when there is none, and the ids that end a reply."""
  stop_tokens = set()
  for name in ('config.json', 'generation_config.json'):
    ids = _json(folder / name, {}).get('eos_token_id')
    if ids is not None:
      stop_tokens.update(ids if isinstance(ids, list) else [ids])
  if not (folder / 'tokenizer.json').exists():
    return None, tuple(sorted(stop_tokens))
  settings = _json(folder / 'tokenizer_config.json', {})
  special_tokens = {
    key: value['content'] if isinstance(value, dict) else value
    for key, value in settings.items()
    if key in ('bos_token', 'eos_token', 'pad_token', 'unk_token') and value
  }
  vocabulary = tokenizer.from_file(
    folder / 'tokenizer.json',
    _template(folder, settings),
    special_tokens,
    stop_tokens,
  )
  return vocabulary, vocabulary.stop_tokens


def _template(folder, settings):
  """The chat template, from its own file or from tokenizer_config.json."""
  path = folder / 'chat_template.jinja'
  if path.exists():
    return path.read_text(encoding='utf-8')
  template = settings.get('chat_template')
  if isinstance(template, list):  # several, by name
    by_name = {entry['name']: entry['template'] for entry in template}
    return by_name.get('default')
  return template
