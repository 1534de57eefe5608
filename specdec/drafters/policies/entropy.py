"""Stops a draft where its entropy bounds the acceptance too low.

AdaEDL, Agrawal et al., https://arxiv.org/abs/2410.18351: the acceptance is
thought to be at least 1 - sqrt(scale * H(q)), H in nats. A drafter that
declares point masses has H = 0: such a draft never stops.
"""

import jax.numpy as jnp

from specdec.base import UsageError
from specdec.drafters.policies import fixed
from specdec.drafters.policies.policy import Policy


def build(gamma, scale, bound) -> Policy:
  """A policy that stops before a token, by the entropy it is drawn with.

  Args:
    gamma: most drafts of a round.
    scale: of the entropy, at least 0.
    bound: least acceptance worth a draft, in [0, 1].

  Raises:
    UsageError: one is out of its range.
  """
  if not 0 <= bound <= 1:
    raise UsageError(f'stopping.bound = {bound}: it must be in [0, 1]')
  if not scale >= 0:
    raise UsageError(f'stopping.scale = {scale}: it must be at least 0')

  def before(probs):
    logs = jnp.log(jnp.where(probs > 0, probs, 1))
    entropy_nats = jnp.maximum(-jnp.sum(probs * logs, -1), 0)
    return 1 - jnp.sqrt(scale * entropy_nats) < bound

  return fixed.build(gamma)._replace(before=before)
