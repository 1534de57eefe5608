"""Pretrain a small model on a corpus, as a target or as a draft.

Source:   Loshchilov and Hutter, https://arxiv.org/abs/1711.05101 (AdamW).
Command:  python scripts/run.py --config configs/pretrain.py
Time:     by steps x batch_size x row_tokens; metrics.jsonl has tokens_per_s. An
          interrupted run goes on where it was.
Expected: `validation`, nats a token on documents held out, falls; the folder
          `model` is there at the end, and orbax:WORKDIR/model names it.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/pretrain.py."""
  return config_dict.create(
    experiment='pretrain',
    text=dict(
      source='stdlib',  # or a file, a folder, a glob, JSON Lines
      fields=('text',),  # of JSON Lines
      held_out=0.05,  # of the documents, by a hash of their content
      max_documents=0,  # to train on, evenly over them; 0 is all
      vocab_size=1024,  # ids of the BPE vocabulary that is learnt
      row_tokens=128,
    ),
    tokenizer='',  # the model whose vocabulary is used; '' learns one
    model=dict(layers=4, width=128, hidden=352, heads=4),
    max_length=1024,  # tokens that the model can hold
    fit=dict(
      steps=2000,
      batch_size=16,
      peak_rate=3e-3,
      warmup_steps=50,
      checkpoint_every=200,
      held_out_rows=128,
      accumulation=1,  # parts of a batch, to save memory
      weight_decay=0.1,
    ),
    remat=False,  # compute layers twice, to save memory
    dtype='auto',  # float32 on CPU, bfloat16 inside on accelerators
    seed=0,
  )
