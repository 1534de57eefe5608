"""What a draft would gain on a target's own replies, without decoding any.

Both read the replies; overlaps before each token give the chance of a whole
round, see train/overlap.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specdec.data import packing
from specdec.train import overlap


def reader(compare, gamma, batch_size):
  """A function that reads replies with target and draft.

  Args:
    compare: see overlap.build.
    gamma: G.
    batch_size: rows at a time.

  Returns:
    (weights, rows, SamplingParams, max_len) -> a dict of NumPy arrays [N, G],
    sums over the rounds that start at each token of a reply: `starts`, how
    many there are; `reached` and `survived`, see overlap.by_position. It is
    compiled once for all weights and temperatures.
  """

  @jax.jit
  def sums(weights, batch, params):
    ends = jnp.where(batch.mask, 1 + jnp.arange(batch.mask.shape[1])[None], 0)
    found = compare(weights, batch.tokens, params, jnp.max(ends))
    reached, survived, starts = overlap.by_position(found, batch.mask, gamma)
    return {
      'reached': reached.sum(1),
      'survived': survived.sum(1),
      'starts': starts.sum(1),
    }

  def read(weights, rows, params, max_len):
    padded = packing.pad(rows, max_len - 1)
    parts = [
      jax.device_get(sums(weights, batch, params))
      for batch in packing.in_order(padded, batch_size)
    ]
    return jax.tree.map(lambda *x: np.concatenate(x)[: len(rows)], *parts)

  return read
