"""Sources whose law is known: what a perfect model would predict.

A source draws rows of tokens and gives the law of each token, given those
before it in its row. The mean of -log law over its own rows is the entropy,
below which no model's loss can fall: E[-log q] = H(p) + KL(p || q).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec.base import UsageError


class Source(NamedTuple):
  """A language of known law."""

  rows: Callable[..., jax.Array]
  # (key, num, length) -> int32 [num, length]; the key is consumed, and row i
  # does not depend on num
  law: Callable[..., jax.Array]
  # (tokens [..., T]) -> float [..., T, V]; at [..., t, :] the law of token t
  # given those before it, so that law and labels are aligned
  vocab_size: int  # V


def markov(log_probs):
  """The next token depends on the last one alone; the first is uniform.

  Args:
    log_probs: float [V, V], log P(next | last), by last token. The same table
      makes a model of models.markov.

  Returns:
    Source.
  """
  vocab_size = log_probs.shape[-1]
  assert log_probs.shape == (vocab_size, vocab_size), log_probs.shape

  def row(key, length):
    first_key, rest_key = jax.random.split(key)

    def step(last, key):
      token = jax.random.categorical(key, log_probs[last])
      return token, token

    first = jax.random.randint(first_key, (), 0, vocab_size)
    rest = jax.lax.scan(step, first, jax.random.split(rest_key, length - 1))[1]
    return jnp.concatenate([first[None], rest])

  def law(tokens):
    first = _uniform((*tokens.shape[:-1], 1), vocab_size)
    rest = jax.nn.softmax(log_probs, -1)[tokens[..., :-1]]
    return jnp.concatenate([first, rest], -2)

  return Source(_each_row(row), law, vocab_size)


def table(key, vocab_size, entropy):
  """A random table for `markov`, each row of one entropy.

  Row i is softmax(s_i g_i) with g_i normal and the scale s_i found by
  bisection. So the entropy is the same after every token, and is the entropy
  rate of the chain whatever its stationary law is.

  Args:
    key: typed key; it is consumed.
    vocab_size: V.
    entropy: nats per token, in (0, log V).

  Returns:
    log P(next | last), float [V, V].

  Raises:
    UsageError: no table has this entropy.
  """
  most = np.log(vocab_size)
  if not 0 < entropy < most:
    raise UsageError(
      f'entropy = {entropy}: give nats per token in (0, log {vocab_size} ='
      f' {most:.4f})'
    )
  normal = jax.random.normal(key, (vocab_size, vocab_size), jnp.float32)
  normal = np.asarray(normal, np.float64)
  # Bounds of log2 s_i: a flat row, and one with all its mass on one token.
  low = np.full((vocab_size, 1), -20.0)
  high = np.full((vocab_size, 1), 40.0)
  for _ in range(100):
    middle = (low + high) / 2
    is_flat = _entropies(_log_softmax(2.0**middle * normal)) > entropy
    low, high = np.where(is_flat, middle, low), np.where(is_flat, high, middle)
  return jnp.asarray(_log_softmax(2.0**low * normal))


def cyclic(vocab_size, period):
  """Counts 0, 1, .., period - 1, 0, .. from a uniform first token.

  Args:
    vocab_size: V.
    period: number of ids that occur, in 1..V.

  Returns:
    Source.

  Raises:
    UsageError: there are not that many ids.
  """
  if not 1 <= period <= vocab_size:
    raise UsageError(f'period = {period}: give one in 1..{vocab_size}')

  def row(key, length):
    first = jax.random.randint(key, (), 0, period)
    return (first + jnp.arange(length)) % period

  def law(tokens):
    first = _uniform((*tokens.shape[:-1], 1), period)
    unused = jnp.zeros((*first.shape[:-1], vocab_size - period), first.dtype)
    rest = jax.nn.one_hot((tokens[..., :-1] + 1) % period, vocab_size)
    return jnp.concatenate([jnp.concatenate([first, unused], -1), rest], -2)

  return Source(_each_row(row), law, vocab_size)


def copy(vocab_size, period):
  """A string of uniform tokens, repeated to the end of the row.

  A model must look `period` tokens back: nothing nearer tells it anything.

  Args:
    vocab_size: V.
    period: length of the string, at least 1.

  Returns:
    Source.

  Raises:
    UsageError: the string would be empty.
  """
  if period < 1:
    raise UsageError(f'period = {period}: give at least 1')

  def row(key, length):
    string = jax.random.randint(key, (period,), 0, vocab_size)
    return string[jnp.arange(length) % period]

  def law(tokens):
    fresh = tokens[..., :period]
    copied = jax.nn.one_hot(tokens[..., :-period], vocab_size)
    return jnp.concatenate([_uniform(fresh.shape, vocab_size), copied], -2)

  return Source(_each_row(row), law, vocab_size)


def _each_row(row):
  """Draws rows, each with a key of its own."""

  def rows(key, num, length):
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num))
    return jax.vmap(lambda key: row(key, length))(keys).astype(jnp.int32)

  return rows


def _uniform(shape, vocab_size):
  return jnp.full((*shape, vocab_size), 1 / vocab_size)


def _log_softmax(logits):
  logits = logits - logits.max(-1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def _entropies(log_probs):
  return -(np.exp(log_probs) * log_probs).sum(-1, keepdims=True)
