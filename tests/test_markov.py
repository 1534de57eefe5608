"""Markov pairs: the overlap that was asked for, at every prefix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specdec.base import UsageError
from specdec.models import markov


@pytest.mark.parametrize('overlap', [0.25, 0.3, 0.5, 0.8, 0.99, 1.0])
@pytest.mark.parametrize('sharpness', [0.1, 1.0, 3.0])
def test_the_overlap_differs_from_the_asked_one(overlap, sharpness):
  for seed in range(5):
    logits = markov.pair(jax.random.key(seed), 4, overlap, sharpness)
    target, draft = (np.exp(np.asarray(x, np.float64)) for x in logits)
    np.testing.assert_allclose(target.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(draft.sum(-1), 1, atol=1e-6)
    common = np.minimum(target, draft).sum(-1)
    np.testing.assert_allclose(common, overlap, rtol=0, atol=1e-6)


@pytest.mark.parametrize('overlap', [-0.1, 0.0, 0.24, 1.01, float('nan')])
def test_an_overlap_that_no_draft_has_is_taken(overlap):
  with pytest.raises(UsageError, match=f'overlap = {overlap}: it must be in'):
    markov.pair(jax.random.key(0), 4, overlap)


def test_the_next_token_depends_on_more_than_the_last():
  model = markov.build(3)
  logits = jnp.arange(9.0).reshape(3, 3)
  tokens = jnp.array([[0, 2, 1], [1, 1, 1]])
  cache = model.init_cache(2, 8)
  output = model.apply(logits, tokens, cache)
  np.testing.assert_array_equal(output.logits, logits[tokens])
  np.testing.assert_array_equal(output.cache.length, [3, 3])
