"""What a verification rule costs, beside reading its inputs once.

Command:  python scripts/run.py --config configs/rule_cost.py
Time:     1 minute on 2 CPU cores.
Expected: the token rule looks at one row of p and q and costs less than
          reading them all; block looks at every row.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/rule_cost.py."""
  return config_dict.create(
    experiment='rule_cost',
    batch_size=8,
    gamma=8,  # drafts of a round
    vocab_size=50_000,
    sharpness=3.0,  # scale of the normal logits of p and q
    mix=0.5,  # of p in q: an overlap of at least that
    repeats=30,
    seed=0,
  )
