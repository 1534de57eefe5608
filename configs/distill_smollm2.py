"""A draft for a real target, from what the target itself says.

Source:   DistillSpec, https://arxiv.org/abs/2310.08461; LK losses,
          https://arxiv.org/abs/2602.23881; FR-Spec,
          https://arxiv.org/abs/2502.14856; Spec-Bench,
          https://arxiv.org/abs/2401.07851.
Command:  python scripts/run.py --config configs/distill_smollm2.py
            --config.prompts=MATHS.jsonl,CODE.jsonl
            --config.report_prompts=OTHER.jsonl
Time:     80 minutes on 2 CPU cores: rollouts, distilling, measuring. An
          interrupted run goes on where it was.
Expected: the overlap above that of the draft before, on held-out prompts and on
          those of the other files. Whether it speeds decoding up depends on
          what the draft costs on the machine, which is measured too.
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/pipeline.py."""
  return config_dict.create(
    experiment='pipeline',
    target='smollm2-135m',  # or hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH
    prompts='',  # JSON Lines files, with commas: one side is answered, and
    held_out=0.1,  # this fraction, by a hash, is kept to measure on
    report_prompts='',  # files whose prompts are measured on alone
    rollout_tokens=200_000,  # new ones, at least
    rollout_new_tokens=128,  # most of a reply
    rollout_batch_size=32,  # replies that are written together
    draft='smollm2-135m',  # cut from it; '' is a fresh one of these sizes
    size=dict(layers=1, width=576, hidden=1536, heads=9),
    draft_layers=(0, 1, 2, 29),  # of `draft` that are kept; () is all
    head_tokens=16_384,  # most frequent in the rollouts, all that is said; 0
    # is the whole vocabulary
    prompt_tokens=112,  # last ones of a prompt that are read in training
    loss='lk_hybrid',  # see train/losses.py
    strengths=dict(
      beta=0.5,  # of jensen_shannon
      eta=3.0,  # of lk_hybrid
      k=10,  # of top_k_kl
    ),
    fit=dict(
      steps=200,
      batch_size=8,
      peak_rate=1e-3,
      warmup_steps=10,
      checkpoint_every=20,  # a point of the learning curve each
      held_out_rows=32,  # replies to held-out prompts that it is taken on
      accumulation=1,  # parts of a batch, to save memory
      weight_decay=0.1,
    ),
    remat=False,  # compute the draft's layers twice, to save memory
    measure=dict(
      gamma=4,  # drafts of a round
      temperatures=(0.0, 1.0),  # 1 among them
      prompts=8,  # held out, of each file; 0 is all
      report_prompts=16,  # of each file; 0 is all
      max_new_tokens=48,
      batch_size=1,
      timed_batches=8,  # of which the speedup is measured; 0 is none
    ),
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
