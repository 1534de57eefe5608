"""What the cells of the ablation of losses share, and how one is measured.

Programs belong to a loss, not to a cell: the step of each loss, both decoders
and the reader are compiled once.
"""

import functools
import io
import time

import numpy as np
from rich import console as rich_console

from specdec import sampling
from specdec.base import Weights
from specdec.data import packing
from specdec.experiments import (
  forecast,
  learner,
  quickstart,
  sources,
  training,
)
from specdec.experiments import losses_summary as summary_lib
from specdec.models import functional
from specdec.train import (
  distill,
  on_policy,
  overlap,
  prefixes,
  pretrain,
  rollouts,
)


class Bench:
  """What the cells share: target, drafts, prompts, and all that is compiled."""

  def __init__(self, config, workdir, texts, console):
    """Trains the target and collects its replies, or reads both.

    Args:
      config: Config.
      workdir: pathlib.Path.
      texts: training.Texts.
      console: of the progress bars.
    """
    self._config, self._workdir, self._texts = config, workdir, texts
    self._console = console
    # Inside a cell: its bars would disturb that of the cells.
    self._quiet = rich_console.Console(file=io.StringIO())
    fresh = training.fresh(config.target, texts, config.seed, config.context)
    self._draft = training.fresh(
      config.draft, texts, config.seed, config.context
    )
    self._forward = functional.forward(self._draft.config)
    self._teacher = functional.forward(fresh.config)
    self._target = training.train(
      workdir / 'target',
      config.fit('target_steps', config.target_rate),
      fresh,
      pretrain.build(self._teacher),
      texts,
      config.seed,
      console=console,
    )
    self._windows = prefixes.windows(
      texts.documents, config.source.prompt_tokens, config.source.new_tokens
    )
    size, stops = self._target.config.vocab_size, self._target.stop_tokens
    self._writers = [
      sources.writer(model, 'float32', size, stops)
      for model in (self._target, self._draft)
    ]
    compare = overlap.build(
      *(
        overlap.of_model(functional.build(model.config))
        for model in (self._target, self._draft)
      )
    )
    self._read = forecast.reader(compare, config.gamma, config.batch_size)
    # What is compiled for one cell serves them all.
    self._learner = functools.cache(self._new_learner)
    self._start = functools.cache(self._pretrained)
    self._replies = {t: self._collect(t) for t in config.temperatures}

  def folder(self, seed, loss, source):
    """Where a cell keeps what it needs to go on."""
    return self._workdir / 'cells' / f'{seed}-{loss}-{source}'

  def measure(self, seed, loss, source):
    """Distils and measures one cell.

    Args:
      seed: of the draft and of the order of the data.
      loss: name of the loss.
      source: of the prefixes.

    Returns:
      A dict: the `figures` at each temperature, and `seconds`.
    """
    begin = time.perf_counter()
    params = self._start(seed)
    if (loss, source) != summary_lib.UNTRAINED:
      params = self._distilled(seed, loss, source, params)
    weights = Weights(self._target.params, params)
    return {
      'figures': [
        {'temperature': t, **self._figures(weights, t, replies)}
        for t, replies in self._replies.items()
      ],
      'seconds': time.perf_counter() - begin,
    }

  def _distilled(self, seed, loss, source, params):
    """The draft's params after a cell's steps."""
    config, folder = self._config, self.folder(seed, loss, source)
    folder.mkdir(parents=True, exist_ok=True)
    writing = config.source.writing(seed)
    teacher, student = self._writers
    authors = {
      prefixes.TEXT: prefixes.text(),
      # The target's are the same whatever the loss.
      prefixes.TEACHER: prefixes.teacher(
        self._workdir / 'rollouts' / f'{seed}-{source}',
        writing,
        teacher,
        self._target.params,
        self._quiet,
      ),
      prefixes.STUDENT: prefixes.student(
        folder / sources.ROLLOUTS, writing, student, self._quiet
      ),
    }
    shares = config.source.shares(source)
    pool = config.source.pool(config.batch_size, seed)
    return learner.steps(
      folder,
      self._learner(config.fit('distill_steps', config.draft_rate), loss),
      params,
      on_policy.Pools(pool, self._windows, shares, authors),
      seed,
      self._fixed(loss),
      self._quiet,
      on_policy.run,
    )

  def _pretrained(self, seed):
    """The draft of a seed, which has learnt the text."""
    config = self._config
    fit = config.fit('draft_steps', config.draft_rate)
    trained = learner.fit(
      self._workdir / 'drafts' / str(seed),
      self._learner(fit, summary_lib.LABELS[0]),
      training.fresh(config.draft, self._texts, seed + 1, config.context),
      packing.Batches(self._texts.train, config.batch_size, seed),
      seed,
      console=self._quiet,
    )
    return trained.params

  def _new_learner(self, fit, loss):
    """A loss and its programs, for a training.FitConfig."""
    if loss == summary_lib.LABELS[0]:
      loss_fn = pretrain.build(self._forward)
    else:
      compare = distill.losses_at(**self._config.strengths)[loss]
      loss_fn = distill.build(self._forward, self._teacher, compare)
    return learner.build(fit, loss_fn)

  def _fixed(self, loss):
    """What a loss needs beside the draft."""
    return () if loss == summary_lib.LABELS[0] else (self._target.params,)

  def _collect(self, temperature):
    """The target's replies to held-out prompts, a list of packing.Row."""
    config, target = self._config, self._target
    folder = self._workdir / 'samples' / f'temperature-{temperature:g}'
    setting = rollouts.RolloutConfig(
      'target', temperature, config.max_new_tokens, config.seed
    )
    rollouts.collect(
      folder,
      setting,
      self._writers[0].decoder,
      Weights(target.params, None),
      quickstart.choose_prompts(self._texts, config),
      config.source.batch_size,
      target.stop_tokens,
      self._console,
      config.context,
    )
    return rollouts.read(folder)

  def _figures(self, weights, temperature, replies):
    """Overlap and block efficiency on the target's replies."""
    config = self._config
    params = sampling.params(config.batch_size, temperature)
    found = self._read(weights, replies, params, config.context)
    survived, starts = (
      np.sum(found[name], 0, np.float64) for name in ('survived', 'starts')
    )
    accepted = survived / starts
    return {'overlap': accepted[0], 'block_efficiency': 1 + accepted.sum()}
