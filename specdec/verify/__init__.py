"""The verification rules, by the name that a config gives.

A lossy rule bends the target's law, and says so in its name; how far, a
config's `lossy` sets.
"""

from specdec.verify import (
  block,
  coupled,
  lenient,
  mentored,
  sample_match,
  token,
  typical,
)

RULES = {
  'token': token.RULE,
  'block': block.RULE,
  'coupled': coupled.RULE,
  'sample_match': sample_match.RULE,
}


def lossy_rules(lenience=0.5, epsilon=0.09, delta=0.3, kl_budget=0.1):
  """The lossy rules at given strengths.

  Args:
    lenience: see lenient.build.
    epsilon: see typical.build; the defaults are Medusa's.
    delta: see typical.build.
    kl_budget: nats a position, see mentored.build.

  Returns:
    {name: base.VerifyRule}.

  Raises:
    UsageError: a strength is out of its range.
  """
  return {
    'lossy_lenient': lenient.build(lenience),
    'lossy_typical': typical.build(epsilon, delta),
    'lossy_mentored': mentored.build(kl_budget),
  }
