"""AdamW: its rate, what decays, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose

from specdec.base import UsageError
from specdec.models import functional
from specdec.models.config import TINY
from specdec.train import optimiser
from specdec.train.optimiser import OptimiserConfig


def test_the_rate_is_optax_warmup_and_cosine():
  config = OptimiserConfig(50, 3e-3, warmup_steps=9, final_fraction=0.2)
  steps = jnp.arange(50)
  got = jax.vmap(optimiser.build(config).rate)(steps)
  want = optax.schedules.warmup_cosine_decay_schedule(
    3e-3 / 10, 3e-3, warmup_steps=9, decay_steps=49, end_value=0.2 * 3e-3
  )
  assert_allclose(got, jax.vmap(want)(steps), rtol=1e-5)


@pytest.mark.parametrize('steps, warmup', [(1, 0), (5, 0), (5, 4)])
def test_no_step_has_a_rate_of_zero(steps, warmup):
  config = OptimiserConfig(steps, 1.0, warmup, final_fraction=0.1)
  rates = jax.vmap(optimiser.build(config).rate)(jnp.arange(steps))
  assert np.all(rates > 0)
  # What a run does after its end, it does at the last rate.
  late = jax.vmap(optimiser.build(config).rate)(jnp.array([steps, 9 * steps]))
  assert_allclose(late, late[0])


def test_norms_and_biases_do_not_decay():
  weights = functional.abstract(TINY)
  decayed = optimiser.decayed(weights)
  kept = {
    jax.tree_util.keystr(path, simple=True, separator='/')
    for path, decays in jax.tree.leaves_with_path(decayed)
    if not decays
  }
  assert kept == {
    'blocks/attention_norm/scale/value',
    'blocks/mlp_norm/scale/value',
    'norm/scale/value',
  }
  assert not optimiser.decayed({'qkv': {'bias': 0}})['qkv']['bias']


def test_a_large_gradient_is_clipped_and_a_small_one_is_not():
  config = OptimiserConfig(10, 1e-3, clip_norm=2.0, weight_decay=0.0)
  transform = optimiser.build(config).transform
  params = {'w': jnp.zeros(2)}

  def moment(gradient):
    state = transform.init(params)
    _, state = transform.update({'w': jnp.array(gradient)}, state, params)
    return optax.tree.get(state, 'mu')['w'] / (1 - config.beta1)

  assert_allclose(moment([30.0, 40.0]), [1.2, 1.6], rtol=1e-6)
  assert_allclose(moment([0.3, 0.4]), [0.3, 0.4], rtol=1e-6)


@pytest.mark.parametrize(
  'fields, line',
  [
    ({'steps': 0}, 'steps = 0: it must be at least 1'),
    ({'peak_rate': 0.0}, 'peak_rate = 0.0: it must be above 0'),
    (
      {'warmup_steps': 10},
      'warmup_steps = 10: it must be at least 0 and under',
    ),
    ({'final_fraction': 1.5}, r'final_fraction = 1.5: it must be in \[0, 1\]'),
    ({'beta2': 1.0}, r'beta2 = 1.0: it must be in \[0, 1\)'),
    ({'clip_norm': 0.0}, 'clip_norm = 0.0: it must be above 0'),
  ],
)
def test_an_impossible_field_is_named(fields, line):
  with pytest.raises(UsageError, match=line):
    OptimiserConfig(**{'steps': 10, 'peak_rate': 1e-3, **fields})
