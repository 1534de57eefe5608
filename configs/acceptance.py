"""How much of each draft a target accepts, offline and in the real loop.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192, table 3.
Command:  python scripts/run.py --config configs/acceptance.py
Time:     10 minutes on 2 CPU cores; an interrupted run goes on where it was.
Expected: EXPECTED
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/acceptance.py."""
  return config_dict.create(
    experiment='acceptance',
    target='smollm2-135m',  # or hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH
    # The first is what the others are compared with. See experiments/drafts.py:
    # ngram, unigram:FOLDER and bigram:FOLDER of rollouts, a model's name, and
    # some layers of it; LABEL= before a name.
    drafts=(
      'ngram',
      '28 of 30 layers=smollm2-135m@0-9,11-19,21-29',
    ),
    gamma=4,  # drafts of a round
    temperatures=(0.0, 1.0),
    prompts=('',),  # JSON Lines files; '' is the built-in set
    side='all',  # or 'held_out', of files that a draft was trained on
    held_out=0.1,  # fraction of prompts on the side 'held_out'
    max_prompts=0,  # of each file; 0 is all
    max_new_tokens=32,
    batch_size=8,
    timed_batches=1,  # batches of which the speedup is measured; 0 is none
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
