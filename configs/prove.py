"""The proof that a rule is lossless, as a command that anyone can run.

Source:   the laws of specdec/verify, summed over every path of drafts.
Command:  python scripts/run.py --config configs/prove.py
Time:     3 minutes on 2 CPU cores.
Expected: every lossless rule is within 1e-12 of the target's law in every
          case, every control is found out, and the draws follow the laws.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/prove.py."""
  return config_dict.create(
    experiment='prove',
    seed=0,
    vocabs=(2, 3, 4, 5),  # V
    gammas=(0, 1, 2, 3, 4),  # drafts
    repeats=10,  # sets of ten pairs (p, q) for each V and gamma
    tolerance=1e-12,  # largest deviation of a lossless rule, float64
    rounds=200_000,  # simulated rounds of each rule; 0 leaves them out
    texts=400_000,  # of several rounds, through the decode loop; 0 is none
    text_tokens=6,
    p_value=0.01,  # least p-value of a simulation that agrees
    lossy=dict(
      lenience=0.5,  # 1 is lossless
      epsilon=0.09,  # probability that is typical anywhere
      delta=0.3,  # factor of exp(-entropy)
      kl_budget=0.1,  # nats a position
    ),
    stopping=dict(
      threshold=0.3,  # least probability of a token that lets a draft go on
      scale=0.3,  # of the entropy, in the bound 1 - sqrt(scale * H(q))
      bound=0.5,  # least value of that bound
    ),
  )
