"""The key-value cache: one pytree, a length for each sequence.

Every layer lies in one buffer, [L, B, K, S, head_dim], which the scan over
layers carries and updates in place. Rolling back is setting a length; rows at
and beyond it are stale, masked, and overwritten by the next write.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Attention reads the cache in blocks of so many rows; the buffer is a multiple
# of it, since `dynamic_slice` clamps silently.
BLOCK = 256
# Prompts are fed in pieces of so many tokens; it divides BLOCK, so that the
# last piece stays inside the buffer.
CHUNK = 64


class KVCache(NamedTuple):
  """Keys and values of the tokens that were fed."""

  keys: jax.Array  # [L, B, K, S, head_dim]
  values: jax.Array  # [L, B, K, S, head_dim]
  length: jax.Array  # int32 [B], valid rows


def empty(layers, batch, rows, kv_heads, head_dim, dtype=jnp.float32):
  """A cache of length 0 with room for at least `rows` tokens a sequence."""
  rows = -(-rows // BLOCK) * BLOCK
  shape = (layers, batch, kv_heads, rows, head_dim)
  return KVCache(
    jnp.zeros(shape, dtype),
    jnp.zeros(shape, dtype),
    jnp.zeros(batch, jnp.int32),
  )


def write(buffer, layer, start, new):
  """Writes T rows of one layer, each sequence at its own start.

  Args:
    buffer: [L, B, K, S, head_dim].
    layer: int32 [].
    start: int32 [B].
    new: [B, T, K, head_dim].

  Returns:
    The buffer, updated in place where the compiler owns it.
  """
  new = new.transpose(0, 2, 1, 3)[None].astype(buffer.dtype)
  for row in range(new.shape[1]):
    buffer = jax.lax.dynamic_update_slice(
      buffer,
      new[:, row : row + 1],
      (layer, row, 0, start[row], 0),
    )
  return buffer


def read(buffer, layer, block):
  """The rows of one block of one layer, [B, K, BLOCK, head_dim]."""
  _, batch, kv_heads, _, head_dim = buffer.shape
  return jax.lax.dynamic_slice(
    buffer,
    (layer, 0, 0, block * BLOCK, 0),
    (1, batch, kv_heads, BLOCK, head_dim),
  )[0]


def fill(model, params, tokens, length):
  """Feeds prompts of unequal length to a model, piece by piece.

  The number of pieces follows the longest prompt, so other prompts in the
  same buffer do not retrace.

  Args:
    model: base.Model.
    params: the model's weights.
    tokens: int32 [B, S], right-padded.
    length: int32 [B], tokens of each prompt.

  Returns:
    The cache, with room for S tokens and the given length, and the features
    of the prompts, float32 [B, S, F] (junk past the length).
  """
  batch, rows = tokens.shape
  padded = -(-rows // CHUNK) * CHUNK
  tokens = jnp.pad(tokens, ((0, 0), (0, padded - rows)))
  features = jnp.zeros((batch, padded, model.feature_width))

  def feed(carry):
    at, cache, features = carry
    piece = jax.lax.dynamic_slice(tokens, (0, at), (batch, CHUNK))
    output = model.apply(params, piece, cache)
    features = jax.lax.dynamic_update_slice(
      features, output.features, (0, at, 0)
    )
    return at + CHUNK, output.cache, features

  _, cache, features = jax.lax.while_loop(
    lambda carry: carry[0] < jnp.max(length),
    feed,
    (jnp.int32(0), model.init_cache(batch, padded), features),
  )
  return cache._replace(length=length), features[:, :rows]
