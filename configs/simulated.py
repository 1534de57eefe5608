"""Speculation at a known overlap and a real cost: measured beside predicted.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192, equation 1 and
          Theorem 3.8.
Command:  python scripts/run.py --config configs/simulated.py
Time:     9 minutes on 2 CPU cores; an interrupted run goes on where it was.
Expected: tokens a round within 3 standard errors of the closed form in every
          cell, and a speed somewhat under what the measured c and v predict:
          the prediction leaves out what a round does outside its models.

No weights are needed. Tokens are drawn from Markov tables whose overlap is the
same at every prefix, while transformers of random weights are run on them for
their time. A 7B target on an accelerator, with a draft of 160M:
  --config.pairs='(((32,4096,11008,32),(12,768,2048,12)),)'
  --config.vocab_size=32000 --config.batch_size=1
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/simulated.py."""
  return config_dict.create(
    experiment='simulated',
    # Layers, width, hidden width and heads of a target, and of its draft.
    pairs=(
      ((6, 512, 1536, 8), (1, 256, 768, 4)),
      ((6, 512, 1536, 8), (2, 384, 1024, 6)),
    ),
    overlaps=(0.5, 0.7, 0.85, 0.95),
    gammas=(1, 2, 4, 8),  # drafts of a round
    vocab_size=4096,  # of the transformers and of the tables alike
    states=64,  # rows of a table; token x is in state x mod 64
    batch_size=8,
    # A run stays within one block of cache rows: 8 + 12 * (8 + 1) < 128.
    prompt_tokens=8,
    rounds=12,  # of a timed run
    repeats=14,  # timed runs of everything; one more warms up, and counts too
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
