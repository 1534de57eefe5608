"""What a target says to prompts, stored for drafts to learn from.

Source:   DistillSpec, https://arxiv.org/abs/2310.08461.
Command:  python scripts/run.py --config configs/rollouts.py
Time:     a minute on 2 CPU cores for the built-in prompts; an interrupted run
          goes on where it was.
Expected: 24 rows of up to 64 tokens in runs/rollouts/rollouts. For training,
          give prompt files of your own: --config.prompts="('A.jsonl',)".
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/rollouts.py."""
  return config_dict.create(
    experiment='rollouts',
    target='smollm2-135m',  # or hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH
    drafter='ngram',  # see configs/generate.py; it is used where gamma > 0
    draft='',
    gamma=0,  # most drafts of a round; 0 is autoregressive
    prompts=('',),  # JSON Lines files; '' is the built-in set
    side='all',  # or 'train', 'held_out': by a hash of the prompt
    held_out=0.1,  # fraction of prompts on the side 'held_out'
    max_prompts=0,  # of each file; 0 is all
    repeats=1,  # rows of each prompt
    temperature=1.0,  # 0 is greedy
    max_new_tokens=64,
    batch_size=8,
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
