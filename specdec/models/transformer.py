"""A decoder-only transformer whose layers are stacked and scanned.

Stacked: every weight of the layers has a leading axis L. Scanned: one layer is
compiled, not L of them, and the cache rides in the scan's carry, where it is
updated in place. Decoding on a CPU keeps the kernels out of the stack, see
`unstack`. Training needs neither cache nor loops of unknown length:
`whole_rows` is the same function of the same weights without them.
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from specdec.base import ModelOutput
from specdec.cache import KVCache
from specdec.models import attention, layers, rotary


class Transformer(nnx.Module):
  """Token ids to logits, through a cache."""

  def __init__(self, config, rngs):
    self.config = config
    self.embedding = nnx.Param(
      jax.random.normal(rngs.params(), (config.vocab_size, config.width))
      * config.width**-0.5
    )
    self.blocks = nnx.vmap(
      lambda rngs: layers.Block(config, rngs), in_axes=0, out_axes=0
    )(rngs.split(config.num_layers))
    self.kernels = nnx.Dict()  # of what is not stacked, see `unstack`
    self.norm = layers.RMSNorm(config.width, config.norm_eps)
    if not config.tie_embeddings:
      self.head = nnx.Param(
        jax.random.normal(rngs.params(), (config.vocab_size, config.width))
        * config.width**-0.5
      )

  def unstack(self):
    """Gives each kernel of each layer an array of its own, [out, in].

    What XLA on CPU would copy out of the stack it then reads where it lies;
    see layers.of_layer. `whole_rows` does without.
    """
    for name, linear in self.blocks.linears.items():
      parts = [nnx.Param(kernel.T) for kernel in linear.kernel[...]]
      self.kernels[name] = nnx.List(parts)
      del linear.kernel

  def __call__(
    self, tokens, cache: KVCache, positions=None, mask=None, feature_layers=()
  ):
    """Feeds T new tokens.

    Args:
      tokens: int32 [B, T].
      cache: rows length..length+T-1 are written.
      positions: int32 [B, T]; None continues each row.
      mask: bool [B, T, T], which new token sees which; None is causal.
      feature_layers: layers whose output is returned, joined in the last axis.

    Returns:
      ModelOutput; the cache's length is advanced by T.
    """
    config = self.config
    count = tokens.shape[1]
    if positions is None:
      positions = cache.length[:, None] + jnp.arange(count)[None]
    context = attention.Context(cache.length, positions, mask)
    angles = rotary.angles(config.rope, config.head_dim, positions)

    kernels = {
      name: [kernel[...] for kernel in parts]
      for name, parts in self.kernels.items()
    }

    def run_layer(carry, layer_and_block):
      x, keys, values = carry
      layer, block = layer_and_block
      mix = attention.through_cache(
        keys, values, layer, context, config.sliding_window
      )
      products = {
        name: functools.partial(layers.of_layer, parts, layer)
        for name, parts in kernels.items()
      }
      x, (keys, values) = block(x, angles, mix, products)
      return (x, keys, values), x if feature_layers else None

    x = self.embedding[tokens]
    (x, keys, values), hidden = jax.lax.scan(
      run_layer,
      (x, cache.keys, cache.values),
      (jnp.arange(config.num_layers), self.blocks),
    )
    cache = KVCache(keys, values, cache.length + count)
    return self._read_out(x, hidden, feature_layers, cache)

  def whole_rows(self, tokens, feature_layers=(), remat=False):
    """Feeds whole rows from their first token on, for training.

    Args:
      tokens: int32 [B, T].
      feature_layers: layers whose output is returned, joined in the last axis.
      remat: compute each layer again in the backward pass, instead of keeping
        what is inside it.

    Returns:
      ModelOutput; its cache is None.
    """
    config = self.config
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    angles = rotary.angles(config.rope, config.head_dim, positions)
    mix = attention.whole_rows(config.sliding_window)

    def run_layer(x, block):
      x, _ = block(x, angles, mix)
      return x, x if feature_layers else None

    if remat:
      # Inside a scan nothing can undo it by sharing common expressions.
      run_layer = jax.checkpoint(run_layer, prevent_cse=False)
    x, hidden = jax.lax.scan(run_layer, self.embedding[tokens], self.blocks)
    return self._read_out(x, hidden, feature_layers, cache=None)

  def _read_out(self, x, hidden, feature_layers, cache):
    """The last layer's output [B, T, D], and all [L, B, T, D], as output."""
    features = jnp.zeros((*x.shape[:2], 0))
    if feature_layers:
      features = jnp.concatenate([hidden[i] for i in feature_layers], -1)
    head = self.embedding if self.config.tie_embeddings else self.head
    logits = jnp.einsum(
      'btd,vd->btv', self.norm(x), head[...], preferred_element_type=jnp.float32
    )
    return ModelOutput(logits, features.astype(jnp.float32), cache)
