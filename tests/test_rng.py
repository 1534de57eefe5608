"""Keys: pairwise distinct, and a function of what they are for alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_array_equal

from specdec import rng

STREAMS = (rng.DRAFT, rng.ACCEPT, rng.RESIDUAL, rng.BONUS)


def bits(keys):
  return np.asarray(jax.random.key_data(keys)).reshape(-1, 2)


def test_keys_are_distinct_over_rows_positions_streams_and_offsets():
  grid = itertools.product(range(8), range(40), STREAMS, range(9))
  row, position, stream, offset = jnp.array(list(grid)).T
  keys = rng.sequence_keys(0, 8)[row]
  draws = bits(jax.vmap(rng.draw_key)(keys, position, stream, offset))
  rounds = bits(
    jax.vmap(jax.vmap(rng.round_key, (None, 0)), (0, None))(
      rng.sequence_keys(0, 8), jnp.arange(40)
    )
  )
  every = np.concatenate([draws, rounds, bits(rng.sequence_keys(0, 8))])
  assert len(np.unique(every, axis=0)) == len(every)


def test_a_sequence_key_depends_on_its_index_not_on_the_batch():
  whole = bits(rng.sequence_keys(3, 10))
  assert_array_equal(bits(rng.sequence_keys(3, 4, start=6)), whole[6:])
  assert_array_equal(bits(rng.sequence_keys(3, 2)), whole[:2])


def test_another_seed_gives_other_keys():
  both = np.concatenate([bits(rng.sequence_keys(s, 50)) for s in (0, 1)])
  assert len(np.unique(both, axis=0)) == 100


def test_keys_are_typed():
  keys = rng.sequence_keys(0, 2)
  assert jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
