"""The phases of the pipeline; what is done is read from its files."""

from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from specdec.base import Weights
from specdec.data import packing
from specdec.data import prompts as prompts_lib
from specdec.decode import autoregressive
from specdec.experiments import acceptance, learner, overlap, setup, student
from specdec.models import export, reduced, store
from specdec.models.weights import Checkpoint
from specdec.train import distill, losses, prefixes, rollouts, step

ROLLOUTS, REPLIES = 'rollouts', 'held_out_replies'
UNDISTILLED, DISTILLED, MEASURED = 'undistilled', 'distilled', 'measured'
HELD_OUT, REPORT = SETS = ('held_out', 'report')
LIMIT_ROWS = 64  # of each set, whose overlaps say what limits the draft


class Learnt(NamedTuple):
  """The draft, before and after."""

  undistilled: Checkpoint
  distilled: Checkpoint
  pair: student.Pair


def gather(config):
  """The prompts of a config.

  Args:
    config: pipeline.Config.

  Returns:
    {ROLLOUTS, REPLIES, REPORT: a list of Prompt}, the first two on either side
    of the split.

  Raises:
    UsageError: see prompts.gather.
  """
  files = config.files('prompts')
  each = -(-config.fit.held_out_rows // len(files))
  return {
    ROLLOUTS: prompts_lib.gather(files, 'train', config.held_out),
    REPLIES: prompts_lib.gather(files, 'held_out', config.held_out, each),
    REPORT: prompts_lib.gather(
      config.files('report_prompts'),
      limit=config.measure.report_prompts or None,
    ),
  }


def collect(config, workdir, target, ids, console):
  """Has the target answer.

  Args:
    config: pipeline.Config.
    workdir: pathlib.Path.
    target: Checkpoint.
    ids: {ROLLOUTS, REPLIES: prompts, lists of token ids}.
    console: of the progress bars.

  Returns:
    The manifest of the rollouts.
  """
  size = min(target.tokenizer.size, target.config.vocab_size)
  model, params = setup.model_of(target, size)
  decoder = autoregressive.build(model)
  longest = max(map(len, ids[ROLLOUTS] + ids[REPLIES]))
  # The files are mixed, whichever prompts are the last to be answered. Every
  # reply has a token: with so many rounds of all prompts there are enough.
  draws = np.random.default_rng(config.seed)
  asked = [ids[ROLLOUTS][i] for i in draws.permutation(len(ids[ROLLOUTS]))]
  rounds = -(-config.rollout_tokens // len(asked))
  manifests = {
    name: rollouts.collect(
      workdir / name,
      rollouts.RolloutConfig(
        config.target, 1.0, config.rollout_new_tokens, seed
      ),
      decoder,
      Weights(params, None),
      prompts,
      config.rollout_batch_size,
      target.stop_tokens,
      console,
      longest + config.rollout_new_tokens,
      enough,
    )
    for name, prompts, seed, enough in (
      (ROLLOUTS, asked * rounds, config.seed, config.rollout_tokens),
      (REPLIES, ids[REPLIES], config.seed + 1, None),
    )
  }
  return manifests[ROLLOUTS]


def fit(config, workdir, target, draft, console) -> Learnt:
  """Distils the target into the draft.

  What is measured before each checkpoint is the total variation on replies to
  held-out prompts, 1 - overlap: the learning curve.

  Args:
    config: pipeline.Config.
    workdir: pathlib.Path, with the rollouts.
    target: Checkpoint.
    draft: Checkpoint, with the whole head.
    console: of the progress bar.

  Returns:
    Learnt.
  """
  rows = rollouts.read(workdir / ROLLOUTS)
  if config.head_tokens:
    said = np.concatenate([row.tokens[row.mask] for row in rows])
    draft = student.with_head(draft, config.head_tokens, said)
  if not (workdir / UNDISTILLED).exists():
    store.save(draft, workdir / UNDISTILLED)
  pair = student.pair(config, target, draft)
  loss = distill.losses_at(**config.strengths)[config.loss]
  fixed = (target.params,)
  batch_size = config.fit.batch_size
  replies = windows(config, rollouts.read(workdir / REPLIES))
  trained = learner.fit(
    workdir / DISTILLED,
    learner.build(config.fit, pair.loss(loss))._replace(
      validate=step.validation(
        pair.loss(losses.total_variation),
        list(packing.in_order(replies, batch_size)),
        fixed,
      )
    ),
    draft,
    packing.Batches(windows(config, rows), batch_size, config.seed),
    config.seed,
    fixed,
    console,
  )
  return Learnt(draft, trained, pair)


def windows(config, rows):
  """Prompts and replies as rows of one length, a packing.Batch."""
  return prefixes.windows(rows, config.prompt_tokens, config.rollout_new_tokens)


def drafts(workdir):
  """What is measured; differences are paired with the first."""
  return (
    f'distilled=orbax:{workdir / DISTILLED / learner.MODEL}',
    f'undistilled=orbax:{workdir / UNDISTILLED}',
    f'unigram=unigram:{workdir / ROLLOUTS}',
    f'bigram=bigram:{workdir / ROLLOUTS}',
    'ngram',
  )


def measure(config, workdir):
  """Runs the acceptance experiment on each of SETS, where it has not ended.

  Args:
    config: pipeline.Config.
    workdir: pathlib.Path, with drafts and rollouts.
  """
  for name in SETS:
    folder = workdir / MEASURED / name
    if not (folder / 'summary.json').exists():
      fields = {
        'experiment': 'acceptance',
        **config.acceptance(name, drafts(workdir)),
      }
      acceptance.run(config_dict.ConfigDict(fields), folder)


def find_limits(config, workdir, target, learnt):
  """Overlaps with the target, and what bounds them, on three sets of replies.

  Args:
    config: pipeline.Config.
    workdir: pathlib.Path, with all replies.
    target: Checkpoint.
    learnt: Learnt.

  Returns:
    {set: {name: (sums [R], counts [R])}}, for intervals.ratio. `head` is the
    mass of p on the tokens that the draft can say, absent where these are all.
  """
  pair = learnt.pair
  compared = {
    'undistilled': pair.overlap(learnt.undistilled.params),
    'distilled': pair.overlap(learnt.distilled.params),
  }
  if pair.ids is not None:
    compared['head'] = overlap.of_head(pair.ids)
  found = {}
  for name, folder in (
    (ROLLOUTS, ROLLOUTS),
    (HELD_OUT, REPLIES),
    (REPORT, f'{MEASURED}/{REPORT}/{acceptance.SAMPLES}/temperature-1'),
  ):
    rows = rollouts.read(workdir / folder)
    most = min(len(rows), LIMIT_ROWS)
    rows = [rows[i * len(rows) // most] for i in range(most)]
    found[name] = overlap.by_row(
      compared,
      pair.teacher,
      target.params,
      windows(config, rows),
      config.fit.batch_size,
    )
  return found


def export_draft(workdir, distilled):
  """Writes the draft for others, where they have such models.

  Args:
    workdir: pathlib.Path.
    distilled: Checkpoint.

  Returns:
    A folder of Hugging Face's, or that of the draft with a reduced head.
  """
  if isinstance(distilled.params, reduced.Reduced):
    return workdir / DISTILLED / learner.MODEL
  folder = workdir / 'export'
  return folder if folder.exists() else export.save(distilled, folder)
