"""Checkpoints as Hugging Face folders, for transformers and for `hf.load`.

The inverse of hf.py: the same table of names, read the other way, so that
`hf.load(export.save(checkpoint, folder))` is the checkpoint, bit for bit.
"""

import json
import os
import pathlib
import tempfile

from safetensors.numpy import save_file

from specdec.base import UsageError
from specdec.models import hf, reduced, weights


def save(checkpoint, folder):
  """Writes a transformer, with its tokenizer where it has one.

  The files are written beside the folder and renamed into place: it appears
  whole, or not at all.

  Args:
    checkpoint: weights.Checkpoint.
    folder: where to; it must not exist, or be empty.

  Returns:
    The folder, a pathlib.Path.

  Raises:
    UsageError: the folder holds something, the disk does not take the files,
      or the model is none that transformers knows.
  """
  folder = pathlib.Path(folder).expanduser().absolute()
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise UsageError(
      f'export to {folder}: it exists; give a new or an empty folder'
    )
  fields = _config(checkpoint)
  arrays = weights.tensors(
    checkpoint.config, hf.TABLE, checkpoint.params, checkpoint.name
  )
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
      prefix=f'.{folder.name}-', dir=folder.parent
    ) as scratch:
      # One level deeper: the outer folder is for its owner's eyes alone.
      whole = pathlib.Path(scratch) / folder.name
      whole.mkdir()
      _write(whole, checkpoint, fields, arrays)
      os.rename(whole, folder)
  except Exception as error:  # each library raises its own of a full disk
    reason = ' '.join(str(error).split())
    raise UsageError(
      f'export to {folder}: {reason}; give a folder on a disk with room for it'
    ) from error
  return folder


def _write(folder, checkpoint, fields, arrays):
  """All files of the folder."""
  tokens = {k: v for k, v in fields.items() if k.endswith('_token_id')}
  _write_json(folder / 'config.json', fields)
  _write_json(folder / 'generation_config.json', tokens)
  save_file(arrays, folder / 'model.safetensors', {'format': 'pt'})
  tokenizer = checkpoint.tokenizer
  if tokenizer is None:
    return
  tokenizer.save(folder / 'tokenizer.json')
  settings = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'model_max_length': checkpoint.config.max_length,
    'clean_up_tokenization_spaces': False,
    **tokenizer.special_tokens,
  }
  if tokenizer.template is not None:
    settings['chat_template'] = tokenizer.template
  _write_json(folder / 'tokenizer_config.json', settings)


def _write_json(path, fields):
  path.write_text(json.dumps(fields, indent=2) + '\n', encoding='utf-8')


def _config(checkpoint):
  """The fields of config.json."""
  config = checkpoint.config
  if isinstance(checkpoint.params, reduced.Reduced):
    raise UsageError(
      f'{checkpoint.name}: it has a reduced head, which no Hugging Face model'
      ' has; export a draft of the whole vocabulary'
    )
  family = _family(checkpoint)
  fields = {
    'architectures': [f'{family}ForCausalLM'],
    'model_type': family.lower(),
    'torch_dtype': str(checkpoint.params['embedding'].dtype),
    'vocab_size': config.vocab_size,
    'hidden_size': config.width,
    'intermediate_size': config.hidden,
    'num_hidden_layers': config.num_layers,
    'num_attention_heads': config.num_heads,
    'num_key_value_heads': config.num_kv_heads,
    'head_dim': config.head_dim,
    'hidden_act': 'silu',
    'max_position_embeddings': config.max_length,
    'rms_norm_eps': config.norm_eps,
    'tie_word_embeddings': config.tie_embeddings,
    **_rope(checkpoint),
  }
  if family in ('Llama', 'Qwen3'):
    fields['attention_bias'] = config.qkv_bias
  if family != 'Llama':
    fields['sliding_window'] = config.sliding_window
  if family in ('Qwen2', 'Qwen3'):
    slides = config.sliding_window is not None
    fields['use_sliding_window'] = slides
    # Layers from this one on slide.
    fields['max_window_layers'] = 0 if slides else config.num_layers
  return {**fields, **_token_ids(checkpoint)}


def _family(checkpoint):
  """The architecture of transformers that has just these features."""
  config = checkpoint.config
  window = config.sliding_window is not None
  features = config.qk_norm, config.qkv_bias, config.out_bias, window
  families = {
    (True, False, False, False): 'Qwen3',
    (True, False, False, True): 'Qwen3',
    (True, True, True, False): 'Qwen3',
    (True, True, True, True): 'Qwen3',
    (False, True, False, False): 'Qwen2',
    (False, True, False, True): 'Qwen2',
    (False, False, False, True): 'Mistral',
    (False, False, False, False): 'Llama',
    (False, True, True, False): 'Llama',
  }
  if features in families:
    return families[features]
  raise UsageError(
    f'{checkpoint.name}: qk_norm = {config.qk_norm}, qkv_bias ='
    f' {config.qkv_bias}, out_bias = {config.out_bias}, sliding_window ='
    f' {config.sliding_window}: no family has all of it; Llama, Mistral, Qwen2'
    ' and Qwen3 can be written'
  )


def _rope(checkpoint):
  """rope_theta, and rope_scaling where the rotary embedding is stretched."""
  rope = checkpoint.config.rope
  names = {
    'none': {},
    'linear': {'factor': 'factor'},
    'llama3': {
      'factor': 'factor',
      'original_max_position_embeddings': 'original_length',
      'low_freq_factor': 'low_freq_factor',
      'high_freq_factor': 'high_freq_factor',
    },
    'yarn': {
      'factor': 'factor',
      'original_max_position_embeddings': 'original_length',
      'beta_fast': 'beta_fast',
      'beta_slow': 'beta_slow',
      'attention_factor': 'attention_factor',
      'truncate': 'truncate',
    },
  }
  if rope.kind not in names:
    raise UsageError(
      f"{checkpoint.name}: rope kind {rope.kind!r} is a GGUF file's own; give"
      ' the Hugging Face form of this model, as hf:PATH'
    )
  if rope.kind == 'none':
    return {'rope_theta': rope.theta}
  scaling = {
    name: getattr(rope, field) for name, field in names[rope.kind].items()
  }
  scaling = {k: v for k, v in scaling.items() if v is not None}
  return {
    'rope_theta': rope.theta,
    'rope_scaling': {'rope_type': rope.kind, **scaling},
  }


def _token_ids(checkpoint):
  """The ids that begin a document and end a reply."""
  ids = {'bos_token_id': None, 'eos_token_id': None, 'pad_token_id': None}
  tokenizer = checkpoint.tokenizer
  if tokenizer is not None:
    for name in ('bos', 'pad'):
      text = tokenizer.special_tokens.get(f'{name}_token')
      if text in tokenizer.pieces:
        ids[f'{name}_token_id'] = tokenizer.pieces.index(text)
  if checkpoint.stop_tokens:
    ids['eos_token_id'] = list(checkpoint.stop_tokens)
  return ids
