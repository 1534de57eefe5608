"""When a draft stops before gamma tokens: a policy asked at every slot.

A policy may look at the draft's distribution before a token is drawn from it,
and at the token's probability after. A token once drawn is kept, also the one
that makes the draft stop: dropping a token for what it is would bend the law,
while a length that depends on kept tokens alone leaves every lossless rule
lossless.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec.base import UsageError


class Policy(NamedTuple):
  """When a row's draft stops."""

  before: Callable[..., jax.Array]
  # (probs [B, V]) -> bool [B], true: draw no token from them, and no more
  after: Callable[..., jax.Array]
  # (probs [B], of the tokens just drawn) -> bool [B], true: it was the last


def fixed():
  """Always gamma drafts."""
  return Policy(lambda probs: jnp.zeros(probs.shape[0], bool), _never)


def confidence(threshold):
  """Stops after a token whose draft probability is under a threshold.

  The token is kept. Assisted generation in Hugging Face transformers names
  such a bound its assistant's confidence threshold.

  Args:
    threshold: in [0, 1].

  Raises:
    UsageError: it is not.
  """
  _check('threshold', threshold)
  return fixed()._replace(after=lambda probs: probs < threshold)


def entropy(scale, bound):
  """Stops before a token whose acceptance is bounded too low by its entropy.

  AdaEDL, Agrawal et al., https://arxiv.org/abs/2410.18351: the draft goes on
  while 1 - sqrt(scale * H(q)) is at least the bound, H in nats.

  Args:
    scale: of the entropy, at least 0.
    bound: least acceptance worth a draft, in [0, 1].

  Raises:
    UsageError: one is out of its range.
  """
  _check('bound', bound)
  if not scale >= 0:
    raise UsageError(f'stopping.scale = {scale}: it must be at least 0')

  def before(probs):
    logs = jnp.log(jnp.where(probs > 0, probs, 1))
    entropy_nats = jnp.maximum(-jnp.sum(probs * logs, -1), 0)
    return 1 - jnp.sqrt(scale * entropy_nats) < bound

  return Policy(before, _never)


def _never(probs):
  return jnp.zeros(probs.shape, bool)


def _check(name, value):
  if not 0 <= value <= 1:
    raise UsageError(f'stopping.{name} = {value}: it must be in [0, 1]')
