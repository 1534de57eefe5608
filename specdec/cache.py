"""The key-value cache: one pytree, a length for each sequence.

Every layer lies in one buffer, which the scan over layers carries and updates
in place. Keys lie as [head_dim, S] and values as [S, head_dim], each as the
product that reads it wants it: else XLA on CPU packs every block anew.

Rolling back is setting a length; rows at and beyond it are stale, masked, and
overwritten by the next write.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Attention reads the cache in blocks of so many rows; the buffer is a multiple
# of it, since `dynamic_slice` clamps silently.
BLOCK = 128
# The axis of S in keys and in values.
KEY_ROWS, VALUE_ROWS = 4, 3
# Prompts are fed in pieces of so many tokens; it divides BLOCK, so that the
# last piece stays inside the buffer.
CHUNK = 64


class KVCache(NamedTuple):
  """Keys and values of the tokens that were fed."""

  keys: jax.Array  # [L, B, K, head_dim, S]
  values: jax.Array  # [L, B, K, S, head_dim]
  length: jax.Array  # int32 [B], valid rows


def empty(layers, batch, rows, kv_heads, head_dim, dtype=jnp.float32):
  """A cache of length 0 with room for at least `rows` tokens a sequence."""
  rows = -(-rows // BLOCK) * BLOCK
  return KVCache(
    jnp.zeros((layers, batch, kv_heads, head_dim, rows), dtype),
    jnp.zeros((layers, batch, kv_heads, rows, head_dim), dtype),
    jnp.zeros(batch, jnp.int32),
  )


def write(buffer, layer, start, new, rows_axis):
  """Writes T rows of one layer, each sequence at its own start.

  Args:
    buffer: keys [L, B, K, head_dim, S] or values [L, B, K, S, head_dim].
    layer: int32 [].
    start: int32 [B].
    new: [B, T, K, head_dim].
    rows_axis: KEY_ROWS or VALUE_ROWS, the axis of S.

  Returns:
    The buffer, updated in place where the compiler owns it.
  """
  new = jnp.moveaxis(new, 1, rows_axis - 1)[None].astype(buffer.dtype)
  for row in range(new.shape[1]):
    at = [layer, row, 0, 0, 0]
    at[rows_axis] = start[row]
    buffer = jax.lax.dynamic_update_slice(buffer, new[:, row : row + 1], at)
  return buffer


def read(buffer, layer, block, rows_axis):
  """One block of one layer: BLOCK instead of S, and no axis L."""
  shape = list(buffer.shape)
  shape[0], shape[rows_axis] = 1, BLOCK
  at = [layer, 0, 0, 0, 0]
  at[rows_axis] = block * BLOCK
  return jax.lax.dynamic_slice(buffer, at, shape)[0]


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
