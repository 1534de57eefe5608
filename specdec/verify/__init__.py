"""The verification rules, by the name that a config gives.

A lossy rule bends the target's law, and says so in its name; it comes at a
strength, which a config's `lossy` sets.
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
# Builders, whose arguments are fields of a config's `lossy`.
LOSSY_RULES = {
  'lossy_lenient': lenient.build,
  'lossy_typical': typical.build,
  'lossy_mentored': mentored.build,
}
