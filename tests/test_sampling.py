"""The one transform, against a float64 reference that sorts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import texts
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from specdec import sampling
from specdec.base import SamplingParams, UsageError

VOCAB = 7
transform = jax.jit(sampling.transform)


def law(probs, **params):
  """The transform of one row given by its probabilities [V]."""
  logits = jnp.log(jnp.asarray(probs, jnp.float32))[None, None]
  return np.asarray(transform(logits, sampling.params(1, **params)))[0, 0]


# Coarse logits, so that ties are common; one token at least is possible.
logits_rows = st.lists(
  st.sampled_from([-np.inf, -3.0, -1.5, -0.5, 0.0, 0.5, 1.0, 2.5]),
  min_size=VOCAB,
  max_size=VOCAB,
).filter(lambda row: max(row) > -np.inf)
params_rows = st.fixed_dictionaries(
  {
    'temperature': st.sampled_from([0.0, 1e-6, 0.3, 0.7, 1.0, 2.0]),
    'top_k': st.integers(-1, VOCAB + 7),
    'top_p': st.sampled_from([0.11, 0.37, 0.61, 0.83, 0.97, 1.0]),
    'min_p': st.sampled_from([0.0, 0.043, 0.21, 0.77]),
  }
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(logits_rows, params_rows), min_size=3, max_size=3))
def test_a_mixed_batch_equals_the_sorting_reference(rows):
  logits, params = zip(*rows, strict=True)
  fields = {name: [row[name] for row in params] for name in params[0]}
  batch = SamplingParams(
    top_k=np.array(fields.pop('top_k'), np.int32),
    **{name: np.array(value, np.float32) for name, value in fields.items()},
  )
  with jax.enable_x64(True):
    probs = transform(np.array(logits, np.float64)[:, None], batch)[:, 0]
    want = [
      texts.sorted_transform(
        logits[row], *(field[row].item() for field in batch)
      )
      for row in range(3)
    ]
    assert_allclose(probs, want, atol=1e-12)


@pytest.mark.parametrize('top_k', (-1, 0, VOCAB, VOCAB + 7))
def test_top_k_that_asks_for_nothing_changes_nothing(top_k):
  probs = np.random.default_rng(0).dirichlet(np.ones(VOCAB))
  assert_array_equal(law(probs, top_k=top_k), law(probs))


def test_top_p_of_one_changes_nothing_although_sums_are_inexact():
  # Float32 sums of these rows end on either side of 1.
  logits = jax.random.normal(jax.random.key(0), (40, 1, 1000))
  probs = transform(logits, sampling.params(40))
  sums = np.cumsum(probs[:, 0], -1, dtype=np.float32)[:, -1]
  assert (sums < 1).any() and (sums > 1).any()
  assert_allclose(probs, jax.nn.softmax(logits, -1), rtol=3e-7)
  # A neighbour that asks for top-p makes the filter run.
  top_p = jnp.ones(40).at[0].set(0.5)
  mixed = transform(logits, sampling.params(40, top_p=top_p))
  assert_array_equal(mixed[1:], probs[1:])


def test_rows_that_ask_for_nothing_do_not_feel_their_neighbours():
  logits = 3 * jax.random.normal(jax.random.key(1), (4, 2, 501))
  alone = transform(logits, sampling.params(4))
  for asked in (
    {'top_k': [0, 0, 3, 0]},
    {'top_p': [1, 1, 0.7, 1]},
    {'min_p': [0, 0, 0.1, 0]},
    {'temperature': [1, 1, 0, 1]},
  ):
    mixed = transform(logits, sampling.params(4, **asked))
    keep = jnp.array([0, 1, 3])
    assert_array_equal(mixed[keep], alone[keep], err_msg=str(asked))
    assert (np.asarray(mixed[2]) != np.asarray(alone[2])).any()


def test_rows_that_ask_for_one_filter_do_not_feel_another():
  logits = jax.random.normal(jax.random.key(2), (3, 1, 501))
  top_p = jnp.array([0.9, 1.0, 1.0])
  alone = transform(logits, sampling.params(3, top_p=top_p))
  mixed = transform(
    logits, sampling.params(3, top_p=top_p, top_k=[0, 5, 0], min_p=[0, 0, 0.2])
  )
  assert_array_equal(mixed[0], alone[0])


def test_the_token_that_crosses_top_p_stays():
  assert_allclose(law([0.6, 0.3, 0.1], top_p=0.7), [2 / 3, 1 / 3, 0], rtol=1e-6)
  assert_allclose(law([0.6, 0.3, 0.1], top_p=1e-6), [1, 0, 0], rtol=1e-6)


def test_temperature_comes_before_top_p():
  logits = jnp.array([[[2.0, 1, 0, -1]]])
  probs = transform(logits, sampling.params(1, temperature=2, top_p=0.8))
  assert_allclose(probs[0, 0], [0.506, 0.307, 0.186, 0], atol=5e-4)


def test_ties_keep_the_lowest_ids():
  even = np.full(4, 0.25)
  assert_array_equal(law(even, temperature=0), [1, 0, 0, 0])
  assert_array_equal(law(even, top_k=1), [1, 0, 0, 0])
  assert_array_equal(law(even, top_p=0.5), [0.5, 0.5, 0, 0])
  assert_array_equal(
    law(even, top_p=0.51), np.array([1, 1, 1, 0], np.float32) / 3
  )
  assert_array_equal(law(even, min_p=0.99), even)


@pytest.mark.parametrize('temperature', (0.0, 1e-9, 1e-6, 1e-5, 1e-3))
def test_tiny_temperatures_are_finite_and_pick_the_argmax(temperature):
  logits = jnp.array([[[30.0, -80.0, 30.5, -jnp.inf]]])
  params = sampling.params(1, temperature=temperature)
  probs = transform(logits, params)
  assert_array_equal(probs[0, 0], [0, 0, 1, 0])
  # One predicate for every path: the same answer, whatever the neighbours.
  both = sampling.params(2, temperature=[1.0, temperature])
  pair = transform(jnp.repeat(logits, 2, 0), both)
  assert_array_equal(pair[1], probs[0])


@pytest.mark.parametrize('dtype', (jnp.bfloat16, jnp.float16, jnp.float32))
def test_probabilities_are_float32_whatever_the_logits(dtype):
  logits = jax.random.normal(jax.random.key(3), (1, 2, VOCAB)).astype(dtype)
  probs = transform(logits, sampling.params(1))
  assert probs.dtype == jnp.float32
  want = jax.nn.softmax(logits.astype(jnp.float32), -1)
  assert_array_equal(probs, want)


def test_impossible_tokens_are_never_drawn():
  keys = jax.random.split(jax.random.key(4), 20_000)
  probs = jnp.array([0.0, 0.7, 0.0, 0.3, 0.0])
  draws = jax.vmap(sampling.categorical, (0, None))(keys, probs)
  assert set(np.unique(draws)) == {1, 3}


@pytest.mark.parametrize(
  'field, value',
  (
    ('temperature', -0.1),
    ('temperature', float('nan')),
    ('temperature', float('inf')),
    ('top_k', -2),
    ('top_k', 2.5),
    ('top_p', 0.0),
    ('top_p', 1.5),
    ('min_p', 1.0),
    ('min_p', -0.1),
  ),
)
def test_a_value_out_of_range_is_one_line_that_names_the_field(field, value):
  with pytest.raises(UsageError, match=f'^sampling.{field} = ') as error:
    sampling.params(2, **{field: value})
  assert '\n' not in str(error.value)
