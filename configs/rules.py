"""Verification rules side by side on a real model: what each accepts.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192; Sun et al.,
          https://arxiv.org/abs/2403.10444; Daliri et al.,
          https://arxiv.org/abs/2408.07978; and see specdec/verify.
Command:  python scripts/run.py --config configs/rules.py
Time:     25 minutes on 2 CPU cores; an interrupted run goes on where it
          was.
Expected: at temperature 0 all are one; at 1 block at least token, then coupled,
          then sample_match; most lossy rules above all of them, at the price
          that configs/prove.py shows.
          The draft is the target less two layers: it has a real overlap and no
          speed, so tokens per second only tell what a rule itself costs.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/rules.py."""
  return config_dict.create(
    experiment='rules',
    target='smollm2-135m',
    draft='smollm2-135m',
    # All but layers 10 and 20: a real overlap without any training.
    draft_layers=tuple(i for i in range(30) if i not in (10, 20)),
    rules=(
      'token',
      'block',
      'coupled',
      'sample_match',
      'lossy_lenient',
      'lossy_typical',
      'lossy_mentored',
    ),  # fmt: skip
    temperatures=(0.0, 1.0),
    gammas=(2, 4),  # drafts of a round
    lossy=dict(
      lenience=0.5,  # 1 is lossless
      epsilon=0.09,  # probability that is typical anywhere
      delta=0.3,  # factor of exp(-entropy)
      kl_budget=0.1,  # nats a position
    ),
    prompts='',  # a JSON Lines file; '' is the built-in set
    max_prompts=16,  # 0 is all
    rounds=12,  # of a prompt that are counted, all with gamma drafts
    max_new_tokens=24,  # of the first batch, under the clock
    batch_size=8,
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
