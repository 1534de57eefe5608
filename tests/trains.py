"""A run of a tiny language model, as a program that may be killed.

  python trains.py WORKDIR STEPS HOW AT

It trains in WORKDIR, resuming what is there. When it asks for the batch of step
AT, it sends itself a signal: HOW is `term`, `kill`, which first waits until no
checkpoint is being written, or `cut`, which does not.
"""

import os
import pathlib
import signal
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec.train import loop, optimiser, step
from specdec.train.loop import LoopConfig
from specdec.train.optimiser import OptimiserConfig

VOCAB, WIDTH, ROWS, COUNT = 11, 6, 4, 7
OPTIMISER = optimiser.build(OptimiserConfig(20, 1e-2, warmup_steps=3))


class Batch(NamedTuple):
  tokens: np.ndarray  # int32 [B, T+1]
  mask: np.ndarray  # bool [B, T+1]


class Draws:
  """Batches from a generator whose state carries over: order matters."""

  def __init__(self):
    self._draws = np.random.default_rng(0)
    self.given = 0

  def __iter__(self):
    return self

  def __next__(self):
    self.given += 1
    shape = (ROWS, COUNT + 1)
    tokens = self._draws.integers(VOCAB, size=shape).astype(np.int32)
    return Batch(tokens, self._draws.random(shape) < 0.8)

  def get_state(self):
    return {'given': self.given, 'generator': self._draws.bit_generator.state}

  def set_state(self, state):
    self.given = state['given']
    self._draws.bit_generator.state = state['generator']


class Signals(Draws):
  """Draws that send their own process a signal at a step."""

  def __init__(self, how, at, folder):
    super().__init__()
    self._how, self._at, self._folder = how, at, folder

  def __next__(self):
    if self.given + 1 == self._at:
      while self._how == 'kill' and any(self._folder.glob('*-tmp')):
        time.sleep(0.01)
      number = signal.SIGTERM if self._how == 'term' else signal.SIGKILL
      os.kill(os.getpid(), number)
    return super().__next__()


def loss(params, batch, key):
  """Cross-entropy of a bigram model whose embeddings are noised."""
  inputs, labels = batch.tokens[:, :-1], batch.tokens[:, 1:]
  x = params['embedding'][inputs]
  x += 0.1 * jax.random.normal(key, x.shape)
  logits = jax.nn.log_softmax(x @ params['head'])
  chosen = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
  mask = batch.mask[:, 1:]
  return -jnp.sum(chosen * mask), jnp.sum(mask)


def fresh():
  draws = np.random.default_rng(1)
  params = {
    'embedding': jnp.float32(draws.normal(size=(VOCAB, WIDTH))),
    'head': jnp.float32(draws.normal(size=(WIDTH, VOCAB))),
  }
  return step.init(params, OPTIMISER, jax.random.key(4))


def main(workdir, steps, how, at):
  """Trains with a checkpoint every 5 steps; see the module."""
  workdir = pathlib.Path(workdir)
  data = Signals(how, int(at), workdir / loop.CHECKPOINTS)
  advance = step.build(loss, OPTIMISER, accumulation=2)
  loop.run(LoopConfig(int(steps), 5), workdir, advance, fresh(), data)


if __name__ == '__main__':
  main(*sys.argv[1:])
