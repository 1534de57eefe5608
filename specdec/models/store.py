"""A model in a folder of its own: what training leaves, and what loads by name.

  config.json     the ModelConfig, the dtype, the ids that end a reply
  params/         the weights, written by Orbax
  tokenizer.json  the vocabulary, where there is one

The folder needs nothing else: not the run, nor the model it was trained from.
Saving and loading change no bit.
"""

import dataclasses
import json
import os
import pathlib
import shutil

import jax
import jax.numpy as jnp

from specdec import pytree
from specdec.base import UsageError
from specdec.models import functional, tokenizer, weights
from specdec.models.config import ModelConfig, Rope

_CONFIG, _PARAMS, _TOKENIZER = 'config.json', 'params', 'tokenizer.json'


def save(checkpoint, folder):
  """Writes a model.

  The files are written beside the folder, which is named at the end: it is
  whole, or absent.

  Args:
    checkpoint: weights.Checkpoint.
    folder: where to; it must not exist yet.

  Returns:
    The folder, a pathlib.Path.

  Raises:
    UsageError: it exists or cannot be written, or the params are not those of
      the config.
  """
  folder = pathlib.Path(folder).expanduser().resolve()
  if folder.exists():
    raise UsageError(f'{folder} exists: give another folder, or remove it')
  dtype = jax.tree.leaves(checkpoint.params)[0].dtype
  pytree.check(
    checkpoint.params, _like(checkpoint.config, dtype), checkpoint.name
  )
  part = folder.with_name(f'{folder.name}.part')
  try:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    pytree.save(part / _PARAMS, checkpoint.params)
    vocabulary = checkpoint.tokenizer
    if vocabulary is not None:
      vocabulary.save(part / _TOKENIZER)
    fields = {
      'model': dataclasses.asdict(checkpoint.config),
      'dtype': str(dtype),
      'stop_tokens': list(checkpoint.stop_tokens),
      'chat_template': vocabulary and vocabulary.template,
      'special_tokens': vocabulary and vocabulary.special_tokens,
    }
    text = json.dumps(fields, indent=2) + '\n'
    (part / _CONFIG).write_text(text, encoding='utf-8')
    os.rename(part, folder)
  except Exception as error:  # some libraries raise nothing narrower
    raise pytree.unwritten(folder, error.__cause__ or error) from error
  finally:
    shutil.rmtree(part, ignore_errors=True)
  return folder


def load(path, dtype='float32'):
  """Reads a model.

  Args:
    path: a folder that `save` wrote.
    dtype: of the params.

  Returns:
    weights.Checkpoint.

  Raises:
    UsageError: the folder is absent, cut short or foreign.
  """
  folder = pathlib.Path(path).expanduser().resolve()
  fields = _read_config(folder)
  config = fields['model']
  params, _ = pytree.load(folder / _PARAMS, _like(config, fields['dtype']))
  params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
  vocabulary = None
  if (folder / _TOKENIZER).exists():
    vocabulary = tokenizer.from_file(
      folder / _TOKENIZER,
      fields['chat_template'],
      fields['special_tokens'],
      fields['stop_tokens'],
    )
  return weights.Checkpoint(
    str(path), config, params, vocabulary, tuple(fields['stop_tokens'])
  )


def _like(config, dtype):
  """The shapes of the params, in their dtype."""
  return jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.dtype(dtype)),
    functional.abstract(config),
  )


def _read_config(folder):
  """The fields of config.json, `model` as a ModelConfig."""
  if not folder.is_dir():
    raise UsageError(
      f'{folder}: no such folder; give one that training wrote, with'
      f' {_CONFIG} and {_PARAMS}'
    )
  path = folder / _CONFIG
  try:
    fields = json.loads(path.read_text(encoding='utf-8'))
    rope = dict(fields['model']['rope'])
    rope['divisors'] = tuple(rope['divisors'])
    fields['model'] = ModelConfig(**{**fields['model'], 'rope': Rope(**rope)})
    missing = {'dtype', 'stop_tokens', 'chat_template', 'special_tokens'}
    missing -= set(fields)
    if missing:
      raise KeyError(*sorted(missing))
  except (OSError, ValueError, TypeError, KeyError) as error:
    raise UsageError(
      f'{path}: not the configuration of a trained model ({error}); for a'
      ' Hugging Face folder give hf:PATH'
    ) from error
  return fields
