"""A distillation in phases, as a program that may be killed.

  python phases.py WORKDIR HOW AT

A Markov student learns a Markov teacher on what both write, in WORKDIR,
resuming what is there. It sends itself SIGKILL before step AT, or, where HOW is
`writing`, in the AT-th batch that the student writes.
"""

import functools
import os
import pathlib
import signal
import sys
import time

import jax
import numpy as np

from specdec.base import ModelOutput
from specdec.data import packing
from specdec.decode import autoregressive
from specdec.models import markov
from specdec.train import (
  distill,
  loop,
  losses,
  on_policy,
  optimiser,
  prefixes,
  step,
)

VOCAB, PROMPT, NEW, STOPS = 13, 3, 6, (12,)
STEPS, REFRESH, ROWS, BATCH = 10, 4, 8, 4
MIXTURE = {'text': 0.25, 'student': 0.5, 'teacher': 0.25}
WRITING = prefixes.WritingConfig(NEW, 1.0, batch_size=2, seed=5)
OPTIMISER = optimiser.build(optimiser.OptimiserConfig(STEPS, 0.3))
TEACHER = jax.device_put(
  2 * jax.random.normal(jax.random.key(1), (VOCAB, VOCAB)), jax.devices()[0]
)
traces = []  # one entry a time that the loss is traced


def documents():
  """Of 2 to 40 tokens; the last one ends each."""
  draws = np.random.default_rng(2)
  sizes = draws.integers(2, 41, 12)
  texts = [[*draws.integers(0, 12, n - 1), STOPS[0]] for n in sizes]
  return [
    packing.Row(np.array(text, np.int32), np.ones(len(text), bool))
    for text in texts
  ]


def by_last(params, tokens):
  """A Markov table over whole rows."""
  return ModelOutput(params[tokens], None, None)


def loss_fn(*args):
  traces.append(args)
  return distill.build(by_last, by_last, losses.forward_kl)(*args)


@functools.cache
def compiled():
  """What any number of runs share: the step and the decoder."""
  decoder = autoregressive.build(markov.build(VOCAB))
  return step.build(loss_fn, OPTIMISER), prefixes.Writer(
    decoder, lambda params: params, STOPS
  )


def pools(folder, shares=MIXTURE, writer=None):
  """The pools of a run whose rollouts lie in a folder."""
  folder = pathlib.Path(folder)
  writer = writer or compiled()[1]
  authors = {
    'text': prefixes.text(),
    'teacher': prefixes.teacher(folder / 'teacher', WRITING, writer, TEACHER),
    'student': prefixes.student(folder / 'student', WRITING, writer),
  }
  windows = prefixes.windows(documents(), PROMPT, NEW)
  config = on_policy.PoolConfig(ROWS, REFRESH, BATCH, seed=7)
  return on_policy.Pools(config, windows, shares, authors)


def train(workdir, advance=None, given=None, **options):
  """All phases, or the rest of them."""
  student = np.zeros((VOCAB, VOCAB), np.float32)
  return on_policy.run(
    loop.LoopConfig(STEPS, 3, keep_last=STEPS),
    pathlib.Path(workdir),
    advance or compiled()[0],
    step.init(student, OPTIMISER, jax.random.key(0)),
    given or pools(workdir, **options),
    fixed=(TEACHER,),
  )


def killing(function, at, folder):
  """A function whose process is killed at its call number `at`."""
  calls = []

  def call(*args):
    calls.append(0)
    if len(calls) == at:
      while any(folder.glob('*-tmp')):  # a checkpoint that is being written
        time.sleep(0.01)
      os.kill(os.getpid(), signal.SIGKILL)
    return function(*args)

  return call


def main(workdir, how, at):
  """Trains until it is killed; see the module."""
  folder = pathlib.Path(workdir) / loop.CHECKPOINTS
  advance, writer = compiled()
  if how == 'step':
    train(workdir, killing(advance, int(at), folder))
  decoder = writer.decoder
  generate = killing(decoder.generate, int(at), folder)
  writer = writer._replace(decoder=decoder._replace(generate=generate))
  train(workdir, writer=writer)


if __name__ == '__main__':
  main(*sys.argv[1:])
