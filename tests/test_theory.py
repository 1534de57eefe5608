"""The closed forms against simulation, enumeration and the papers' limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from specdec import theory
from specdec.verify import token

ALPHAS = (0.0, 0.2, 0.5, 0.7, 0.9, 0.99, 1.0)
GAMMAS = (0, 1, 2, 4, 7, 10)


def distributions(seed, *shape):
  """Random distributions over the last axis, float64."""
  return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1])


def simulated_tokens(alpha, num, seed):
  """Tokens of `num` rounds, [gamma, num]: drafts accepted until one fails."""
  generator = np.random.default_rng(seed)
  alive, tokens = np.ones(num, bool), np.ones(num, np.int64)
  for gamma in range(max(GAMMAS) + 1):
    if gamma in GAMMAS:
      yield gamma, tokens.copy()
    alive &= generator.random(num) < alpha
    tokens += alive


@pytest.mark.parametrize('alpha', ALPHAS)
def test_expected_tokens_is_the_mean_of_a_capped_geometric(alpha):
  # 1e6 rounds; each mean within 3 standard errors (25 that vary, 17 exact).
  num = 1_000_000
  for gamma, tokens in simulated_tokens(alpha, num, seed=3):
    error = 3 * tokens.std() / np.sqrt(num) + 1e-6
    assert abs(theory.expected_tokens(alpha, gamma) - tokens.mean()) < error


def test_the_simulation_rejects_a_formula_that_forgets_the_bonus():
  num = 1_000_000
  for gamma, tokens in simulated_tokens(0.7, num, seed=3):
    wrong = (1 - 0.7**gamma) / (1 - 0.7)
    assert abs(wrong - tokens.mean()) > 3 * tokens.std() / np.sqrt(num)


def test_expected_tokens_equals_the_quotient_of_the_paper():
  alpha = np.linspace(0, 0.99, 100)[:, None]
  gamma = np.arange(30)[None]
  with jax.enable_x64(True):
    ours = theory.expected_tokens(alpha, gamma)
  assert_allclose(ours, (1 - alpha ** (gamma + 1)) / (1 - alpha), rtol=1e-12)


@pytest.mark.parametrize('gamma', GAMMAS)
def test_nothing_breaks_at_overlap_0_and_1(gamma):
  value, slope = jax.value_and_grad(theory.expected_tokens)(1.0, gamma)
  assert value == gamma + 1
  assert slope == gamma * (gamma + 1) / 2
  value, slope = jax.value_and_grad(theory.expected_tokens)(0.0, gamma)
  assert value == 1
  assert slope == min(gamma, 1)


def test_float32_keeps_its_digits_where_the_quotient_loses_them():
  alpha = (1 - np.arange(1, 100) * 2.0**-23).astype(np.float32)
  exact = np.sum(alpha[:, None].astype(np.float64) ** np.arange(9), -1)
  assert_allclose(theory.expected_tokens(alpha, 8), exact, rtol=2e-7)
  quotient = (1 - alpha ** np.float32(9)) / (1 - alpha)
  assert np.max(np.abs(quotient / exact - 1)) > 2e-5


def test_derivatives_agree_with_finite_differences():
  def functions(alpha, c):
    return jnp.stack(
      [
        theory.speedup(alpha, 5, c, 1.2),
        theory.operations_factor(alpha, 5, c),
        theory.oracle_speedup(alpha, c, 1.2),
        theory.one_draft_speedup(alpha, c),
      ]
    )

  with jax.enable_x64(True):
    at, step = np.array([0.7, 0.1]), 1e-6
    slopes = jax.jacobian(functions, (0, 1))(*at)
    for i, slope in enumerate(slopes):
      shift = step * np.eye(2)[i]
      up, down = functions(*(at + shift)), functions(*(at - shift))
      assert_allclose(slope, (up - down) / (2 * step), rtol=1e-7)


def test_overlap_is_what_the_token_rule_accepts():
  # E over x ~ q of P(accept | x), from the rule's own law; 50 random pairs.
  p, q = distributions(0, 50, 5), distributions(1, 50, 5)

  def accepted(p, q):
    def given(x):
      proposal = token.Proposal(x[None], q[None], jnp.int32(1))
      return token.law(proposal, jnp.stack([p, p]))[1].sum()

    return q @ jax.vmap(given)(jnp.arange(5))

  with jax.enable_x64(True):
    overlap = theory.overlap(p, q)
    exact = jax.vmap(accepted)(jnp.asarray(p), jnp.asarray(q))
    assert_allclose(overlap, exact, atol=1e-12)
    assert_allclose(overlap, 1 - theory.total_variation(p, q), atol=1e-12)


def test_classical_rejection_accepts_less_than_the_overlap():
  with jax.enable_x64(True):
    p, q = distributions(2, 200, 6), distributions(3, 200, 6)
    classical = theory.classical_acceptance(p, q)
    assert_allclose(classical, 1 / np.max(p / q, -1), rtol=1e-12)
    assert np.all(classical < theory.overlap(p, q))
  article = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
  assert_allclose(theory.classical_acceptance(*article), 1 / 3, rtol=1e-6)
  assert_allclose(theory.overlap(*article), 0.7, rtol=1e-6)


def test_classical_rejection_ignores_tokens_that_the_target_never_emits():
  p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
  assert theory.classical_acceptance(p, q) == 0.5
  # A token that the draft never proposes has no envelope.
  assert theory.classical_acceptance(q, p) == 0


def test_lenience_raises_the_overlap_and_bounds_the_output():
  p, q = distributions(4, 100, 5), distributions(5, 100, 5)
  lenience = np.array([1.0, 0.5, 0.3, 0.1])
  with jax.enable_x64(True):
    overlaps = theory.lenient_overlap(p[None], q[None], lenience[:, None])
  assert_allclose(overlaps[0], np.minimum(p, q).sum(-1), atol=1e-12)
  assert np.all(np.diff(overlaps, axis=0) >= 0)
  # Kept with p / (l q), replaced from the residual of p and l q.
  for factor, overlap in zip(lenience, np.asarray(overlaps), strict=True):
    rest = np.maximum(p - factor * q, 0)
    rest /= rest.sum(-1, keepdims=True)
    output = np.minimum(p / factor, q) + (1 - overlap)[:, None] * rest
    assert_allclose(output.sum(-1), 1, atol=1e-12)
    assert np.all(output <= p / factor + 1e-12)


def test_positions_are_weighed_by_all_before_them():
  betas = np.array([0.88, 0.96, 0.65])
  # Every outcome of three independent drafts, with its probability.
  mean = 0.0
  for outcome in np.ndindex(2, 2, 2):
    chance = np.prod(np.where(outcome, betas, 1 - betas))
    mean += chance * np.cumprod(outcome).sum()
  assert_allclose(theory.expected_accepted(betas), mean, rtol=1e-6)
  constant = theory.expected_accepted(np.full(7, 0.8))
  assert_allclose(1 + constant, theory.expected_tokens(0.8, 7), rtol=1e-6)


def test_rejections_on_the_way_are_the_sum_of_distances():
  # A chain of T = 40 tokens that keeps its own target and draft at each
  # position: 100,000 texts, mean rejections within 3 standard errors.
  p, q = distributions(6, 40, 4), distributions(7, 40, 4)
  generator = np.random.default_rng(8)
  drafts = (generator.random((100_000, 40, 1)) > q.cumsum(-1)).sum(-1)
  drafts = np.minimum(drafts, 3)
  slots = np.arange(40)
  ratio = p[slots, drafts] / q[slots, drafts]
  rejections = (generator.random(drafts.shape) >= ratio).sum(-1)
  error = 3 * rejections.std() / np.sqrt(len(rejections))
  assert abs(theory.expected_rejections(p, q) - rejections.mean()) < error


def test_some_gamma_gains_exactly_when_overlap_exceeds_cost():
  grid = np.linspace(0.01, 0.99, 50)
  alpha, c = np.meshgrid(grid, grid + 0.003)
  best = np.asarray(theory.best_gamma(alpha, c))
  assert np.array_equal(best > 0, theory.pays(alpha, c))
  one = np.asarray(theory.one_draft_speedup(alpha, c))
  assert_allclose(one, theory.speedup(alpha, 1, c), rtol=1e-6)
  assert np.array_equal(one > 1, theory.pays(alpha, c))


def test_the_best_gamma_beats_its_neighbours():
  alpha = np.linspace(0.05, 0.95, 19)[:, None]
  c = np.array([0.01, 0.05, 0.1, 0.3])[None]
  with jax.enable_x64(True):
    best = np.asarray(theory.best_gamma(alpha, c, max_gamma=300))
    gain = theory.speedup(alpha, best, c)
    assert best.max() < 300
    assert np.all(gain >= theory.speedup(alpha, best + 1, c))
    assert np.all(gain >= theory.speedup(alpha, np.maximum(best - 1, 0), c))
    # Knowing the rejection beforehand is better still.
    assert np.all(theory.oracle_speedup(alpha, c) > gain)


def test_the_best_gamma_follows_a_measured_verification_cost():
  # Verification is free up to four tokens, and doubles with the fifth.
  v = np.where(np.arange(17) < 4, 1.0, 2.0)
  assert theory.best_gamma(0.8, 0.05, max_gamma=16) == 8
  assert theory.best_gamma(0.8, 0.05, v, max_gamma=16) == 3
  # A draft that is never right is not used.
  assert theory.best_gamma(0.0, 0.05) == 0


def test_the_oracle_drafts_what_will_be_kept():
  # 1e6 rounds at overlap .8: tokens over time, within 0.5 %.
  kept = np.random.default_rng(9).geometric(0.2, 1_000_000) - 1
  measured = (kept + 1).sum() / (0.1 * kept + 1.3).sum()
  assert_allclose(theory.oracle_speedup(0.8, 0.1, 1.3), measured, rtol=5e-3)


def test_operations_count_what_a_round_computes():
  # The target evaluates gamma + 1 tokens, the draft gamma.
  tokens = theory.expected_tokens(0.7, 3)
  assert_allclose(theory.operations_factor(0.7, 3), 4 / tokens, rtol=1e-6)
  assert_allclose(
    theory.operations_factor(0.7, 3, 0.1), 4.3 / tokens, rtol=1e-6
  )
  assert theory.operations_factor(1.0, 3) == 1
  assert theory.memory_factor(0.7, 3) == tokens


def test_memory_bound_speedup_is_speedup_with_the_ratio_of_sizes():
  tokens = theory.expected_tokens(0.7, 3)
  assert_allclose(
    theory.memory_bound_speedup(tokens, 3, 0.1),
    theory.speedup(0.7, 3, 0.1),
    rtol=1e-6,
  )


def test_arrays_broadcast_and_jit_changes_nothing():
  alpha, gamma = np.array([[0.3], [1.0]]), np.array([[0, 3, 9]])
  alone = [[theory.speedup(a, g, 0.1) for g in gamma[0]] for a in alpha[:, 0]]
  jitted = jax.jit(lambda alpha, c: theory.speedup(alpha, gamma, c))
  assert_allclose(jitted(alpha, 0.1), alone, rtol=1e-6)
