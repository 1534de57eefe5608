"""What decoding costs on this machine, as ratios within one run.

Command: python scripts/run.py --config configs/speed.py
Time: 5 minutes on 2 CPU cores.
Expected: ratios that hold however fast the machine is at the moment; on CPU
a long buffer costs nothing, and a greedy round little beyond its forwards.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/speed.py."""
  return config_dict.create(
    experiment='speed',
    target='smollm2-135m',
    gamma=4,  # drafts of the rounds
    feeds=(1, 2, 3, 5, 9),  # tokens a row of the timed forwards
    batch_size=8,
    rows=(512, 4096),  # tokens of the short and the long buffer
    steps=24,  # model calls, or rounds, in a run
    repeats=5,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
