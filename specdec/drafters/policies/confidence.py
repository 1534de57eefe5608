"""Stops a draft after a token that the draft itself finds unlikely.

Assisted generation in Hugging Face transformers names such a bound its
assistant's confidence threshold. The token is kept. The token of a drafter
that declares point masses has probability 1: such a draft never stops.
"""

from specdec.base import UsageError
from specdec.drafters.policies import fixed
from specdec.drafters.policies.policy import Policy


def build(gamma, threshold) -> Policy:
  """A policy that stops after a token under a threshold.

  Args:
    gamma: most drafts of a round.
    threshold: least draft probability that lets the draft go on, in [0, 1].

  Raises:
    UsageError: one is out of its range.
  """
  if not 0 <= threshold <= 1:
    raise UsageError(f'stopping.threshold = {threshold}: it must be in [0, 1]')
  return fixed.build(gamma)._replace(after=lambda probs: probs < threshold)
