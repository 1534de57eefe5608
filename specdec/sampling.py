"""From logits to the distribution that is sampled, and the draws from it.

One `transform` serves the autoregressive loop, the drafter and the verifier:
temperature, then top-k, then top-p, then min-p, renormalised after each. The
filters never sort. A token is kept when what ranks strictly ahead of it, by
probability and then by lowest id, is fewer than k tokens or less than
top_p of mass; the threshold is found by bisection over the bits of a float,
which are ordered like the float itself.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from specdec.base import SamplingParams, UsageError

# Below this temperature a row is greedy, in every path.
MIN_TEMPERATURE = 1e-5
# Of p in an excess over q: far below a rounding error, far above 0.
_TRACE = 1e-30


def params(batch, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
  """Sampling parameters of a batch; each may be one value or one a row.

  Args:
    batch: B.
    temperature: at least 0; 0 is greedy.
    top_k: tokens kept; 0, -1, or V and more keep all.
    top_p: probability mass kept, in (0, 1].
    min_p: least probability kept, relative to the greatest, in [0, 1).

  Returns:
    SamplingParams of shape [B].

  Raises:
    UsageError: a value is out of its range.
  """
  fields = {
    'temperature': (temperature, lambda x: x >= 0, 'at least 0'),
    'top_k': (
      top_k,
      lambda x: x >= -1,
      'whole, or 0 to keep all',
    ),
    'top_p': (top_p, lambda x: (x > 0) & (x <= 1), 'in (0, 1]'),
    'min_p': (min_p, lambda x: (x >= 0) & (x < 1), 'in [0, 1)'),
  }
  rows = {}
  for name, (value, good, rule) in fields.items():
    dtype = jnp.int32 if name == 'top_k' else jnp.float32
    value = np.asarray(value)
    whole = name != 'top_k' or np.all(value == np.floor(value))
    if not (whole and np.all(good(value) & np.isfinite(value))):
      raise UsageError(f'sampling.{name} = {value}: it must be {rule}')
    rows[name] = jnp.broadcast_to(jnp.asarray(value, dtype), (batch,))
  return SamplingParams(**rows)


def is_greedy(sampling):
  """The one predicate that separates argmax from sampling. bool [B]."""
  return sampling.temperature < MIN_TEMPERATURE


def transform(logits, sampling):
  """The distribution that is sampled.

  Args:
    logits: float [B, T, V].
    sampling: SamplingParams of B rows.

  Returns:
    Probabilities [B, T, V], float32 (float64 for float64 logits). Work that
    no row of the batch asks for is skipped at run time.
  """
  logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
  greedy = is_greedy(sampling)
  point = _point_mass(logits)

  def sampled():
    temperature = jnp.where(greedy, 1, sampling.temperature)
    probs = jax.nn.softmax(_temper(logits, _rows(temperature)), -1)
    for asked, keep in (
      (_asks_top_k(sampling, probs), keep_top_k),
      (sampling.top_p < 1, keep_top_p),
      (sampling.min_p > 0, keep_min_p),
    ):
      asked &= ~greedy
      # Even to divide by a sum near 1 would change the rows that do not ask.
      probs = jax.lax.cond(
        jnp.any(asked),
        lambda probs, asked=asked, keep=keep: jnp.where(
          _rows(asked), _keep(probs, keep(probs, sampling)), probs
        ),
        lambda probs: probs,
        probs,
      )
    return jnp.where(_rows(greedy), point, probs)

  return jax.lax.cond(jnp.all(greedy), lambda: point, sampled)


def keep_top_k(probs, sampling):
  """Tokens with fewer than top_k ahead of them. bool [B, T, V]."""
  return _keep_ahead_under(probs, jnp.ones_like(probs), _rows(sampling.top_k))


def keep_top_p(probs, sampling):
  """Tokens with less than top_p of mass ahead of them. bool [B, T, V]."""
  return _keep_ahead_under(probs, probs, _rows(sampling.top_p))


def keep_min_p(probs, sampling):
  """Tokens of at least min_p times the greatest probability."""
  return probs >= _rows(sampling.min_p) * jnp.max(probs, -1, keepdims=True)


def categorical(key, probs):
  """One draw from a distribution.

  In two stages, a block of about sqrt(V) tokens and a token within it, so that
  2 sqrt(V) random numbers do the work of V.

  Args:
    key: typed key; it is consumed.
    probs: float [V], that need not be normalised; what has 0 is never drawn.

  Returns:
    int32 [].
  """
  size = probs.shape[-1]
  width = math.isqrt(size - 1) + 1
  # Neither padded nor stored as a whole where it is the result of a formula:
  # XLA then computes each block's sum, and the one block that is drawn.
  whole = size - size % width
  sums = jnp.sum(probs[:whole].reshape(-1, width), -1)
  if whole < size:
    sums = jnp.append(sums, jnp.sum(probs[whole:]))
  block_key, token_key = jax.random.split(key)
  block = jax.random.categorical(block_key, jnp.log(sums))
  ids = block * width + jnp.arange(width)
  weights = probs.at[ids].get(mode='fill', fill_value=0)
  token = jax.random.categorical(token_key, jnp.log(weights))
  return (block * width + token).astype(jnp.int32)


def race(key, probs):
  """One draw from a distribution, as the winner of an exponential race.

  argmin_x E_x / p(x), with one exponential E_x a token, is x with probability
  p(x). Two distributions that share a key often draw the same token.

  Args:
    key: typed key; it is consumed.
    probs: float [V], that need not be normalised; what has 0 never wins.

  Returns:
    int32 [].
  """
  times = _exponentials(key, probs.shape, probs.dtype)
  times = jnp.where(probs > 0, times / jnp.where(probs > 0, probs, 1), jnp.inf)
  return _lowest_id(times == jnp.min(times))


def _exponentials(key, shape, dtype):
  """Exponential variables, -log(1 - u), that are fine near 0.

  A single uniform is 0 with probability 2^-23, and a token of time 0 wins its
  race whatever its p: among 49,152 tokens that happens every 170th time. A
  second uniform says where between two neighbours the first one lies.
  """
  eps = jnp.finfo(dtype).eps
  coarse, fine = (
    jax.random.uniform(part, shape, dtype) for part in jax.random.split(key)
  )
  return -jnp.log1p(-jnp.minimum(coarse + eps * fine, 1 - eps / 2))


def acceptance(p, q):
  """min(1, p / q), elementwise, where a token with p = 0 has 0."""
  return jnp.where(p < q, p / jnp.where(q > 0, q, 1), jnp.where(p > 0, 1, 0))


def excess(p, q):
  """What p has beyond q: max(p - q, 0), not normalised.

  Where p <= q in floating point nothing would remain. That is never drawn from
  but for rounding, and is p then: a part of p too small to show beside any
  excess is kept everywhere.
  """
  return jnp.maximum(p - q, _TRACE * p)


def residual(p, q):
  """`excess`, normalised, over the last axis."""
  rest = excess(p, q)
  mass = jnp.sum(rest, -1, keepdims=True)
  return rest / jnp.where(mass > 0, mass, 1)


def _rows(values):
  """[B] as [B, 1, 1]."""
  return values[:, None, None]


def _point_mass(logits):
  """All probability on the argmax, the lowest id on ties."""
  ids = jnp.arange(logits.shape[-1], dtype=jnp.int32)[None, None]
  best = _lowest_id(logits == jnp.max(logits, -1, keepdims=True))
  return (ids == best[..., None]).astype(logits.dtype)


def _lowest_id(chosen):
  """The first True of bool [..., V], int32 [...]."""
  # A plain reduction: XLA on CPU does not vectorise an argmax.
  size = chosen.shape[-1]
  ids = jnp.arange(size, dtype=jnp.int32).reshape(
    (1,) * (chosen.ndim - 1) + (size,)
  )
  return jnp.min(jnp.where(chosen, ids, size), -1)


def _temper(logits, temperature):
  # The greatest becomes 0 first, so that no temperature overflows.
  return (logits - jnp.max(logits, -1, keepdims=True)) / temperature


def _asks_top_k(sampling, probs):
  return (sampling.top_k > 0) & (sampling.top_k < probs.shape[-1])


def _keep(probs, kept):
  probs = jnp.where(kept, probs, 0)
  return probs / jnp.sum(probs, -1, keepdims=True)


def _keep_ahead_under(probs, weights, limit):
  """Tokens whose weight ahead of them is under `limit`. bool like `probs`.

  `ahead(x)` sums the weights of the tokens ranked before x. It grows along
  the ranking, so what is kept is a prefix of it: all tokens above a threshold
  probability, and of those equal to it the lowest ids.
  """
  bits = jax.lax.bitcast_convert_type(
    probs, jnp.int32 if probs.dtype == jnp.float32 else jnp.int64
  )
  ids = jnp.arange(probs.shape[-1], dtype=jnp.int32)[None, None]

  def weight_of(chosen):
    return jnp.sum(jnp.where(chosen, weights, 0), -1, keepdims=True)

  # The least value whose tokens still have room ahead of them.
  threshold = _bisect(
    lambda value: weight_of(bits > value) < limit,
    jnp.zeros_like(bits[..., :1]),
    jnp.max(bits, -1, keepdims=True),
  )
  above, tied = bits > threshold, bits == threshold
  # The last id that may stay among the equal ones; one alone needs no search.
  size = probs.shape[-1]
  first = jnp.min(jnp.where(tied, ids, size), -1, keepdims=True)
  last = jnp.max(jnp.where(tied, ids, -1), -1, keepdims=True)
  cut = -_bisect(
    lambda value: weight_of(above | (tied & (ids < -value))) < limit,
    -last,
    -first,
  )
  return above | (tied & (ids <= cut))


def _bisect(holds, low, high):
  """The least integer in [low, high] for which a monotone `holds` is true.

  `holds(high)` must be true.
  """

  def halve(interval):
    low, high = interval
    middle = low + (high - low) // 2
    here = holds(middle)
    open_ = low < high
    return (
      jnp.where(open_ & ~here, middle + 1, low),
      jnp.where(open_ & here, middle, high),
    )

  return jax.lax.while_loop(
    lambda interval: jnp.any(interval[0] < interval[1]), halve, (low, high)
  )[0]
