"""The layers of a Llama-like decoder, as Flax NNX modules.

Queries, keys and values are one product, and so are gate and up: on 2 CPU
cores a product with few rows costs what reading its weights costs, and fewer
products read them in longer runs.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from specdec.models import rotary

# Up to so many rows are multiplied one by one; see Linear.
FEW_ROWS = 5


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


class Linear(nnx.Module):
  """An affine map, y = x W + b, with W as [in, out].

  `row_kernel`, where it is asked for, is W once more as [out, in]. XLA on CPU
  multiplies one row with it straight from the stack of layers; every other
  product copies the layer's slice first. For up to FEW_ROWS rows, taken one by
  one, that is faster. It costs the memory of a second copy.
  """

  def __init__(self, num_in, num_out, rngs, use_bias=False, row_kernel=False):
    draw = nnx.initializers.lecun_normal()
    self.kernel = nnx.Param(draw(rngs.params(), (num_in, num_out)))
    if row_kernel:
      self.row_kernel = nnx.Param(self.kernel[...].T)
    if use_bias:
      self.bias = nnx.Param(jnp.zeros(num_out))

  def __call__(self, x):
    """Maps [..., in] to [..., out]."""
    lead, num_in = x.shape[:-1], x.shape[-1]
    rows = x.reshape(-1, num_in)
    if hasattr(self, 'row_kernel') and rows.shape[0] <= FEW_ROWS:
      kernel = self.row_kernel[...].T
      y = jnp.concatenate([row[None] @ kernel for row in rows])
    else:
      y = rows @ self.kernel[...]
    if hasattr(self, 'bias'):
      y += self.bias[...][None]
    return y.reshape(*lead, -1)


class Attention(nnx.Module):
  """Grouped-query attention with rotary positions."""

  def __init__(self, config, rngs, row_kernel):
    self.config = config
    heads, kv_heads = config.num_heads, config.num_kv_heads
    dim = config.head_dim
    self.qkv = Linear(
      config.width,
      (heads + 2 * kv_heads) * dim,
      rngs,
      config.qkv_bias,
      row_kernel,
    )
    self.out = Linear(
      heads * dim, config.width, rngs, config.out_bias, row_kernel
    )
    if config.qk_norm:
      self.query_norm = RMSNorm(dim, config.norm_eps)
      self.key_norm = RMSNorm(dim, config.norm_eps)

  def __call__(self, x, angles, mix):
    """Attends; see Block."""
    config = self.config
    batch, tokens, _ = x.shape
    heads, kv_heads = config.num_heads, config.num_kv_heads
    split = self.qkv(x).reshape(batch, tokens, -1, config.head_dim)
    q, k, v = jnp.split(split, [heads, heads + kv_heads], 2)
    if config.qk_norm:
      q, k = self.query_norm(q), self.key_norm(k)
    q, k = rotary.rotate(q, *angles), rotary.rotate(k, *angles)
    mixed, memory = mix(q * config.head_dim**-0.5, k, v)
    mixed = mixed.reshape(batch, tokens, -1).astype(x.dtype)
    return self.out(mixed), memory


class MLP(nnx.Module):
  """A gated MLP: down(silu(gate(x)) * up(x))."""

  def __init__(self, config, rngs, row_kernel):
    self.gate_up = Linear(
      config.width, 2 * config.hidden, rngs, row_kernel=row_kernel
    )
    self.down = Linear(config.hidden, config.width, rngs, row_kernel=row_kernel)

  def __call__(self, x):
    """Maps [..., D] to [..., D]."""
    gate, up = jnp.split(self.gate_up(x), 2, -1)
    return self.down(jax.nn.silu(gate) * up)


class Block(nnx.Module):
  """One layer: attention and MLP, each normed before and added after."""

  def __init__(self, config, rngs, row_kernel=False):
    self.attention_norm = RMSNorm(config.width, config.norm_eps)
    self.attention = Attention(config, rngs, row_kernel)
    self.mlp_norm = RMSNorm(config.width, config.norm_eps)
    self.mlp = MLP(config, rngs, row_kernel)

  def __call__(self, x, angles, mix):
    """Runs the layer.

    Args:
      x: [B, T, D].
      angles: cosine and sine, each [B, T, head_dim / 2].
      mix: what the tokens hear of each other: (query [B, T, H, head_dim],
        scaled, key [B, T, K, head_dim], value like key) -> (the values mixed,
        [B, T, H, head_dim], and what `mix` remembers).

    Returns:
      x, updated, and what `mix` remembers.
    """
    mixed, memory = self.attention(self.attention_norm(x), angles, mix)
    x = x + mixed
    return x + self.mlp(self.mlp_norm(x)), memory
