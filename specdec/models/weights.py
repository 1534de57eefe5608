"""A checkpoint's tensors into the params' tree, every fault named at once.

Each format has a table {name in the file: Slot}. A slot's destination is a
view of a preallocated array: a row of a stack of layers, a section of a fused
product, transposed where the file says [out, in]. So stacking, fusing,
transposing and casting are one assignment, and no tensor exists twice.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec.base import UsageError
from specdec.models import functional
from specdec.models.config import ModelConfig
from specdec.models.tokenizer import Tokenizer


class Checkpoint(NamedTuple):
  """A language model, ready to use."""

  name: str
  config: ModelConfig
  params: Any  # what `functional.build(config).apply` takes
  tokenizer: Tokenizer | None  # None when the checkpoint brings none
  stop_tokens: tuple[int, ...]  # ids that end a reply


class Source(NamedTuple):
  """A tensor in a file."""

  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]


class Slot(NamedTuple):
  """Where a tensor goes. A path under blocks/ has a row for each layer."""

  path: str
  section: str | None = None  # of a fused product: query, key, value, gate, up


def fill(config, table, sources, dtype, where):
  """Reads every tensor of a checkpoint.

  Args:
    config: ModelConfig.
    table: {name, with {} for the layer's number: Slot}. Slots that the config
      has no use for (a tied head, absent biases) are skipped.
    sources: {name: Source}, all that the checkpoint holds.
    dtype: of the params.
    where: the checkpoint's name, for the message.

  Returns:
    The params.

  Raises:
    UsageError: tensors are missing, unexpected or of another shape.
  """
  paths, treedef = jax.tree.flatten_with_path(functional.abstract(config))
  arrays = {
    _name(path): np.empty(leaf.shape, jnp.dtype(dtype)) for path, leaf in paths
  }
  targets = _targets(config, table, arrays)
  _check(targets, sources, where)
  for name, target in targets.items():
    target[...] = sources[name].read()
  # Let go of each array as soon as the device has it.
  del targets, target
  leaves = [jnp.asarray(arrays.pop(_name(path))) for path, _ in paths]
  return jax.tree.unflatten(treedef, leaves)


def tensors(config, table, params, where):
  """The inverse of `fill`: params as a checkpoint's tensors.

  Args:
    config: ModelConfig.
    table: as in `fill`.
    params: a transformer's.
    where: the checkpoint's name, for the message.

  Returns:
    {name: array}, contiguous, in the params' dtype.

  Raises:
    UsageError: the params are not those of the config.
  """
  leaves, _ = jax.tree.flatten_with_path(params)
  arrays = {_name(path): np.asarray(leaf) for path, leaf in leaves}
  wanted, _ = jax.tree.flatten_with_path(functional.abstract(config))
  if {name: array.shape for name, array in arrays.items()} != {
    _name(path): leaf.shape for path, leaf in wanted
  }:
    raise UsageError(
      f'{where}: its params are not those of its config; give both of one'
      ' transformer'
    )
  return {
    name: np.ascontiguousarray(view)
    for name, view in _targets(config, table, arrays).items()
  }


def _name(path):
  """A leaf's path in the tree, as the tables spell it."""
  return jax.tree_util.keystr(path, simple=True, separator='/').removesuffix(
    '/value'
  )


def _targets(config, table, arrays):
  """{name: the view of `arrays` that its tensor is assigned to}."""
  sections = _sections(config)
  targets = {}
  for template, slot in table.items():
    if slot.path not in arrays:
      continue
    array = arrays[slot.path]
    if slot.section is not None:
      array = array[..., sections[slot.section]]
    if slot.path.endswith('/kernel'):
      array = array.swapaxes(-1, -2)  # files hold [out, in]
    if slot.path.startswith('blocks/'):
      rows = {template.format(layer): row for layer, row in enumerate(array)}
      targets.update(rows)
    else:
      targets[template] = array
  return targets


def _sections(config):
  """Where each part of a fused product lies in its last axis."""
  query = config.num_heads * config.head_dim
  key = config.num_kv_heads * config.head_dim
  hidden = config.hidden
  return {
    'query': slice(0, query),
    'key': slice(query, query + key),
    'value': slice(query + key, query + 2 * key),
    'gate': slice(0, hidden),
    'up': slice(hidden, 2 * hidden),
  }


def _check(targets, sources, where):
  """Compares names and shapes before a tensor is read."""
  missing = [name for name in targets if name not in sources]
  unexpected = [name for name in sources if name not in targets]
  misshapen = [
    f'{name} {list(sources[name].shape)} instead of {list(target.shape)}'
    for name, target in targets.items()
    if name in sources and sources[name].shape != target.shape
  ]
  faults = [
    f'{kind}: {", ".join(names)}'
    for kind, names in (
      ('missing tensors', missing),
      ('unexpected tensors', unexpected),
      ('wrong shapes', misshapen),
    )
    if names
  ]
  if faults:
    raise UsageError(
      f'{where}: {"; ".join(faults)}; give a checkpoint whose tensors are those'
      ' of its configuration'
    )
