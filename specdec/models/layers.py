"""The layers of a Llama-like decoder, as Flax NNX modules.

Weights lie as [in, out]. Queries, keys and values are one product, and so are
gate and up: on 2 CPU cores a product with few rows costs what reading its
weights costs, and fewer products read them in longer runs.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from specdec import cache as cache_lib
from specdec.models import attention, rotary


class RMSNorm(nnx.Module):
  """Root-mean-square norm, https://arxiv.org/abs/1910.07467, in float32."""

  def __init__(self, width, eps):
    self.scale = nnx.Param(jnp.ones(width))
    self.eps = eps

  def __call__(self, x):
    """Normalises the last axis of x."""
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + self.eps)
    scale = self.scale.astype(x.dtype)
    return y.astype(x.dtype) * jnp.expand_dims(scale, range(x.ndim - 1))


class Attention(nnx.Module):
  """Grouped-query attention with rotary positions and a cache."""

  def __init__(self, config, rngs):
    self.config = config
    heads, kv_heads = config.num_heads, config.num_kv_heads
    dim = config.head_dim
    self.qkv = nnx.Linear(
      config.width,
      (heads + 2 * kv_heads) * dim,
      use_bias=config.qkv_bias,
      rngs=rngs,
    )
    self.out = nnx.Linear(
      heads * dim, config.width, use_bias=config.out_bias, rngs=rngs
    )
    if config.qk_norm:
      self.query_norm = RMSNorm(dim, config.norm_eps)
      self.key_norm = RMSNorm(dim, config.norm_eps)

  def __call__(self, x, keys, values, layer, angles, context):
    """Attends; see Block."""
    config = self.config
    batch, tokens, _ = x.shape
    heads, kv_heads = config.num_heads, config.num_kv_heads
    split = self.qkv(x).reshape(batch, tokens, -1, config.head_dim)
    q, k, v = jnp.split(split, [heads, heads + kv_heads], 2)
    if config.qk_norm:
      q, k = self.query_norm(q), self.key_norm(k)
    q, k = rotary.rotate(q, *angles), rotary.rotate(k, *angles)
    keys = cache_lib.write(keys, layer, context.start, k)
    values = cache_lib.write(values, layer, context.start, v)
    mixed = attention.attend(
      q * config.head_dim**-0.5,
      keys,
      values,
      layer,
      context,
      config.sliding_window,
    )
    mixed = mixed.reshape(batch, tokens, -1).astype(x.dtype)
    return self.out(mixed), keys, values


class MLP(nnx.Module):
  """A gated MLP: down(silu(gate(x)) * up(x))."""

  def __init__(self, config, rngs):
    self.gate_up = nnx.Linear(
      config.width, 2 * config.hidden, use_bias=False, rngs=rngs
    )
    self.down = nnx.Linear(
      config.hidden, config.width, use_bias=False, rngs=rngs
    )

  def __call__(self, x):
    """Maps [..., D] to [..., D]."""
    gate, up = jnp.split(self.gate_up(x), 2, -1)
    return self.down(jax.nn.silu(gate) * up)


class Block(nnx.Module):
  """One layer: attention and MLP, each normed before and added after."""

  def __init__(self, config, rngs):
    self.attention_norm = RMSNorm(config.width, config.norm_eps)
    self.attention = Attention(config, rngs)
    self.mlp_norm = RMSNorm(config.width, config.norm_eps)
    self.mlp = MLP(config, rngs)

  def __call__(self, x, keys, values, layer, angles, context):
    """Runs the layer.

    Args:
      x: [B, T, D].
      keys: [L, B, S, K, head_dim], the cache of all layers.
      values: the same.
      layer: int32 [], this layer's index.
      angles: cosine and sine, each [B, T, head_dim / 2].
      context: attention.Context.

    Returns:
      x, keys and values, updated.
    """
    mixed, keys, values = self.attention(
      self.attention_norm(x), keys, values, layer, angles, context
    )
    x = x + mixed
    return x + self.mlp(self.mlp_norm(x)), keys, values
