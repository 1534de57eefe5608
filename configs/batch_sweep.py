"""Where speculation stops paying as the batch grows: measured and predicted.

Source:   Su, Giannoula and Pekhimenko, https://arxiv.org/abs/2310.18813: the
          best draft length depends on the batch size. Predicted from rounds
          replayed at each batch size and costs measured at it.
Command:  python scripts/run.py --config configs/batch_sweep.py
Time:     by sizes: the greatest take longest; an interrupted run goes on where
          it was.
Expected: a speedup that falls as the batch grows, since a call of gamma + 1
          tokens a row then costs ever more calls of one; and predictions that
          fall with it, below 1 near the same batch size.

Other drafts, and a machine with room for more:
  --config.drafts="('ngram','draft=orbax:WORKDIR/distilled/model')"
  --config.batch_sizes="(1,8,64,256)" --config.rows=256
"""

from ml_collections import config_dict


def get_config():
  """The experiment's fields; see experiments/batch_sweep.py."""
  return config_dict.create(
    experiment='batch_sweep',
    target='smollm2-135m',  # or hf:PATH_OR_REPO_ID, gguf:PATH, orbax:PATH
    # ngram, unigram:ROLLOUTS, bigram:ROLLOUTS or a model, perhaps with the
    # layers that it keeps, MODEL@0,10-19; LABEL=DRAFT gives it a name.
    drafts=('ngram',),
    batch_sizes=(1, 2, 4, 8, 16, 32),
    gammas=(2, 4),  # most drafts of a round, at least 1
    temperature=0.0,
    prompts='',  # a JSON Lines file; '' is the built-in set
    rows=32,  # prompts in all, repeated in order where there are fewer; a
    # multiple of each batch size
    timed_batches=8,  # most batches of a size, evenly over the rows
    max_new_tokens=40,
    repeats=7,  # timed runs of each part of a round
    seed=0,
    dtype='auto',  # float32 on CPU, bfloat16 on accelerators
  )
