"""Markov pairs have the overlap that was asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec.base import UsageError
from specdec.models import markov


@pytest.mark.parametrize('vocab', (2, 5, 40))
@pytest.mark.parametrize('sharpness', (0.0, 1.0, 4.0))
def test_overlap_is_exact_at_every_prefix(vocab, sharpness):
  for overlap in (1 / vocab, 0.5, 0.7, 1.0):
    if overlap < 1 / vocab:
      continue
    key = jax.random.key(vocab)
    pair = markov.pair(key, vocab, overlap, sharpness)
    p, q = (np.asarray(jax.nn.softmax(x, -1), np.float64) for x in pair)
    assert_allclose(np.minimum(p, q).sum(-1), overlap, atol=1e-6)


@pytest.mark.parametrize('overlap', (-0.1, 0.1, 1.1))
def test_an_impossible_overlap_is_named(overlap):
  with pytest.raises(UsageError, match=f'overlap = {overlap}'):
    markov.pair(jax.random.key(0), 4, overlap)


def test_logits_are_the_row_of_the_last_token_alone():
  model = markov.build(3)
  table = jnp.arange(9.0).reshape(3, 3)
  output = model.apply(table, jnp.array([[2, 0]]), model.init_cache(1, 8))
  assert_array_equal(output.logits, [[[6, 7, 8], [0, 1, 2]]])
  assert_array_equal(output.cache.length, [2])
