"""The small pair of the paper that began it, from text to speedup.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192, table 3: GPT-like
          models of 97M and 6M weights, both trained on LM1B.
Command:  python scripts/run.py --config configs/leviathan_pair.py
          on an accelerator: --config.scale=1 --config.batch_size=256
            --config.text.source=FILE
Time:     10 minutes on 2 CPU cores at a quarter; an interrupted run goes on
          where it was.
Expected: unigram < bigram < small model in overlap, at both temperatures, each
          interval apart from the next.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/leviathan_pair.py."""
  return config_dict.create(
    experiment='leviathan_pair',
    scale=0.25,  # of widths, layers, vocabulary and steps; 1 is the paper's
    text=dict(
      source='stdlib',  # or a file, a folder, a glob, JSON Lines
      fields=('text',),  # of JSON Lines
      held_out=0.1,  # of the documents, by a hash of their content
      max_documents=0,  # to train on, evenly over them; 0 is all
      row_tokens=128,
    ),
    batch_size=8,  # rows of a step
    gamma=4,  # drafts of a round
    prompts=32,  # held-out documents that are gone on with
    prompt_tokens=48,
    max_new_tokens=64,
    decode_batch_size=1,
    timed_batches=16,  # of which the speedup is measured; 0 is none
    seed=0,
  )
