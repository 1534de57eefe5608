"""Classical rejection sampling of a continuous target, step by step.

A candidate x from a density g is kept when u C g(x) falls under the target
f(x), u uniform in [0, 1). C g must be an envelope, C g >= f everywhere. The
points (x, u C g(x)) fill the area under C g evenly, those that are kept fill
the area under f, and so

  P(accept) = Z / C,  Z the integral of f.

von Neumann, "Various techniques used in connection with random digits" (1951);
Robert and Casella, "Monte Carlo Statistical Methods", section 2.3. f need not
be normalised, and sampling never needs Z: `integrate` serves only to check.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec.base import UsageError


class Target(NamedTuple):
  """An unnormalised density on an interval, zero outside."""

  density: Callable[[jax.Array], jax.Array]  # f, elementwise, at least 0
  low: float
  high: float


class Envelope(NamedTuple):
  """A proposal that can be sampled, and the constant that lifts it over f."""

  sample: Callable[[jax.Array, int], jax.Array]  # (key, N) -> float [N]
  density: Callable[[jax.Array], jax.Array]  # g, elementwise, normalised
  constant: float  # C


class Candidates(NamedTuple):
  """What was proposed, kept or not: all N belong in the denominator."""

  x: jax.Array  # float [N], drawn from g
  u: jax.Array  # float [N], uniform in [0, 1)
  height: jax.Array  # float [N], u C g(x)
  accepted: jax.Array  # bool [N]


def uniform(low, high, constant):
  """The flat envelope C / (high - low) over [low, high]."""

  def sample(key, num):
    return jax.random.uniform(key, (num,), minval=low, maxval=high)

  def density(x):
    return jnp.where((x >= low) & (x <= high), 1 / (high - low), 0)

  return Envelope(sample, density, constant)


def normal(constant):
  """The envelope under the standard normal density."""

  def sample(key, num):
    return jax.random.normal(key, (num,))

  return Envelope(sample, jax.scipy.stats.norm.pdf, constant)


def evaluate(target: Target, x):
  """f(x), with 0 outside of the support, whatever `density` says there."""
  inside = (x >= target.low) & (x <= target.high)
  middle = (target.low + target.high) / 2
  return jnp.where(inside, target.density(jnp.where(inside, x, middle)), 0)


def build(
  target: Target,
  envelope: Envelope,
  grid_points=100_001,
  field='envelope.constant',
):
  """A sampler, if the envelope really lies above the target.

  Args:
    target: what to sample.
    envelope: where candidates come from.
    grid_points: points of the support at which C g >= f is demanded.
    field: what an error message calls the constant.

  Returns:
    (key, num) -> Candidates of N = num rows; num is static under `jax.jit`.
    The key is consumed: candidates and uniforms have each their own half.

  Raises:
    UsageError: C g dips below f, or f is no density; the message names the x.
  """
  _require_envelope(target, envelope, grid_points, field)

  def sampler(key, num):
    candidate_key, uniform_key = jax.random.split(key)
    x = envelope.sample(candidate_key, num)
    u = jax.random.uniform(uniform_key, (num,), x.dtype)
    height = u * envelope.constant * envelope.density(x)
    # u < f / (C g), without the division.
    return Candidates(x, u, height, height < evaluate(target, x))

  return sampler


def integrate(target: Target, panels=512, order=8):
  """The integral of f from `low` up to each edge, by Gauss-Legendre panels.

  For checks alone. In float64 under `jax.enable_x64`, and then exact to about
  1e-14 for a smooth f.

  Args:
    target: whose density is smooth within each panel.
    panels: equal parts of the support.
    order: nodes in each.

  Returns:
    edges, float [panels + 1], and areas, float [panels + 1]; areas[-1] is Z.
  """
  nodes, weights = np.polynomial.legendre.leggauss(order)
  edges = np.linspace(target.low, target.high, panels + 1)
  half = (target.high - target.low) / panels / 2
  x = edges[:-1, None] + half * (1 + nodes)
  panel_areas = np.asarray(target.density(jnp.asarray(x))) @ weights * half
  return edges, np.concatenate([[0], np.cumsum(panel_areas)])


def _require_envelope(target, envelope, grid_points, field):
  x = jnp.linspace(target.low, target.high, grid_points)
  f, g = evaluate(target, x), envelope.density(x)
  improper = ~(jnp.isfinite(f) & (f >= 0))
  if bool(jnp.any(improper)):
    first = int(jnp.argmax(improper))
    raise UsageError(
      f'target.density = {float(f[first]):g} at x = {float(x[first]):.4g}:'
      ' it must be finite and at least 0 on all of the support'
    )
  dips = ~(envelope.constant * g >= f)
  if not bool(jnp.any(dips)):
    return
  needed = jnp.where(dips, f / g, 0)
  worst = int(jnp.argmax(needed))
  least = float(needed[worst])
  mend = (
    f'take at least C = {_round_up(least)}'
    if np.isfinite(least)
    else 'take a proposal that reaches all of the support'
  )
  raise UsageError(
    f'{field} = {envelope.constant:g}: C g(x) ='
    f' {float(envelope.constant * g[worst]):.4g} is below f(x) ='
    f' {float(f[worst]):.4g} at x = {float(x[worst]):.4g}; {mend}'
  )


def _round_up(value, digits=4):
  """The least number of `digits` significant digits above `value`."""
  unit = 10.0 ** (np.floor(np.log10(value)) + 1 - digits)
  return f'{(np.floor(value / unit) + 1) * unit:.{digits}g}'
