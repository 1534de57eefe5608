"""Rejection, from classical sampling to speculative decoding.

Source:   a density after Robert and Casella, "Monte Carlo Statistical Methods";
          the residual and the cost model after Leviathan et al.,
          https://arxiv.org/abs/2211.17192.
Command:  python scripts/run.py --config configs/article.py
Time:     about 15 s on a 2-core CPU.
Expected: eleven figures within 3 standard errors of the article's: acceptance
          22.95 % and 52.16 %, and of 10,000 drafts 3,000, 3,000 and 1,000 kept,
          0, 1,000 and 2,000 replaced. Five pictures in figures/. The best gamma
          at overlap .7 and c = .1 is 4, and gains 1.98 times.
"""

from ml_collections import ConfigDict


def get_config():
  """Returns the experiment's fields."""
  return ConfigDict(
    dict(
      experiment='article',
      seed=0,
      # Classical rejection sampling.
      proposals=300_000,  # candidates under each envelope
      uniform_constant=25.0,  # C of the uniform proposal; at least 22.18
      normal_constant=11.0,  # C of the standard normal; at least 9.926
      shown=4_000,  # candidates drawn in the second figure
      # The residual picture: rounds of one draft through the token rule.
      rounds=1_000_000,
      # The cost model.
      alphas=(0.5, 0.6, 0.7, 0.8, 0.9),  # overlap
      c=0.1,  # t_draft / t_target(1)
      max_gamma=16,  # drafts a round, the right end of the figure
    )
  )
