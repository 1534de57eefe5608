"""Embeddings that are padded: ids that are not real are never emitted."""

import dataclasses

import jax
import numpy as np
from numpy.testing import assert_allclose

from specdec import rng, sampling
from specdec.base import Weights
from specdec.decode import speculative, stats
from specdec.drafters import model
from specdec.models import config, functional
from specdec.verify import token

REAL = 10


def test_padding_ids_are_never_emitted_and_the_law_ignores_them():
  # 12 rows in the target's embedding, 16 in the draft's, 10 real ids.
  wide = dataclasses.replace(config.TINY, vocab_size=12)
  wider = dataclasses.replace(config.TINY, vocab_size=16)
  target = functional.build(wide, vocab_size=REAL)
  drafter = model.build(functional.build(wider, vocab_size=REAL), 1)
  weights = Weights(
    functional.init(wide, jax.random.key(0)),
    functional.init(wider, jax.random.key(1)),
  )
  decoder = speculative.build(target, drafter, token.RULE)
  prompts = [[1], [2, 3], [4, 5, 6]]
  state = decoder.init(
    weights, prompts, rng.sequence_keys(0, 3), sampling.params(3), 60
  )
  state = decoder.generate(weights, state)
  logits = jax.jit(functional.build(wide).apply)(
    weights.target, state.tokens, target.init_cache(*state.tokens.shape)
  ).logits
  want = np.asarray(jax.nn.log_softmax(logits[..., :REAL], -1))
  for row, output in enumerate(stats.outputs(state)):
    # 180 tokens in all; padding has a sixth of the untrained target's mass.
    assert max(output['tokens']) < REAL
    at = len(prompts[row]) - 1 + np.arange(60)
    assert_allclose(
      output['logprobs'], want[row, at, output['tokens']], atol=2e-5
    )
