"""Grouped-query attention: over the cache to decode, over whole rows to train.

Over the cache it works a block of rows at a time. The softmax is accumulated
on the way (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867): a running
maximum m, the sum of exp(s - m), and the weighted values. The number of blocks
follows the longest row, not the buffer: on SmolLM2-135M and 2 CPU cores a step
over a 4,096-row buffer with 100 tokens costs what it costs over a 512-row one.

A loop whose length is data has no reverse-mode derivative, so training takes
the same softmax over whole rows at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec import cache as cache_lib

# Finite, so that a block in which a query sees nothing is no NaN; what it adds
# is multiplied by exp(HIDDEN - m) = 0 as soon as the query sees a row.
HIDDEN = -1e30


class Context(NamedTuple):
  """What every layer of one forward pass shares."""

  start: jax.Array  # int32 [B], cache row of the first new token
  positions: jax.Array  # int32 [B, T], positions of the new tokens
  mask: jax.Array | None  # bool [B, T, T], which new token sees which; None
  # is causal


def through_cache(keys, values, layer, context, window):
  """Attention that first writes the new tokens into the cache.

  Args:
    keys: [L, B, K, head_dim, S], the cache of all layers.
    values: [L, B, K, S, head_dim].
    layer: int32 [].
    context: of the pass.
    window: tokens that a query sees, itself included; None is all.

  Returns:
    The `mix` of layers.Block; it remembers keys and values, updated.
  """

  def mix(query, key, value):
    new_keys = cache_lib.write(
      keys, layer, context.start, key, cache_lib.KEY_ROWS
    )
    new_values = cache_lib.write(
      values, layer, context.start, value, cache_lib.VALUE_ROWS
    )
    mixed = attend(query, new_keys, new_values, layer, context, window)
    return mixed, (new_keys, new_values)

  return mix


def whole_rows(window):
  """Causal attention of whole rows, in one differentiable softmax.

  Args:
    window: tokens that a query sees, itself included; None is all.

  Returns:
    The `mix` of layers.Block; it remembers nothing.
  """

  def mix(query, key, value):
    batch, tokens, heads, head_dim = query.shape
    query = query.reshape(batch, tokens, key.shape[2], -1, head_dim)
    scores = jnp.einsum(
      'btkgh,bskh->bkgts', query, key, preferred_element_type=jnp.float32
    )
    ago = jnp.arange(tokens)[:, None] - jnp.arange(tokens)[None]
    seen = ago >= 0 if window is None else (ago >= 0) & (ago < window)
    scores = jnp.where(seen[None, None, None], scores, HIDDEN)
    mixed = jnp.einsum(
      'bkgts,bskh->btkgh',
      jax.nn.softmax(scores, -1).astype(value.dtype),
      value,
      preferred_element_type=jnp.float32,
    )
    return mixed.reshape(batch, tokens, heads, head_dim), None

  return mix


def attend(query, keys, values, layer, context, window=None):
  """Attention of T new tokens, whose keys and values are written already.

  Args:
    query: [B, T, H, head_dim], scaled.
    keys: [L, B, K, head_dim, S].
    values: [L, B, K, S, head_dim].
    layer: int32 [].
    context: of the pass.
    window: tokens that a query sees, itself included; None is all.

  Returns:
    float32 [B, T, H, head_dim].
  """
  batch, tokens, heads, head_dim = query.shape
  kv_heads = keys.shape[2]
  query = query.reshape(batch, tokens, kv_heads, -1, head_dim)
  query = query.transpose(0, 2, 3, 1, 4)
  groups = query.shape[2]

  def add_block(block, carry):
    top, total, mixed = carry
    k = cache_lib.read(keys, layer, block, cache_lib.KEY_ROWS)
    v = cache_lib.read(values, layer, block, cache_lib.VALUE_ROWS)
    scores = jnp.einsum(
      'bkgth,bkhs->bkgts', query, k, preferred_element_type=jnp.float32
    )
    seen = _seen(context, block, window)
    scores = jnp.where(seen[:, None, None], scores, HIDDEN)
    new_top = jnp.maximum(top, jnp.max(scores, -1))
    weights = jnp.exp(scores - new_top[..., None])
    shrink = jnp.exp(top - new_top)
    mix = jnp.einsum(
      'bkgts,bksh->bkgth',
      weights.astype(v.dtype),
      v,
      preferred_element_type=jnp.float32,
    )
    return (
      new_top,
      total * shrink + jnp.sum(weights, -1),
      mixed * shrink[..., None] + mix,
    )

  shape = (batch, kv_heads, groups, tokens)
  first, last = _blocks(context, window)
  _, total, mixed = jax.lax.fori_loop(
    first,
    last,
    add_block,
    (
      jnp.full(shape, HIDDEN, jnp.float32),
      jnp.zeros(shape, jnp.float32),
      jnp.zeros((*shape, head_dim), jnp.float32),
    ),
  )
  out = mixed / total[..., None]
  return out.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads, head_dim)


def _blocks(context, window):
  """The blocks that some query of the batch sees, as a range."""
  tokens = context.positions.shape[1]
  last = -(-(jnp.max(context.start) + tokens) // cache_lib.BLOCK)
  if window is None:
    return 0, last
  oldest = jnp.min(context.start) - window + 1
  return jnp.maximum(oldest, 0) // cache_lib.BLOCK, last


def _seen(context, block, window):
  """Which rows of a block each new token sees, bool [B, T, BLOCK]."""
  row = block * cache_lib.BLOCK + jnp.arange(cache_lib.BLOCK)
  row = row[None, None]
  start = context.start[:, None, None]
  positions = context.positions[:, :, None]
  if context.mask is None:
    seen = row <= positions
    row_position = row
  else:
    # Rows from `start` on are the new tokens; their order is the mask's.
    tokens = positions.shape[1]
    new = jnp.clip(row - start, 0, tokens - 1)
    inside = (row >= start) & (row < start + tokens)
    among = jnp.take_along_axis(
      context.mask, jnp.broadcast_to(new, (*positions.shape[:2], row.size)), -1
    )
    seen = (row < start) | (inside & among)
    row_position = jnp.where(
      inside, jnp.take_along_axis(context.positions[:, None], new, -1), row
    )
  if window is not None:
    seen &= positions - row_position < window
  return seen
