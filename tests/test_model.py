"""The model drafter: what it declares is what it drew from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import UsageError
from specdec.drafters import model
from specdec.models import markov

GAMMA, VOCAB = 3, 6


@pytest.fixture(scope='module')
def propose():
  drafter = model.build(markov.build(VOCAB), GAMMA)

  @jax.jit
  def run(table, keys, params):
    tokens = jnp.zeros((keys.size, 8), jnp.int32)
    length = jnp.full(keys.size, 1 + jnp.arange(keys.size) % 4)
    state = drafter.init(table, tokens, length, None)
    return drafter.propose(table, state, tokens, length, keys, params)[0]

  return run


def table(dtype=jnp.float32):
  logits = jax.random.normal(jax.random.key(3), (VOCAB, VOCAB))
  return logits.astype(dtype)


@pytest.mark.parametrize('dtype', (jnp.float32, jnp.bfloat16))
def test_drafts_are_drawn_from_the_float32_array_that_is_declared(
  propose, dtype
):
  keys = rng.sequence_keys(0, 64)
  params = sampling.params(64, temperature=0.8, top_p=0.9)
  proposal = propose(table(dtype), keys, params)
  assert proposal.probs.dtype == jnp.float32
  length = 1 + jnp.arange(64) % 4
  for slot in range(GAMMA):
    draws = jax.vmap(rng.draw_key, (0, 0, None, None))(
      keys, length, rng.DRAFT, slot
    )
    again = jax.vmap(sampling.categorical)(draws, proposal.probs[:, slot])
    assert_array_equal(proposal.tokens[:, slot], again)


def test_the_declared_array_is_the_transform_of_the_drafts_own_prefix(propose):
  params = sampling.params(64, temperature=0.8, top_p=0.9)
  proposal = propose(table(), rng.sequence_keys(1, 64), params)
  before = np.zeros((64, GAMMA), int)
  before[:, 1:] = proposal.tokens[:, :-1]
  want = sampling.transform(table()[before], params)
  assert_allclose(proposal.probs, want, rtol=1e-6)


def test_greedy_drafts_declare_a_point_mass(propose):
  params = sampling.params(64, temperature=0)
  proposal = propose(table(), rng.sequence_keys(2, 64), params)
  assert_array_equal(proposal.probs, jax.nn.one_hot(proposal.tokens, VOCAB))


def test_a_negative_gamma_is_named():
  with pytest.raises(UsageError, match='gamma = -1: it must be at least 0'):
    model.build(markov.build(VOCAB), -1)
