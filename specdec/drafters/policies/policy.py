"""How many drafts a round should have: what a policy is.

A policy sets a limit before a round, from what became of the row's own rounds
so far, and may stop a draft earlier: before a token is drawn, for the draft's
distribution, or after one, for its probability. A token once drawn is kept,
also the one that makes the draft stop: dropping a token for what it is would
bend the law. A length that depends on kept tokens and on earlier rounds alone
leaves every lossless rule lossless, since each round is lossless whatever its
length, given what is committed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Policy(NamedTuple):
  """The number of drafts of a row's next round, as pure batched functions.

  A row's state follows from its own rounds; no leaf mixes rows.
  """

  init: Callable[[int], Any]  # (B) -> state, a pytree of leaves [B, ...]
  limit: Callable[..., jax.Array]
  # (state) -> int32 [B], the most drafts of the next round; what lies outside
  # of 0..G is brought inside
  before: Callable[..., jax.Array]
  # (probs [B, V]) -> bool [B], true: draw no token from them, and no more
  after: Callable[..., jax.Array]
  # (probs [B], of the tokens just drawn) -> bool [B], true: it was the last
  update: Callable[..., Any]
  # (state, drafted int32 [B], accepted int32 [B]) -> state, after a round
  pauses: bool  # may a row draft again after a round whose limit was 0? Then
  # a model's cache has to catch up


def never_before(probs):
  """The `before` of a policy that does not look at distributions."""
  return jnp.zeros(probs.shape[0], bool)


def never_after(probs):
  """The `after` of a policy that does not look at drawn tokens."""
  return jnp.zeros(probs.shape, bool)
