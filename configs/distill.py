"""Distil a target into a draft: a fresh one, or one cut from the target.

Source:   DistillSpec, https://arxiv.org/abs/2310.08461; GKD,
          https://arxiv.org/abs/2306.13649; LK losses,
          https://arxiv.org/abs/2602.23881; FR-Spec,
          https://arxiv.org/abs/2502.14856.
Command:  python scripts/run.py --config configs/distill.py
            --config.target=orbax:runs/pretrain/model
Time:     by steps x batch_size x tokens of a window, the target's forward
          pass and what models write included. An interrupted run goes on
          where it was.
Expected: the overlap with the target on documents held out, before and after,
          the intervals apart; orbax:WORKDIR/model names the draft.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/distill.py."""
  return config_dict.create(
    experiment='distill',
    target='orbax:runs/pretrain/model',  # or hf:, gguf:, a known name
    draft='',  # the model to begin with; '' is a fresh one of these sizes
    size=dict(layers=1, width=64, hidden=176, heads=2),
    draft_layers=(),  # layers of `draft` that are kept; () is all
    head_tokens=0,  # the most frequent tokens, all that is said; 0 is all
    prefixes='text',  # or teacher, student, mixture: who continues prompts,
    # which are windows of the text; the loss is taken on continuations alone
    source=dict(
      prompt_tokens=32,
      new_tokens=96,  # at most
      refresh_steps=200,  # steps on one pool of continuations
      pool_rows=0,  # of a pool; 0 is one for each row of its steps
      mixture=dict(text=0.25, teacher=0.25, student=0.5),  # for `mixture`
      temperature=1.0,  # at which models write
      batch_size=32,  # continuations that are written together
    ),
    text=dict(
      source='stdlib',  # or a file, a folder, a glob, JSON Lines
      fields=('text',),  # of JSON Lines
      held_out=0.05,  # of the documents, by a hash of their content
      max_documents=0,  # to train on, evenly over them; 0 is all
      row_tokens=128,
    ),
    loss='lk_hybrid',  # see train/losses.py
    strengths=dict(
      beta=0.5,  # of jensen_shannon
      eta=3.0,  # of lk_hybrid
      k=10,  # of top_k_kl
    ),
    temperature=1.0,  # at which the two are compared
    fit=dict(
      steps=1000,
      batch_size=16,
      peak_rate=5e-3,
      warmup_steps=50,
      checkpoint_every=200,
      held_out_rows=128,
      accumulation=1,  # parts of a batch, to save memory
      weight_decay=0.1,
    ),
    remat=False,  # compute the draft's layers twice, to save memory
    dtype='auto',  # float32 on CPU, bfloat16 inside on accelerators
    seed=0,
  )
