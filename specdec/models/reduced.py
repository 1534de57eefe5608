"""Small drafts cut out of a transformer: a head of few tokens, few layers.

A large vocabulary's head may cost more than all layers of a small draft. One
that can say only the n most frequent tokens has a head of n rows (FR-Spec,
https://arxiv.org/abs/2502.14856), and still reads all V. Elsewhere q = 0: what
is left out costs overlap, since min(p, q) = 0 there, but no exactness, since
the residual max(p - q, 0) is p.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from specdec.base import Model, UsageError
from specdec.models import functional


class Reduced(NamedTuple):
  """Params of a transformer whose head says n tokens.

  `weights` is trained like any untied transformer's: its logits are
  [..., n], beside target probabilities at `ids`.
  """

  weights: Any  # a transformer's params, with a head of its own, [n, D]
  ids: jax.Array  # int32 [n], ascending: the token of each row of the head


def frequent(counts, num, keep=()):
  """The ids of the most frequent tokens.

  Args:
    counts: int [V], how often each token came.
    num: n.
    keep: ids that are among them whatever their counts, such as stop tokens:
      a draft that cannot say them never ends a reply.

  Returns:
    int32 [n], ascending; the lower id first on ties.

  Raises:
    UsageError: n is out of its range.
  """
  counts = np.array(counts, np.float64)
  keep = np.unique(np.asarray(keep, np.int64))
  if not max(1, keep.size) <= num <= counts.size:
    raise UsageError(
      f'draft.vocab_size = {num}: it must be in'
      f' {max(1, keep.size)}..{counts.size}'
    )
  counts[keep] = np.inf
  return np.sort(np.argsort(-counts, kind='stable')[:num]).astype(np.int32)


def cut_head(params, config, ids) -> Reduced:
  """A draft that is the same transformer, but says only some tokens.

  Args:
    params: a transformer's, [V, D] in the head or the tied embedding.
    config: its ModelConfig.
    ids: int [n], which tokens, ascending.

  Returns:
    Reduced; its head is a copy of n rows, tied to nothing.

  Raises:
    UsageError: ids do not ascend, or one has no row.
  """
  ids = np.asarray(ids)
  within = ids.size and 0 <= ids[0] and ids[-1] < config.vocab_size
  if not (within and np.all(np.diff(ids) > 0)):
    raise UsageError(
      f'ids of the reduced head: they must ascend within'
      f' 0..{config.vocab_size - 1}, each once'
    )
  ids = jnp.asarray(ids, jnp.int32)
  head = params['embedding' if config.tie_embeddings else 'head'][...]
  weights = nnx.State({**params, 'head': nnx.Param(head[ids])})
  return Reduced(weights, ids)


def cut_layers(params, config, layers):
  """A draft of some layers of a transformer, with its embedding and head.

  Args:
    params: a transformer's.
    config: its ModelConfig.
    layers: indices of the layers, in the order in which they run.

  Returns:
    The params and the ModelConfig of the smaller transformer.

  Raises:
    UsageError: there is no such layer.
  """
  layers = tuple(layers)
  if not layers or not all(0 <= i < config.num_layers for i in layers):
    raise UsageError(
      f'draft_layers = {layers}: give some of 0..{config.num_layers - 1}'
    )
  at = np.array(layers)
  blocks = jax.tree.map(lambda leaf: leaf[at], params['blocks'])
  return nnx.State({**params, 'blocks': blocks}), dataclasses.replace(
    config, num_layers=len(layers)
  )


def untied(config):
  """The ModelConfig under which `Reduced.weights` run, head of n rows and all.

  A module takes the rows of its head from the params.
  """
  return dataclasses.replace(config, tie_embeddings=False)


def build(config, dtype=jnp.float32, vocab_size=None, unstacked=False):
  """A transformer with a reduced head, behind the signatures of base.Model.

  Args:
    config: ModelConfig of the transformer that it was cut from.
    dtype: of the cache.
    vocab_size: V of the logits, at least all ids; None is the config's.
    unstacked: do the weights come from `functional.unstack`?

  Returns:
    base.Model over Reduced; logits [B, T, V] are -inf off the ids.
  """
  whole = functional.build(untied(config), dtype, unstacked=unstacked)
  vocab_size = vocab_size or config.vocab_size

  def apply(params, tokens, cache, positions=None, mask=None):
    output = whole.apply(params.weights, tokens, cache, positions, mask)
    return output._replace(
      logits=scatter(output.logits, params.ids, vocab_size)
    )

  return Model(
    apply, whole.init_cache, vocab_size, whole.feature_width, config.max_length
  )


def scatter(logits, ids, vocab_size):
  """Logits of n tokens as logits of all.

  Args:
    logits: float [..., n].
    ids: int32 [n], ascending.
    vocab_size: V.

  Returns:
    float [..., V], -inf off the ids.
  """
  empty = jnp.full((*logits.shape[:-1], vocab_size), -jnp.inf, logits.dtype)
  return empty.at[..., ids].set(
    logits, indices_are_sorted=True, unique_indices=True
  )
