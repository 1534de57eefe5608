"""A training step: exact parts, padding, keys, and what it reports."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose

from specdec.base import UsageError
from specdec.train import optimiser, step
from specdec.train.optimiser import OptimiserConfig

CONFIG = OptimiserConfig(10, 0.1, warmup_steps=2, weight_decay=0.1)
OPTIMISER = optimiser.build(CONFIG)


class Batch(NamedTuple):
  x: jax.Array  # [B, T, 3]
  y: jax.Array  # [B, T]
  mask: jax.Array  # [B, T]


def squares(params, batch, key):
  """Least squares; the key plays no part."""
  del key
  error = batch.x @ params['kernel'] + params['bias'] - batch.y
  return jnp.sum(batch.mask * error**2), jnp.sum(batch.mask)


def noisy(params, batch, key):
  noise = jax.random.normal(key, batch.y.shape)
  return jnp.sum(params['bias'] * noise), jnp.float32(batch.y.size)


def fresh(seed=0):
  params = {'kernel': jnp.array([1.0, -2.0, 0.5]), 'bias': jnp.array(0.25)}
  return step.init(params, OPTIMISER, jax.random.key(seed))


def batch(size=8, tokens=5, masked=0.5):
  draws = np.random.default_rng(0)
  # The later a row, the more of it is masked: no two parts weigh the same.
  share = masked * np.linspace(0, 2, size)[:, None]
  mask = draws.random((size, tokens)) >= share
  return Batch(
    jnp.float32(draws.normal(size=(size, tokens, 3))),
    jnp.float32(draws.normal(size=(size, tokens))),
    jnp.float32(mask),
  )


def assert_close(a, b, rtol):
  for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True):
    assert_allclose(x, y, rtol=rtol, atol=rtol)


def test_parts_of_unequal_padding_equal_the_whole_batch():
  whole, metrics = step.build(squares, OPTIMISER)(fresh(), batch())
  for parts in (2, 4, 8):
    found, same = step.build(squares, OPTIMISER, parts)(fresh(), batch())
    assert_close(found.params, whole.params, 1e-6)
    assert_close(found.optimiser, whole.optimiser, 1e-6)
    assert_close(same, metrics, 1e-6)


def test_a_mean_over_means_would_fail_the_same_comparison():
  def mean(params, batch, key):
    loss, weight = squares(params, batch, key)
    return loss / weight, jnp.float32(1)

  whole, _ = step.build(squares, OPTIMISER)(fresh(), batch())
  found, _ = step.build(mean, OPTIMISER, 2)(fresh(), batch())
  moments = [optax.tree.get(s.optimiser, 'mu') for s in (found, whole)]
  with pytest.raises(AssertionError):
    assert_close(*moments, 1e-3)


def test_padding_changes_no_weight():
  plain = batch(masked=0.0)
  padded = Batch(
    jnp.pad(plain.x, ((0, 2), (0, 3), (0, 0)), constant_values=9.0),
    jnp.pad(plain.y, ((0, 2), (0, 3)), constant_values=-9.0),
    jnp.pad(plain.mask, ((0, 2), (0, 3))),
  )
  advance = step.build(squares, OPTIMISER)
  want, metrics = advance(fresh(), plain)
  got, same = advance(fresh(), padded)
  assert_close(got.params, want.params, 1e-6)
  assert_close(same, metrics, 1e-6)


def test_a_batch_of_padding_alone_is_no_division_by_zero():
  empty = batch()._replace(mask=jnp.zeros_like(batch().mask))
  state, metrics = step.build(squares, OPTIMISER)(fresh(), empty)
  assert metrics.tokens == metrics.loss == metrics.gradient_norm == 0
  assert all(
    np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state.params)
  )


def test_the_metrics_are_those_of_the_step():
  before = jax.device_get(fresh().params)
  state, metrics = step.build(squares, OPTIMISER)(fresh(), batch())
  after = jax.device_get(state.params)

  def mean(params):
    loss, weight = squares(params, batch(), None)
    return loss / weight

  loss, gradient = jax.value_and_grad(mean)(before)
  update = jax.tree.map(lambda a, b: a - b, after, before)
  assert_allclose(metrics.loss, loss, rtol=1e-6)
  assert_allclose(metrics.gradient_norm, optax.tree.norm(gradient), rtol=1e-6)
  assert_allclose(metrics.parameter_norm, optax.tree.norm(after), rtol=1e-6)
  assert_allclose(metrics.update_norm, optax.tree.norm(update), rtol=1e-5)
  assert_allclose(metrics.learning_rate, CONFIG.peak_rate / 3, rtol=1e-6)
  assert metrics.tokens == batch().mask.sum()
  assert state.step == 1


def test_noise_is_new_in_every_step_part_and_run_and_the_same_again():
  one, two = (step.build(noisy, OPTIMISER, parts) for parts in (1, 2))

  def losses(advance, seed):
    state, found = fresh(seed), []
    for _ in range(3):
      # The bias is set back, so that noise alone tells losses apart.
      state = state._replace(params=fresh().params)
      state, metrics = advance(state, batch())
      found.append(float(metrics.loss))
    return found

  assert losses(one, 0) == losses(one, 0)
  found = [
    x for run in (losses(one, 0), losses(one, 1), losses(two, 0)) for x in run
  ]
  assert len(set(found)) == 9
  # The parts of a batch do not share their noise either.
  halves = Batch(*(jnp.concatenate([leaf[:4]] * 2) for leaf in batch()))
  _, twice = two(fresh(), halves)
  _, once = one(fresh(), Batch(*(leaf[:4] for leaf in batch())))
  assert abs(twice.loss - once.loss) > 1e-3


def test_the_callers_weights_survive_the_first_step():
  params = {'kernel': jnp.ones(3), 'bias': jnp.zeros(())}
  key = jax.random.key(0)
  state = step.init(params, OPTIMISER, key)
  step.build(squares, OPTIMISER)(state, batch())
  assert_allclose(params['kernel'], 1)
  jax.random.normal(key)


@pytest.mark.parametrize('bound', (False, True))
def test_the_second_step_of_a_model_that_was_loaded_compiles_again(bound):
  # A loaded model is bound to its device, and so is all that a step returns.
  params = fresh().params
  if bound:
    params = jax.device_put(params, jax.devices()[0])
  state = step.init(params, OPTIMISER, jax.random.key(0))
  before = [leaf.committed for leaf in jax.tree.leaves(state)]
  state, _ = step.build(squares, OPTIMISER)(state, batch())
  after = [leaf.committed for leaf in jax.tree.leaves(state)]
  assert before == after == [bound] * len(after)


def test_weights_are_kept_in_float32():
  # A step of 1e-3 from 1 is lost in bfloat16.
  small = optimiser.build(OptimiserConfig(1, 1e-3, weight_decay=0.0))
  params = {'kernel': jnp.ones(3, jnp.bfloat16), 'bias': jnp.bfloat16(0)}
  state = step.init(params, small, jax.random.key(0))
  state, _ = step.build(squares, small)(state, batch())
  assert_allclose(np.abs(state.params['kernel'] - 1), 1e-3, rtol=1e-3)


def test_what_is_fixed_reaches_the_loss_and_is_not_consumed():
  def scaled(params, batch, key, factor):
    loss, weight = squares(params, batch, key)
    return factor * loss, weight

  factor = jnp.float32(3)
  advance = step.build(scaled, OPTIMISER)
  _, metrics = advance(fresh(), batch(), factor)
  _, plain = step.build(squares, OPTIMISER)(fresh(), batch())
  assert_allclose(metrics.loss, 3 * plain.loss, rtol=1e-6)
  assert factor == 3


@pytest.mark.parametrize(
  'parts, line',
  [
    (0, 'accumulation = 0: it must be'),
    (3, '3: it must divide the batch of 8'),
  ],
)
def test_parts_that_do_not_divide_the_batch_are_refused(parts, line):
  with pytest.raises(UsageError, match=line):
    step.build(squares, OPTIMISER, parts)(fresh(), batch())
