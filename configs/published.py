"""Published figures of speculative decoding beside our formulas.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192, tables 1 and 4,
          appendix A.5, the bigram draft; "Unpacking Speculative Decoding";
          the density of configs/article.py.
Command:  python scripts/run.py --config configs/published.py
Time:     about 5 s on a 2-core CPU.
Expected: 39 figures: 36 reproduced, 3 within rounding, none that does not
          follow. The three are of table 4, whose alpha and c are rounded.
"""

from ml_collections import ConfigDict


def get_config():
  """Returns the experiment's fields."""
  return ConfigDict(
    dict(
      experiment='published',
      panels=512,  # of the quadrature for Z
      grid_points=1_000_001,  # of the search for the density's peak
    )
  )
