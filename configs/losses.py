"""Every distillation loss on every source of prefixes, over three seeds.

Source:   DistillSpec, https://arxiv.org/abs/2310.08461; GKD,
          https://arxiv.org/abs/2306.13649; LK losses,
          https://arxiv.org/abs/2602.23881.
Command:  python scripts/run.py --config configs/losses.py
Time:     22 minutes, 13 s a cell. An interrupted run goes on in the cell in
          which it was.
Expected: at temperature 1 every loss but top_k_kl far above cross-entropy, the
          target's replies the best prefixes for all of them, the draft's own
          and mixtures next, the text last; forward_kl and jensen_shannon
          before the losses of acceptance. At temperature 0 the seeds differ
          more than the cells do.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/losses.py."""
  return config_dict.create(
    experiment='losses',
    text=dict(
      source='stdlib',  # or a file, a folder, a glob, JSON Lines
      fields=('text',),  # of JSON Lines
      held_out=0.1,  # of the documents, by a hash of their content
      max_documents=240,  # to train on, evenly over them; 0 is all
      vocab_size=1024,  # ids of the BPE vocabulary that is learnt
      row_tokens=128,
    ),
    target=dict(layers=4, width=128, hidden=352, heads=4),
    draft=dict(layers=1, width=64, hidden=176, heads=2),
    batch_size=8,  # rows of a step
    target_steps=500,
    target_rate=3e-3,  # peak
    draft_steps=200,  # on the text, before each cell
    distill_steps=150,  # of each cell
    draft_rate=5e-3,  # peak
    losses=(
      'forward_kl',
      'reverse_kl',
      'jensen_shannon',
      'total_variation',
      'neg_log_acceptance',
      'lk_hybrid',
      'top_k_kl',
    ),
    strengths=dict(
      beta=0.5,  # of jensen_shannon
      eta=3.0,  # of lk_hybrid
      k=10,  # of top_k_kl
    ),
    prefixes=('text', 'teacher', 'student', 'mixture'),
    source=dict(
      prompt_tokens=32,  # of a document
      new_tokens=96,  # that text, teacher or student go on with, at most
      refresh_steps=50,  # steps on one pool of continuations
      pool_rows=0,  # of a pool; 0 is one for each row of its steps
      mixture=dict(text=0.25, teacher=0.25, student=0.5),
      temperature=1.0,  # at which models write
      batch_size=50,  # continuations that are written together
    ),
    temperatures=(0.0, 1.0),  # of the target's replies that are measured on
    gamma=4,  # drafts of a round whose efficiency is forecast
    prompts=75,  # held-out documents that are gone on with
    prompt_tokens=48,
    max_new_tokens=64,
    seeds=3,
    seed=0,  # the first
  )
