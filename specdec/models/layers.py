"""The layers of a Llama-like decoder, as Flax NNX modules.

Queries, keys and values are one product, and so are gate and up: on 2 CPU
cores a product with few rows costs what reading its weights costs, and fewer
products read them in longer runs.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from specdec.models import rotary


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
  """An affine map, y = x W + b, with W as [in, out]."""

  def __init__(self, num_in, num_out, rngs, use_bias=False):
    draw = nnx.initializers.lecun_normal()
    self.kernel = nnx.Param(draw(rngs.params(), (num_in, num_out)))
    if use_bias:
      self.bias = nnx.Param(jnp.zeros(num_out))

  def __call__(self, x, product=None):
    """Maps [..., in] to [..., out].

    Args:
      x: [..., in].
      product: rows [N, in] -> rows W, [N, out], where W is not `kernel`; see
        `of_layer`.
    """
    rows = x.reshape(-1, x.shape[-1])
    y = product(rows) if product else rows @ self.kernel[...]
    if hasattr(self, 'bias'):
      y += self.bias[...][None]
    return y.reshape(*x.shape[:-1], -1)


def of_layer(kernels, layer, rows):
  """Multiplies with the kernel of one layer, each in an array of its own.

  XLA on CPU copies a slice of a stack of weights before it multiplies with it,
  and with few rows the copy costs as much as the product. A branch reads its
  array where it lies; it holds a call and no code, so that L of them compile
  about as fast as one.

  Args:
    kernels: L arrays [out, in].
    layer: int32 [].
    rows: [N, in].

  Returns:
    [N, out].
  """
  branches = [lambda rows, w=w: (w @ rows.T).T for w in kernels]
  return jax.lax.switch(layer, branches, rows)


class Attention(nnx.Module):
  """Grouped-query attention with rotary positions."""

  def __init__(self, config, rngs):
    self.config = config
    heads, kv_heads = config.num_heads, config.num_kv_heads
    dim = config.head_dim
    self.qkv = Linear(
      config.width,
      (heads + 2 * kv_heads) * dim,
      rngs,
      config.qkv_bias,
    )
    self.out = Linear(heads * dim, config.width, rngs, config.out_bias)
    if config.qk_norm:
      self.query_norm = RMSNorm(dim, config.norm_eps)
      self.key_norm = RMSNorm(dim, config.norm_eps)

  def __call__(self, x, angles, mix, products):
    """Attends; see Block."""
    config = self.config
    batch, tokens, _ = x.shape
    heads, kv_heads = config.num_heads, config.num_kv_heads
    split = self.qkv(x, products.get('qkv'))
    split = split.reshape(batch, tokens, -1, config.head_dim)
    q, k, v = jnp.split(split, [heads, heads + kv_heads], 2)
    if config.qk_norm:
      q, k = self.query_norm(q), self.key_norm(k)
    q, k = rotary.rotate(q, *angles), rotary.rotate(k, *angles)
    mixed, memory = mix(q * config.head_dim**-0.5, k, v)
    mixed = mixed.reshape(batch, tokens, -1).astype(x.dtype)
    return self.out(mixed, products.get('out')), memory


class MLP(nnx.Module):
  """A gated MLP: down(silu(gate(x)) * up(x))."""

  def __init__(self, config, rngs):
    self.gate_up = Linear(config.width, 2 * config.hidden, rngs)
    self.down = Linear(config.hidden, config.width, rngs)

  def __call__(self, x, products):
    """Maps [..., D] to [..., D]; see Block."""
    gate, up = jnp.split(self.gate_up(x, products.get('gate_up')), 2, -1)
    return self.down(jax.nn.silu(gate) * up, products.get('down'))


class Block(nnx.Module):
  """One layer: attention and MLP, each normed before and added after."""

  def __init__(self, config, rngs):
    self.attention_norm = RMSNorm(config.width, config.norm_eps)
    self.attention = Attention(config, rngs)
    self.mlp_norm = RMSNorm(config.width, config.norm_eps)
    self.mlp = MLP(config, rngs)

  @property
  def linears(self):
    """The layer's products by name, as `products` names them."""
    return {
      'qkv': self.attention.qkv,
      'out': self.attention.out,
      'gate_up': self.mlp.gate_up,
      'down': self.mlp.down,
    }

  def __call__(self, x, angles, mix, products=None):
    """Runs the layer.

    Args:
      x: [B, T, D].
      angles: cosine and sine, each [B, T, head_dim / 2].
      mix: what the tokens hear of each other: (query [B, T, H, head_dim],
        scaled, key [B, T, K, head_dim], value like key) -> (the values mixed,
        [B, T, H, head_dim], and what `mix` remembers).
      products: {name of a Linear: its `product`}; None has all kernels here.

    Returns:
      x, updated, and what `mix` remembers.
    """
    products = products or {}
    mixed, memory = self.attention(
      self.attention_norm(x), angles, mix, products
    )
    x = x + mixed
    return x + self.mlp(self.mlp_norm(x), products), memory
