"""Where the candidates of a position come from, and how likely they are.

Three ways: independent draws from q; draws without replacement, where q loses
what was drawn; and the most likely tokens of q, which is no draw at all. Where
q has no token left to give, the remaining candidates are -1, which is none.
Without replacement, an ordered tuple has the probability

  q(x_1) q(x_2) / (1 - q(x_1)) q(x_3) / (1 - q(x_1) - q(x_2)) ...
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from specdec import sampling


def every(vocab, k):
  """All tuples of k candidates, int32 [(V+1)**k, k], those with -1 too."""
  return np.array([*itertools.product(range(-1, vocab), repeat=k)], np.int32)


def at(probs, candidates):
  """probs[candidate], and 0 for no candidate.

  Args:
    probs: float [V].
    candidates: int32 [...].

  Returns:
    float [...].
  """
  return jnp.where(candidates >= 0, jnp.asarray(probs)[candidates], 0)


def draw_independent(key, q, k):
  """k draws from q.

  Args:
    key: typed key; it is consumed.
    q: float [V].
    k: K.

  Returns:
    int32 [K].
  """
  keys = jax.random.split(key, k)
  return jax.vmap(sampling.categorical, (0, None))(keys, q)


def prob_independent(candidates, q):
  """P(candidates) of `draw_independent`, float []."""
  return jnp.prod(at(q, candidates))


def draw_distinct(key, q, k):
  """k draws from q without replacement, in the order of drawing.

  Args:
    key: typed key; it is consumed.
    q: float [V].
    k: K.

  Returns:
    int32 [K], with -1 where no token of q is left.
  """
  ids = jnp.arange(q.shape[0], dtype=jnp.int32)

  def pick(left, key):
    token = sampling.categorical(key, left)
    token = jnp.where(jnp.any(left > 0), token, -1)
    return jnp.where(ids == token, 0, left), token

  return jax.lax.scan(pick, q, jax.random.split(key, k))[1]


def distinct_rows(candidates, q):
  """What each candidate of `draw_distinct` was drawn from.

  Args:
    candidates: int32 [K].
    q: float [V].

  Returns:
    float [K, V]; row i is q without the candidates before i, brought back to
    q's own total, so that row 0 is q bit for bit. It is 0 where none is left.
  """
  chosen = jax.nn.one_hot(candidates, q.shape[0], dtype=jnp.int32)
  before = jnp.cumsum(chosen, 0) - chosen
  left = jnp.where(before == 0, q[None], 0)
  mass = jnp.sum(left, -1, keepdims=True)
  share = mass / jnp.where(mass > 0, mass, 1)[:1]
  return left / jnp.where(share > 0, share, 1)


def prob_distinct(candidates, q):
  """P(candidates) of `draw_distinct`, float []."""
  rows = distinct_rows(candidates, q)
  none_left = ~jnp.any(rows > 0, -1)
  drawn = jax.vmap(at)(rows, candidates)
  return jnp.prod(jnp.where(candidates >= 0, drawn, none_left))


def likeliest(q, k):
  """The k most likely tokens, the lowest id first on ties.

  Args:
    q: float [V].
    k: K.

  Returns:
    int32 [K], with -1 where no token of q is left.
  """
  width = min(k, q.shape[0])
  probs, tokens = jax.lax.top_k(q, width)
  tokens = jnp.where(probs > 0, tokens, -1).astype(jnp.int32)
  return jnp.pad(tokens, (0, k - width), constant_values=-1)


def prob_likeliest(candidates, q):
  """1 for what `likeliest` returns, 0 for all else, float []."""
  same = candidates == likeliest(q, candidates.shape[0])
  return jnp.all(same).astype(q.dtype)
