"""Lossy: the draft is believed more than it deserves, by a factor.

Leviathan et al., https://arxiv.org/abs/2211.17192, appendix A.5. The token rule
with lenience * q in place of q: a draft x is accepted with probability
min(1, p(x) / (lenience q(x))), and a correction is drawn from
max(p - lenience q, 0), normalised. No token becomes likelier than
p(x) / lenience; lenience = 1 is the token rule.
"""

from specdec.base import UsageError, VerifyRule
from specdec.verify import drafts, token


def build(lenience):
  """The lenient rule.

  Args:
    lenience: in (0, 1]; the smaller, the more is accepted.

  Returns:
    base.VerifyRule.

  Raises:
    UsageError: it is out of its range.
  """
  if not 0 < lenience <= 1:
    raise UsageError(f'lossy.lenience = {lenience}: it must be in (0, 1]')

  def discount(proposal, target_probs):
    rows = drafts.draft_rows(proposal, target_probs)
    return proposal._replace(probs=lenience * rows)

  def verify(key, position, proposal, target_probs):
    discounted = discount(proposal, target_probs)
    return token.verify(key, position, discounted, target_probs)

  def law(proposal, target_probs):
    return token.law(discount(proposal, target_probs), target_probs)

  return VerifyRule(verify, law, lossless=lenience == 1)
