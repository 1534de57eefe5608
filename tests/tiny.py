"""Small models and compiled decoders that the decode tests share.

Every batch has the same size and buffer, so that a decoder compiles once.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import rng, sampling
from specdec.base import Weights
from specdec.decode import autoregressive, speculative, stats
from specdec.drafters import model, ngram
from specdec.models import config, functional, markov
from specdec.verify import token

ROWS = 4
MAX_LEN = 80
PROMPTS = ([5, 9, 5, 9, 5], [1], [7, 7, 7], [3, 1, 4, 1, 5, 9, 2, 6])
WINDOWED = dataclasses.replace(config.TINY, sliding_window=7)
# Rows of every kind side by side: greedy, plain, nucleus, top-k.
MIXED = {
  'temperature': [0.0, 1.0, 0.5, 1.5],
  'top_p': [1.0, 1.0, 0.8, 1.0],
  'top_k': [0, 0, 0, 3],
}


@functools.cache
def params(seed, config=config.TINY):
  """Random weights."""
  return functional.init(config, jax.random.key(seed))


@functools.cache
def draft_params(config=config.TINY):
  """Weights near the target's: of its drafts some are accepted, some not."""
  return jax.tree.map(
    lambda a, b: 0.8 * a + 0.2 * b, params(0, config), params(1, config)
  )


@functools.cache
def transformer(config=config.TINY):
  return functional.build(config)


@functools.cache
def baseline(config=config.TINY):
  return autoregressive.build(transformer(config))


@functools.cache
def with_model(gamma, config=config.TINY):
  """A speculative decoder whose draft has the target's shape."""
  target = transformer(config)
  drafter = ragged(model.build(target, gamma))
  return speculative.build(target, drafter, token.RULE)


@functools.cache
def with_ngram(gamma):
  """A speculative decoder that looks up suffixes of one to three tokens."""
  drafter = ragged(ngram.build(gamma, max_match=3, min_match=1))
  return speculative.build(transformer(), drafter, token.RULE)


def ragged(drafter):
  """A drafter whose params are (the model's, the most drafts of each row)."""

  def init(params, *rest):
    return drafter.init(params[0], *rest)

  def propose(params, *rest):
    proposal, state = drafter.propose(params[0], *rest)
    length = jnp.minimum(proposal.length, params[1])
    return proposal._replace(length=length), state

  return drafter._replace(init=init, propose=propose)


def weights(limits=99, draft=draft_params, config=config.TINY):
  """Target weights of seed 0, and a draft that proposes up to `limits`."""
  limits = jnp.broadcast_to(jnp.int32(limits), (ROWS,))
  return Weights(params(0, config), (draft(config), limits))


def equal_weights(limits=99):
  """A draft that is the target."""
  return weights(limits, functools.partial(params, 0))


def target_weights(config=config.TINY):
  """Weights of a decoder without a draft."""
  return Weights(params(0, config), None)


class Asked(NamedTuple):
  """What a test asks of a decoder, four rows of it."""

  prompts: tuple = PROMPTS
  sampling: dict = {}
  seed: int = 0
  budget: int | tuple = 40
  stops: tuple = ()
  keys: jax.Array | None = None


def start(decoder, weights, asked=None):
  """The state before the first round."""
  asked = asked or Asked()
  keys = rng.sequence_keys(asked.seed, ROWS)
  return decoder.init(
    weights,
    asked.prompts,
    keys if asked.keys is None else asked.keys,
    sampling.params(ROWS, **asked.sampling),
    asked.budget,
    asked.stops,
    MAX_LEN,
  )


def run(decoder, weights, asked=None):
  """The state after the last round."""
  return decoder.generate(weights, start(decoder, weights, asked))


def texts(state):
  """The tokens that each row emitted."""
  return [row['tokens'] for row in stats.outputs(state)]


def reasons(state):
  return [row['finish_reason'] for row in stats.outputs(state)]


@functools.cache
def _forward(config):
  target = transformer(config)

  def forward(params, tokens):
    cache = target.init_cache(*tokens.shape)
    return target.apply(params, tokens, cache).logits

  return jax.jit(forward)


def scratch_logits(params, rows, config=config.TINY):
  """Logits of whole rows without any cache, [B, MAX_LEN, V]."""
  tokens = np.zeros((len(rows), MAX_LEN), np.int32)
  for row, text in enumerate(rows):
    tokens[row, : len(text)] = text
  return np.asarray(_forward(config)(params, tokens))


def markov_pair(vocab, overlap=0.6, seed=0):
  """A Markov model, and the logits of a target and a draft."""
  tables = markov.pair(jax.random.key(seed), vocab, overlap)
  return markov.build(vocab), *tables
