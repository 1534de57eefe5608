"""A model in a folder of its own: what training leaves, and what loads by name.

  config.json     the ModelConfig, the dtype, the ids that end a reply, the
                  size of a reduced head
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
from flax import nnx

from specdec import pytree
from specdec.base import UsageError
from specdec.models import functional, reduced, tokenizer, weights
from specdec.models.config import ModelConfig, Rope

_CONFIG, _PARAMS, _TOKENIZER = 'config.json', 'params', 'tokenizer.json'
# Of config.json, beside the model.
_FIELDS = (
  'dtype', 'head_tokens', 'stop_tokens', 'chat_template', 'special_tokens',
)  # fmt: skip


def save(checkpoint, folder):
  """Writes a model.

  The files are written beside the folder, which is named at the end: it is
  whole, or absent.

  Args:
    checkpoint: weights.Checkpoint, of a transformer or a reduced.Reduced one.
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
  head_tokens = None
  if isinstance(checkpoint.params, reduced.Reduced):
    head_tokens = checkpoint.params.ids.size
  like = _like(checkpoint.config, dtype, head_tokens)
  pytree.check(checkpoint.params, like, checkpoint.name)
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
      'head_tokens': head_tokens,
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
  like = _like(config, fields['dtype'], fields['head_tokens'])
  params, _ = pytree.load(folder / _PARAMS, like)
  params = _cast(params, dtype)
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


def _like(config, dtype, head_tokens):
  """The shapes of the params; head_tokens is n of a reduced head, or None."""
  if head_tokens is None:
    return _cast(functional.abstract(config), dtype)
  whole = reduced.untied(config)
  small = dataclasses.replace(whole, vocab_size=head_tokens)
  params = nnx.State(
    {**functional.abstract(whole), 'head': functional.abstract(small)['head']}
  )
  ids = jax.ShapeDtypeStruct((head_tokens,), jnp.int32)
  return reduced.Reduced(_cast(params, dtype), ids)


def _cast(tree, dtype):
  """A tree, or its shapes, in another dtype; ids stay integers."""

  def cast(leaf):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      return leaf
    if isinstance(leaf, jax.ShapeDtypeStruct):
      return leaf.update(dtype=jnp.dtype(dtype))
    return leaf.astype(dtype)

  return jax.tree.map(cast, tree)


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
    missing = [field for field in _FIELDS if field not in fields]
    if missing:
      raise KeyError(*missing)
  except (OSError, ValueError, TypeError, KeyError) as error:
    raise UsageError(
      f'{path}: not the configuration of a trained model ({error}); for a'
      ' Hugging Face folder give hf:PATH'
    ) from error
  return fields
