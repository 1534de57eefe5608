"""The whole loop in miniature: text, target, draft, distillation, proof.

Source:   Leviathan et al., https://arxiv.org/abs/2211.17192; DistillSpec,
          https://arxiv.org/abs/2310.08461; LK losses,
          https://arxiv.org/abs/2602.23881.
Command:  python scripts/run.py --config configs/quickstart.py
Time:     4 minutes, from nothing: the corpus is the standard library of the
          running interpreter. An interrupted run goes on where it was.
Expected: unigram < bigram < draft < draft trained on as long on text alone
          < distilled draft in overlap, each interval apart from the next; and
          greedy output equal to the autoregressive loop's in every row.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/quickstart.py."""
  return config_dict.create(
    experiment='quickstart',
    text=dict(
      source='stdlib',  # or a file, a folder, a glob, JSON Lines
      fields=('text',),  # of JSON Lines
      held_out=0.1,  # of the documents, by a hash of their content
      max_documents=200,  # to train on, evenly over them; 0 is all
      vocab_size=1024,  # ids of the BPE vocabulary that is learnt
      row_tokens=128,
    ),
    target=dict(layers=4, width=128, hidden=352, heads=4),
    draft=dict(layers=1, width=64, hidden=176, heads=2),
    batch_size=8,  # rows of a step
    target_steps=400,
    target_rate=3e-3,  # peak
    draft_steps=150,
    distill_steps=250,  # as many on text alone, to compare with
    draft_rate=5e-3,  # peak
    loss='lk_hybrid',  # see train/losses.py
    gammas=(1, 2, 4, 8),  # drafts of a round
    prompts=24,  # held-out documents that are gone on with
    prompt_tokens=48,
    max_new_tokens=48,
    seed=0,
  )
