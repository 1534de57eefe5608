"""Several candidates at one position: the rules, by the name a config gives.

An entry takes k, the number of candidates, and returns a `rule.MultiRule`.
"""

from specdec.verify.multi import k_seq, recursive

MULTI_RULES = {
  'with_replacement': recursive.with_replacement,
  'without_replacement': recursive.without_replacement,
  'top_k': recursive.top_k,
  'k_seq': k_seq.k_seq,
}
