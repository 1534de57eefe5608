"""How much of the machine a training step uses, and whether it ever waits.

Source:   PaLM's model FLOPs utilisation, https://arxiv.org/abs/2204.02311,
          appendix B, over a matrix product of the same run in place of a
          data sheet's peak.
Command:  python scripts/run.py --config configs/throughput.py
Time:     1 minute on 2 CPU cores.
Expected: a share that grows with the width, since small products leave much of
          a core unused, and idle time that rounds to 0.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/throughput.py."""
  return config_dict.create(
    experiment='throughput',
    # The miniature target of configs/quickstart.py, and a size of your own.
    target=dict(layers=4, width=128, hidden=352, heads=4),
    size=dict(layers=4, width=512, hidden=1408, heads=8),
    vocab_size=1024,
    batch_size=8,  # rows of a step
    row_tokens=128,
    matrix=2048,  # rows and columns of the product
    repeats=9,  # timed steps and products, in turn
    loop_steps=40,  # of the loop that is watched
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
    seed=0,
  )
