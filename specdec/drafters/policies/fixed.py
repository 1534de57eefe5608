"""The same number of drafts in every round, for each row its own.

The limits are the policy's state, so that another gamma is another array and
no other program: replace `state.draft.policy` of a DecodeState.
"""

import jax.numpy as jnp

from specdec.base import UsageError
from specdec.drafters.policies.policy import Policy, never_after, never_before


def build(gamma) -> Policy:
  """A policy that never stops before a limit; its state is int32 [B].

  Args:
    gamma: the limit of every row at first, in drafts.

  Raises:
    UsageError: gamma is negative.
  """
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')
  return Policy(
    init=lambda batch: jnp.full(batch, gamma, jnp.int32),
    limit=lambda limits: limits,
    before=never_before,
    after=never_after,
    update=lambda limits, drafted, accepted: limits,
    pauses=False,
  )
