"""Gamma on real prompts: measured speed beside what is predicted of it.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192, section 3 and
          Theorem 3.8, with costs measured on this machine.
Command:  python scripts/run.py --config configs/gamma_sweep.py
Time:     15 minutes on 2 CPU cores for each draft; an interrupted run goes on
          where it was.
Expected: measured speeds near the third prediction, which knows what calls of
          each length cost here; the first two know acceptance alone, and
          promise gains that a CPU does not give.

Other drafts, and gammas that are chosen as a row goes on:
  --config.drafts="('ngram','draft=orbax:WORKDIR/distilled/model')"
  --config.policies="('heuristic','cost_aware')"
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/gamma_sweep.py."""
  return config_dict.create(
    experiment='gamma_sweep',
    target='smollm2-135m',  # or hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH
    # ngram, unigram:ROLLOUTS, bigram:ROLLOUTS or a model, perhaps with the
    # layers that it keeps, MODEL@0,10-19; LABEL=DRAFT gives it a name.
    drafts=('ngram',),
    rules=('token',),
    temperatures=(0.0, 1.0),
    gammas=tuple(range(9)),  # drafts of a round; 0 is autoregressive
    policies=(),  # heuristic, cost_aware, ...: up to the greatest gamma
    lossy=dict(
      lenience=0.5,  # 1 is lossless
      epsilon=0.09,  # probability that is typical anywhere
      delta=0.3,  # factor of exp(-entropy)
      kl_budget=0.1,  # nats a position
    ),
    prompts='',  # a JSON Lines file; '' is the built-in set
    max_prompts=0,  # 0 is all
    max_new_tokens=32,
    batch_size=1,
    repeats=7,  # timed runs of each part of a round
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
