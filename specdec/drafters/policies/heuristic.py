"""Two drafts more after a round that kept all of them, else one fewer.

The heuristic schedule of assisted generation in Hugging Face transformers,
which begins with five: it looks at acceptance alone, and knows no cost.
"""

import jax.numpy as jnp

from specdec.base import UsageError
from specdec.drafters.policies.policy import Policy, never_after, never_before

START, MORE, FEWER = 5, 2, 1


def build(gamma) -> Policy:
  """The heuristic schedule; its state is the next limit, int32 [B].

  Args:
    gamma: most drafts of a round; the limit stays in 1..gamma, and at 0 where
      that is gamma.

  Raises:
    UsageError: gamma is negative.
  """
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')

  def update(limits, drafted, accepted):
    moved = limits + jnp.where(accepted == drafted, MORE, -FEWER)
    moved = jnp.clip(moved, min(1, gamma), gamma)
    # Where there was nothing to verify, nothing was kept or lost.
    return jnp.where(drafted > 0, moved, limits)

  return Policy(
    init=lambda batch: jnp.full(batch, min(START, gamma), jnp.int32),
    limit=lambda limits: limits,
    before=never_before,
    after=never_after,
    update=update,
    pauses=False,
  )
