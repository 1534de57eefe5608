"""Modules as pure functions: the only place that splits and merges.

Inference sees `(params, tokens, cache)`, training `(params, tokens)`; params is
a pytree.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from specdec import cache as cache_lib
from specdec.base import Model
from specdec.models.transformer import Transformer


def init(config, key):
  """Fresh weights.

  Args:
    config: ModelConfig.
    key: typed key; it is consumed.

  Returns:
    The params, float32.
  """
  return nnx.state(Transformer(config, nnx.Rngs(params=key)), nnx.Param)


def abstract(config):
  """The params' tree, with shapes and dtypes but no values."""
  return nnx.state(_skeleton(config), nnx.Param)


def unstack(config, params):
  """Takes the layers' kernels out of their stack, see `build`.

  Args:
    config: ModelConfig.
    params: a transformer's.

  Returns:
    The params of the same model, laid out for decoding on a CPU.
  """
  module = nnx.merge(nnx.graphdef(_skeleton(config)), params)
  module.unstack()
  return nnx.state(module, nnx.Param)


def build(
  config,
  dtype=jnp.float32,
  vocab_size=None,
  feature_layers=(),
  unstacked=False,
):
  """A transformer behind the signatures of base.Model.

  Args:
    config: ModelConfig.
    dtype: of the cache; activations follow the params.
    vocab_size: ids that are real; logits of later ones, which pad the
      embedding, are cut off. None keeps all.
    feature_layers: layers whose output `apply` returns as features.
    unstacked: do the params come from `unstack`?

  Returns:
    base.Model.
  """
  graph = nnx.graphdef(_skeleton(config, unstacked))
  vocab_size = vocab_size or config.vocab_size

  def apply(params, tokens, cache, positions=None, mask=None):
    module = nnx.merge(graph, params)
    output = module(tokens, cache, positions, mask, feature_layers)
    return output._replace(logits=output.logits[..., :vocab_size])

  def init_cache(batch, rows):
    return cache_lib.empty(
      config.num_layers,
      batch,
      rows,
      config.num_kv_heads,
      config.head_dim,
      dtype,
    )

  return Model(
    apply,
    init_cache,
    vocab_size,
    config.width * len(feature_layers),
    config.max_length,
  )


def forward(
  config, dtype=None, vocab_size=None, feature_layers=(), remat=False
):
  """A transformer over whole rows, without a cache: what training runs.

  The same params give the same logits as `build`'s, and here they have
  gradients. Rows are padded on the right: a causal model hears no padding.

  Args:
    config: ModelConfig.
    dtype: of weights and activations inside; scores, norms and logits are at
      least float32. None computes in the dtype of the params. Gradients come
      in the params' own.
    vocab_size: ids that are real; None keeps all. See `build`.
    feature_layers: layers whose output is returned as features.
    remat: compute each layer again in the backward pass: less memory, more
      work.

  Returns:
    (params, tokens [B, T]) -> ModelOutput, its cache None.
  """
  graph = nnx.graphdef(_skeleton(config))
  vocab_size = vocab_size or config.vocab_size

  def apply(params, tokens):
    if dtype is not None:
      params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    module = nnx.merge(graph, params)
    output = module.whole_rows(tokens, feature_layers, remat)
    return output._replace(logits=output.logits[..., :vocab_size])

  return apply


def num_params(params):
  """How many weights there are."""
  return sum(leaf.size for leaf in jax.tree.leaves(params))


def _skeleton(config, unstacked=False):
  def module():
    made = Transformer(config, nnx.Rngs(params=jax.random.key(0)))
    if unstacked:
      made.unstack()
    return made

  return nnx.eval_shape(module)
