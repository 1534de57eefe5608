"""Classical rejection sampling against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from specdec import rejection
from specdec.base import UsageError
from specdec.experiments.article import TARGET

ENVELOPES = {
  'uniform': rejection.uniform(-3.0, 3.0, 25.0),
  'normal': rejection.normal(11.0),
}
each_envelope = pytest.mark.parametrize('name', ENVELOPES)


@pytest.fixture(scope='module')
def distribution():
  """The target's distribution function, by quadrature."""
  with jax.enable_x64(True):
    edges, areas = rejection.integrate(TARGET, panels=4096)
  return lambda x: np.interp(x, edges, areas / areas[-1])


@pytest.fixture(scope='module')
def candidates():
  """500,000 candidates of each envelope, from a fixed key."""
  return {
    name: jax.jit(rejection.build(TARGET, envelope), static_argnums=1)(
      jax.random.key(1), 500_000
    )
    for name, envelope in ENVELOPES.items()
  }


def first(x, chosen, num=100_000):
  chosen = np.asarray(x)[np.asarray(chosen)]
  assert len(chosen) >= num
  return chosen[:num]


@each_envelope
def test_accepted_samples_follow_the_target(name, candidates, distribution):
  # Kolmogorov-Smirnov, n = 100,000, p > 0.01.
  drawn = candidates[name]
  samples = first(drawn.x, drawn.accepted)
  assert stats.kstest(samples, distribution).pvalue > 0.01


@each_envelope
def test_the_test_rejects_an_acceptance_without_the_constant(
  name, candidates, distribution
):
  drawn = candidates[name]
  f = rejection.evaluate(TARGET, drawn.x)
  wrong = drawn.u < f / ENVELOPES[name].density(drawn.x)
  samples = first(drawn.x, wrong)
  assert stats.kstest(samples, distribution).pvalue < 1e-6


@each_envelope
def test_the_share_accepted_is_z_over_c(name, candidates):
  # 500,000 candidates, within 3 standard errors.
  accepted = np.asarray(candidates[name].accepted)
  chance = 5.73807 / ENVELOPES[name].constant
  error = np.sqrt(chance * (1 - chance) / accepted.size)
  assert abs(accepted.mean() - chance) < 3 * error


def test_candidates_outside_the_support_count_as_rejected(candidates):
  drawn = candidates['normal']
  outside = np.abs(np.asarray(drawn.x)) > 3
  # 0.27 % of a standard normal lies beyond 3.
  assert outside.sum() > 1_000
  assert not np.asarray(drawn.accepted)[outside].any()
  assert drawn.accepted.shape == (500_000,)


def test_a_density_that_breaks_outside_its_support_is_never_asked():
  target = rejection.Target(lambda x: jnp.sqrt(1 - x**2), -1.0, 1.0)
  sampler = rejection.build(target, rejection.normal(5.0))
  drawn = sampler(jax.random.key(0), 10_000)
  assert np.abs(np.asarray(drawn.x)[np.asarray(drawn.accepted)]).max() <= 1
  slope = jax.grad(lambda x: rejection.evaluate(target, x))(2.0)
  assert slope == 0


def test_candidates_and_uniforms_are_independent(candidates):
  # Shared noise would show: 500,000 pairs, |r| < 4 / sqrt(n).
  for drawn in candidates.values():
    assert abs(np.corrcoef(drawn.x, drawn.u)[0, 1]) < 4 / np.sqrt(500_000)


def test_jit_and_eager_agree():
  sampler = rejection.build(TARGET, ENVELOPES['normal'])
  eager = sampler(jax.random.key(2), 10_000)
  jitted = jax.jit(sampler, static_argnums=1)(jax.random.key(2), 10_000)
  assert np.array_equal(eager.u, jitted.u)
  np.testing.assert_allclose(eager.x, jitted.x, rtol=1e-6)
  # A candidate within rounding of the curve may fall on either side.
  assert np.mean(eager.accepted != jitted.accepted) < 1e-3


def test_an_envelope_below_the_target_is_refused_naming_x():
  with pytest.raises(UsageError) as caught:
    rejection.build(TARGET, rejection.normal(5.0))
  message = str(caught.value)
  assert 'envelope.constant = 5' in message
  assert 'C = 9.926' in message
  x = float(message.split(' x = ')[1].split(';')[0])
  f, g = rejection.evaluate(TARGET, x), stats.norm.pdf(x)
  assert 5 * g < f
  # It is the worst point, and what the message asks for is enough.
  rejection.build(TARGET, rejection.normal(9.926))
  with pytest.raises(UsageError):
    rejection.build(TARGET, rejection.normal(9.92))


def test_an_envelope_that_dips_in_one_narrow_place_is_refused():
  spike = rejection.Target(
    lambda x: 1 + 0.5 * jnp.exp(-(((x - 0.123) / 1e-3) ** 2)), -1.0, 1.0
  )
  with pytest.raises(UsageError, match=r'x = 0\.123'):
    rejection.build(spike, rejection.uniform(-1.0, 1.0, 2.9))
  rejection.build(spike, rejection.uniform(-1.0, 1.0, 3.1))


def test_a_proposal_that_misses_part_of_the_support_is_refused():
  with pytest.raises(UsageError, match='reaches all of the support'):
    rejection.build(TARGET, rejection.uniform(-2.0, 3.0, 1e6))


@pytest.mark.parametrize(
  'density, shown', [(jnp.log, '-inf'), (lambda x: x - 1, '-1')]
)
def test_what_is_no_density_is_refused(density, shown):
  target = rejection.Target(density, 0.0, 1.0)
  with pytest.raises(UsageError, match=f'target.density = {shown} at x = 0'):
    rejection.build(target, rejection.uniform(0.0, 1.0, 5.0))


def test_quadrature_agrees_with_an_independent_one():
  with jax.enable_x64(True):
    edges, areas = rejection.integrate(TARGET)
    exact, _ = integrate.quad(TARGET.density, -3, 3, epsabs=1e-13)
    half, _ = integrate.quad(TARGET.density, -3, float(edges[200]))
  assert abs(areas[-1] - exact) < 1e-12
  assert abs(areas[200] - half) < 1e-12
  assert round(areas[-1], 5) == 5.73807
