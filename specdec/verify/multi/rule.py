"""A rule for several candidates at one position, as sampler and as law.

The candidates of a position are K guesses at one token. They are looked at in
order; the first that is accepted becomes the token, and if none is, a
correction is drawn. This is one node of a token tree: SpecInfer,
https://arxiv.org/abs/2305.09781. A rule is lossless when

  sum over candidates and i of prob(candidates) law(candidates)[i, x] = p(x).

Shape letters are those of `base`, and K candidates of one position.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec import sampling
from specdec.base import UsageError


class Choice(NamedTuple):
  """What the target made of the candidates."""

  index: jax.Array  # int32 [], the accepted candidate; K if there is none
  token: jax.Array  # int32 [], that candidate, or the correction


class MultiRule(NamedTuple):
  """How candidates are drawn and judged. Written for one position.

  A candidate of -1 is none. It is passed over, as if K were smaller.
  """

  draw: Callable[..., jax.Array]  # (key, q [V]) -> candidates, int32 [K]
  prob: Callable[..., jax.Array]
  # (candidates [K], q [V]) -> float [], P(draw = candidates)
  verify: Callable[..., Choice]  # (key, candidates [K], p [V], q [V]) -> Choice
  law: Callable[..., jax.Array]
  # (candidates [K], p [V], q [V]) -> float [K+1, V],
  # P(index = i, token = x | candidates); row K is the correction


class Trial(NamedTuple):
  """What is decided before a coin is thrown.

  Once candidate i is reached, it is accepted with probability
  min(1, target[i] / draft[i]); a target of 0 is never accepted.
  """

  target: jax.Array  # float [K]
  draft: jax.Array  # float [K]
  rest: jax.Array  # float [V], the law of the correction


def build(k, draw, prob, judge) -> MultiRule:
  """Completes a rule from how it draws and how it judges.

  Args:
    k: K, at least 1.
    draw: (key, q [V], k) -> candidates, int32 [K].
    prob: (candidates [K], q [V]) -> float [].
    judge: (candidates [K], p [V], q [V]) -> Trial.

  Returns:
    The rule. Its `verify` and its `law` rest on the same trial.

  Raises:
    UsageError: k is less than 1.
  """
  if k < 1:
    raise UsageError(f'k = {k}: it must be at least 1, candidates a position')

  def checked(candidates, p, q):
    assert candidates.shape == (k,), f'candidates {candidates.shape}, k = {k}'
    assert p.shape == q.shape and p.ndim == 1, f'p {p.shape}, q {q.shape}'
    return judge(candidates, p, q)

  def verify(key, candidates, p, q):
    trial = checked(candidates, p, q)
    accept_key, correction_key = jax.random.split(key)
    u = jax.random.uniform(accept_key, (k,), p.dtype)
    # Strict, with u in [0, 1): a token with p = 0 is never accepted.
    accepted = u * trial.draft < trial.target
    index = jnp.argmax(jnp.append(accepted, True)).astype(jnp.int32)
    correction = sampling.categorical(correction_key, trial.rest)
    return Choice(index, jnp.append(candidates, correction)[index])

  def law(candidates, p, q):
    trial = checked(candidates, p, q)
    one = jnp.ones(1, p.dtype)
    accept = sampling.acceptance(trial.target, trial.draft)
    reach = jnp.cumprod(jnp.concatenate([one, 1 - accept]))
    ends = reach * jnp.concatenate([accept, one])
    tokens = jax.nn.one_hot(candidates, p.shape[0], dtype=p.dtype)
    return ends[:, None] * jnp.concatenate([tokens, trial.rest[None]])

  return MultiRule(lambda key, q: draw(key, q, k), prob, verify, law)
