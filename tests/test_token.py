"""The token rule: its law by enumeration, its draws against its law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec import exact, rng, sampling, simulation
from specdec.base import Proposal
from specdec.verify import controls, token


def three_drafts(seed, length=3):
  """A proposal of three drafts over four tokens, and the target's rows."""
  draws = np.random.default_rng(seed)
  p, q = draws.dirichlet(np.ones(4), 4), draws.dirichlet(np.ones(4), 3)
  tokens = jnp.array([1, 2, 0], jnp.int32)
  proposal = Proposal(tokens, jnp.float32(q), jnp.int32(length))
  return proposal, jnp.float32(p)


def one_round(rule, p, q, num=200_000):
  """First tokens of `num` rounds of one draft, drawn like a drafter does."""

  @jax.jit
  def run(p, q):
    def row(key):
      draw = rng.draw_key(key, 7, rng.DRAFT, 0)
      drafts = sampling.categorical(draw, q)[None]
      proposal = Proposal(drafts, q[None], jnp.int32(1))
      verdict = rule.verify(key, 7, proposal, jnp.stack([p, p]))
      return jnp.where(verdict.num_accepted > 0, drafts[0], verdict.next_token)

    return jax.vmap(row)(rng.sequence_keys(1, num))

  tokens = run(jnp.array(p, jnp.float32), jnp.array(q, jnp.float32))
  return np.bincount(tokens, minlength=len(p))


def test_dropping_an_unlikely_draft_gives_55_33_12(float64):
  p, q = np.array([0.5, 0.3, 0.2]), np.array([0.7, 0.2, 0.1])
  levels = [p, np.full((3, 3), 1 / 3)]
  paths = exact.paths(levels, [q])
  law = exact.path_laws(controls.drop_unlikely(0.15), paths)
  biased = exact.output_law(law, levels, [q]).sum(-1)
  assert_allclose(biased, [0.55, 0.33, 0.12], atol=1e-12)
  counts = one_round(controls.drop_unlikely(0.15), p, q)
  # 200,000 rounds.
  assert simulation.p_value(counts, biased) > 0.01
  assert simulation.p_value(counts, p) < 1e-6


def test_argmax_draft_that_declares_its_softmax_gives_75_25_0(float64):
  p, q = np.array([0.3, 0.5, 0.2]), np.array([0.4, 0.35, 0.25])
  target = np.stack([p, p])[None]
  path = exact.Paths(np.array([[0]], np.int32), q[None, None], target)
  declared = exact.path_laws(token.RULE, path)[0]
  assert_allclose(
    [declared[1].sum(), *declared[0, 1:]], [0.75, 0.25, 0], atol=1e-12
  )
  honest = exact.path_laws(token.RULE, path, point=True)[0]
  assert_allclose([honest[1].sum(), *honest[0, 1:]], p, atol=1e-12)


@pytest.mark.parametrize('length', (0, 1, 3))
@pytest.mark.parametrize('point', (False, True))
def test_verify_draws_what_law_says(length, point):
  # 200,000 keys; p-value above 0.01.
  proposal, p = three_drafts(length, length)
  # The second slot is always accepted, unless it declares a point mass.
  probs = None if point else proposal.probs.at[1].set(p[1])
  proposal = proposal._replace(probs=probs)
  counts = simulation.count_verdicts(token.RULE, proposal, p)
  assert simulation.p_value(counts, token.law(proposal, p)) > 0.01


@pytest.mark.parametrize(
  'rule', (controls.CORRECT_FROM_P, controls.ACCEPT_ARGMAX)
)
def test_chi_square_rejects_a_wrong_rule(rule):
  # 200,000 keys, the same test as above; a wrong rule matches its own law.
  proposal, p = three_drafts(3)
  counts = simulation.count_verdicts(rule, proposal, p)
  assert simulation.p_value(counts, rule.law(proposal, p)) > 0.01
  assert simulation.p_value(counts, token.law(proposal, p)) < 1e-6


def test_draft_noise_is_not_used_again_for_the_correction():
  # 200,000 rounds; the residual has two tokens, so that noise can steer it.
  p, q = [0.2, 0.3, 0.4, 0.1], [0.55, 0.15, 0.1, 0.2]
  assert simulation.p_value(one_round(token.RULE, p, q), np.array(p)) > 0.01
  for rule in (
    controls.REUSE_NOISE,
    controls.CORRECT_FROM_P,
    controls.ACCEPT_ARGMAX,
  ):
    assert simulation.p_value(one_round(rule, p, q), np.array(p)) < 1e-6


def test_equal_models_are_accepted_in_every_one_of_200000_rounds():
  proposal, p = three_drafts(5)
  proposal = proposal._replace(probs=p[:3])
  verdict = simulation.verify_many(token.RULE, 200_000)(proposal, p)
  assert_array_equal(verdict.num_accepted, 3)
  assert np.isfinite(token.law(proposal, p)).all()
  assert_allclose(sampling.residual(p, p), p, rtol=1e-6)


def test_temperature_0_on_both_sides_emits_the_targets_argmax():
  logits = jnp.log(jnp.array([[[0.3, 0.5, 0.2, 0]], [[0.4, 0.35, 0.25, 0]]]))
  p, q = sampling.transform(logits, sampling.params(2, temperature=0))
  proposal = Proposal(
    jnp.array([0, 0, 0], jnp.int32), jnp.repeat(q, 3, 0), jnp.int32(1)
  )
  verdict = simulation.verify_many(token.RULE, 200_000)(
    proposal, jnp.repeat(p, 4, 0)
  )
  assert_array_equal(verdict.num_accepted, 0)
  assert_array_equal(verdict.next_token, 1)


@pytest.mark.parametrize(
  'u, p, q, accepted',
  (
    (0.0, [0.0, 1.0], [0.5, 0.5], 0),  # p(x) = 0 is rejected even at u = 0
    (0.0, [1e-9, 1.0], [0.5, 0.5], 1),
    (1 - 2**-24, [0.3, 0.7], [0.3, 0.7], 1),  # p = q is accepted as u -> 1
    (1 - 2**-24, [0.3, 0.7], [0.31, 0.69], 0),
  ),
)
def test_ends_of_the_unit_interval(monkeypatch, u, p, q, accepted):
  monkeypatch.setattr(
    jax.random, 'uniform', lambda key, dtype: jnp.array(u, dtype)
  )
  p, q = jnp.float32([p, p]), jnp.float32([q])
  proposal = Proposal(jnp.array([0]), q, jnp.int32(1))
  verdict = token.verify(jax.random.key(0), 3, proposal, p)
  assert verdict.num_accepted == accepted


def test_residual_keeps_its_precision_where_the_draft_is_tiny():
  p = np.float32([0.25, 0.5, 0.25])
  q = np.float32([p[0] * 1e-9, p[1] * 1e-9, 1])
  rest = np.maximum(p.astype(float) - q.astype(float), 0)
  got = np.asarray(sampling.residual(jnp.array(p), jnp.array(q)), float)
  assert_allclose(got, rest / rest.sum(), rtol=1e-6, atol=1e-29)
