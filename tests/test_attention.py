"""Attention by blocks of cache rows equals one dense softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from specdec import cache as cache_lib
from specdec.models import attention

BATCH, TOKENS, HEADS, KV_HEADS, DIM = 4, 5, 4, 2, 8
# Before, across, at and behind a block's edge.
STARTS = (0, cache_lib.BLOCK - 3, cache_lib.BLOCK, 2 * cache_lib.BLOCK - 12)


def dense(query, keys, values, seen):
  """Softmax attention of one sequence in float64; seen is [T, rows]."""
  group = query.shape[1] // keys.shape[0]
  out = np.zeros(query.shape)
  for head in range(query.shape[1]):
    k, v = (x[head // group, : seen.shape[1]] for x in (keys, values))
    scores = np.where(seen, query[:, head].astype(np.float64) @ k.T, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out[:, head] = weights / weights.sum(-1, keepdims=True) @ v
  return out


@pytest.fixture(scope='module')
def arrays():
  draws = np.random.default_rng(0)
  rows = 3 * cache_lib.BLOCK
  shape = (2, BATCH, KV_HEADS, rows, DIM)
  query = draws.normal(size=(BATCH, TOKENS, HEADS, DIM))
  # Rows beyond a sequence are junk, and large.
  keys, values = draws.normal(size=shape), draws.normal(size=shape)
  for row, start in enumerate(STARTS):
    keys[:, row, :, start + TOKENS :] *= 50
    values[:, row, :, start + TOKENS :] = 1e4
  return tuple(np.float32(x) for x in (query, keys, values))


@pytest.mark.parametrize('window', (None, 1, 7, 300))
@pytest.mark.parametrize('tree', (False, True))
def test_blocks_equal_a_dense_softmax(arrays, window, tree):
  query, keys, values = arrays
  start = np.array(STARTS)
  if tree:
    # Two branches behind the first new token: 1, 2 and 3, 4.
    parents = np.array([-1, 0, 1, 0, 3])
    mask, depth = np.eye(TOKENS, dtype=bool), np.zeros(TOKENS, int)
    for token in range(1, TOKENS):
      mask[token] |= mask[parents[token]]
      depth[token] = depth[parents[token]] + 1
  else:
    mask, depth = np.tri(TOKENS, dtype=bool), np.arange(TOKENS)
  positions = start[:, None] + depth[None]
  context = attention.Context(
    jnp.array(start),
    jnp.array(positions),
    jnp.broadcast_to(mask, (BATCH, TOKENS, TOKENS)) if tree else None,
  )
  got = jax.jit(attention.attend, static_argnums=5)(
    query, keys.swapaxes(-1, -2), values, 1, context, window
  )
  for row in range(BATCH):
    seen = np.concatenate([np.ones((TOKENS, start[row]), bool), mask], 1)
    at = np.concatenate([np.arange(start[row]), positions[row]])
    if window is not None:
      seen &= positions[row][:, None] - at[None] < window
    want = dense(query[row], keys[1, row], values[1, row], seen)
    assert_allclose(got[row], want, atol=2e-5)
