"""The token rule: its law by enumeration, its draws against its law."""

import functools

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rules
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import Proposal
from specdec.verify import token

VOCABS = (2, 3, 5)
GAMMAS = (0, 1, 2, 3, 4)


def point_masses(levels):
  """A tree of argmaxes."""
  return [np.eye(level.shape[-1])[level.argmax(-1)] for level in levels]


def pairs(vocab, gamma):
  """Trees of target and draft, by what is peculiar about them."""
  draws = np.random.default_rng(100 * vocab + gamma)
  p = exact.tree(draws, vocab, gamma + 1)
  q = exact.tree(draws, vocab, gamma)
  yield 'dense', p, q
  yield 'equal', p, p[:-1]
  yield 'uniform target', [np.full_like(level, 1 / vocab) for level in p], q
  yield 'target is a point mass', point_masses(p), q
  yield 'draft is a point mass', p, point_masses(q)
  yield 'two point masses', point_masses(p), point_masses(q)
  for _ in range(3):
    yield (
      'zeros',
      exact.tree(draws, vocab, gamma + 1, zeros=0.5),
      exact.tree(draws, vocab, gamma, zeros=0.5),
    )
  even = np.arange(vocab) % 2
  left = [level * even for level in p]
  right = [level * (1 - even) for level in q]
  normal = [
    [level / level.sum(-1, keepdims=True) for level in levels]
    for levels in (left, right)
  ]
  yield 'disjoint', *normal


@functools.cache
def verify_many(rule):
  """`rule.verify` of one proposal under 200,000 keys."""

  @jax.jit
  def run(proposal, target_probs):
    keys = rng.sequence_keys(0, 200_000)
    return jax.vmap(rule.verify, (0, None, None, None))(
      keys, 7, proposal, target_probs
    )

  return run


def count_verdicts(rule, proposal, target_probs):
  """How often each (num_accepted, next_token) comes out, [G+1, V]."""
  verdict = verify_many(rule)(proposal, target_probs)
  counts = np.zeros(target_probs.shape, int)
  np.add.at(counts, (verdict.num_accepted, verdict.next_token), 1)
  return counts


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


@pytest.mark.parametrize('gamma', GAMMAS)
@pytest.mark.parametrize('vocab', VOCABS)
def test_output_law_is_the_targets(float64, vocab, gamma):
  for name, p, q in pairs(vocab, gamma):
    law = exact.output_law(token.RULE, p, q)
    assert_allclose(law, exact.joint(p), atol=1e-12, err_msg=name)


@pytest.mark.parametrize('gamma', GAMMAS)
def test_point_mass_drafts_need_no_probabilities(float64, gamma):
  for name, p, q in pairs(3, gamma):
    law = exact.output_law(token.RULE, p, point_masses(q), point=True)
    assert_allclose(law, exact.joint(p), atol=1e-12, err_msg=name)


@pytest.mark.parametrize('gamma', (1, 2, 4))
def test_padding_drafts_do_not_bend_the_law(float64, gamma):
  for length in range(gamma + 1):
    for name, p, q in pairs(3, gamma):
      lengths = np.full(3**gamma, length)
      law = exact.output_law(token.RULE, p, q, lengths)
      assert_allclose(law, exact.joint(p), atol=1e-12, err_msg=name)


def test_stopping_after_an_unlikely_draft_is_kept_is_unbiased(float64):
  # The draft that triggers the stop stays among the drafts.
  for name, p, q in pairs(3, 3):
    drafts = exact.paths(3, 3)
    rows = exact.along(q, drafts)
    chosen = np.take_along_axis(rows, drafts[..., None], -1)[..., 0]
    before = np.cumprod(chosen >= 0.2, -1)[:, :-1]
    law = exact.output_law(token.RULE, p, q, 1 + before.sum(-1))
    assert_allclose(law, exact.joint(p), atol=1e-12, err_msg=name)


def test_law_sums_to_one_and_is_empty_beyond_the_drafts(float64):
  for _, p, q in pairs(3, 3):
    drafts = exact.paths(3, 3)
    for length in range(4):
      lengths = np.full(len(drafts), length)
      law = exact.laws(
        token.RULE,
        drafts,
        exact.along(q, drafts),
        lengths,
        exact.along(p, drafts),
      )
      assert_allclose(law.sum((-1, -2)), 1, atol=1e-12)
      assert law.min() >= 0
      assert not law[:, length + 1 :].any()


@pytest.mark.parametrize(
  'rule', (rules.CORRECT_FROM_P, rules.ACCEPT_ARGMAX, rules.drop_unlikely(0.2))
)
def test_enumeration_rejects_a_wrong_rule(float64, rule):
  _, p, q = next(pairs(3, 2))
  error = exact.output_law(rule, p, q) - exact.joint(p)
  assert np.abs(error).max() > 1e-3


def test_enumeration_admits_sampling_from_p_and_matching(float64):
  for name, p, q in pairs(3, 2):
    law = exact.output_law(rules.MATCH, p, q)
    assert_allclose(law, exact.joint(p), atol=1e-12, err_msg=name)
    drafts = exact.paths(3, 2)
    law = exact.laws(
      rules.MATCH,
      drafts,
      exact.along(q, drafts),
      [2] * 9,
      exact.along(p, drafts),
    )
    weight = exact.joint(q).ravel()
    accept = weight @ law[:, 1:].sum((1, 2))
    assert_allclose(accept, p[0] @ q[0], atol=1e-12)


def test_dropping_an_unlikely_draft_gives_55_33_12(float64):
  p, q = np.array([0.5, 0.3, 0.2]), np.array([0.7, 0.2, 0.1])
  biased = exact.output_law(
    rules.drop_unlikely(0.15), [p, np.full((3, 3), 1 / 3)], [q]
  ).sum(-1)
  assert_allclose(biased, [0.55, 0.33, 0.12], atol=1e-12)
  counts = one_round(rules.drop_unlikely(0.15), p, q)
  # 200,000 rounds.
  assert exact.p_value(counts, biased) > 0.01
  assert exact.p_value(counts, p) < 1e-6


def test_argmax_draft_that_declares_its_softmax_gives_75_25_0(float64):
  p, q = np.array([0.3, 0.5, 0.2]), np.array([0.4, 0.35, 0.25])
  target = np.stack([p, p])[None]
  drafts, q = np.array([[0]], np.int32), q[None, None]
  declared = exact.laws(token.RULE, drafts, q, [1], target)[0]
  assert_allclose(
    [declared[1].sum(), *declared[0, 1:]], [0.75, 0.25, 0], atol=1e-12
  )
  honest = exact.laws(token.RULE, drafts, None, [1], target)[0]
  assert_allclose([honest[1].sum(), *honest[0, 1:]], p, atol=1e-12)


@pytest.mark.parametrize('length', (0, 1, 3))
@pytest.mark.parametrize('point', (False, True))
def test_verify_draws_what_law_says(length, point):
  # 200,000 keys; p-value above 0.01.
  proposal, p = three_drafts(length, length)
  # The second slot is always accepted, unless it declares a point mass.
  probs = None if point else proposal.probs.at[1].set(p[1])
  proposal = proposal._replace(probs=probs)
  counts = count_verdicts(token.RULE, proposal, p)
  assert exact.p_value(counts, token.law(proposal, p)) > 0.01


@pytest.mark.parametrize('rule', (rules.CORRECT_FROM_P, rules.ACCEPT_ARGMAX))
def test_chi_square_rejects_a_wrong_rule(rule):
  # 200,000 keys, the same test as above; a wrong rule matches its own law.
  proposal, p = three_drafts(3)
  counts = count_verdicts(rule, proposal, p)
  assert exact.p_value(counts, rule.law(proposal, p)) > 0.01
  assert exact.p_value(counts, token.law(proposal, p)) < 1e-6


def test_draft_noise_is_not_used_again_for_the_correction():
  # 200,000 rounds; the residual has two tokens, so that noise can steer it.
  p, q = [0.2, 0.3, 0.4, 0.1], [0.55, 0.15, 0.1, 0.2]
  assert exact.p_value(one_round(token.RULE, p, q), np.array(p)) > 0.01
  for rule in (rules.REUSE_NOISE, rules.CORRECT_FROM_P, rules.ACCEPT_ARGMAX):
    assert exact.p_value(one_round(rule, p, q), np.array(p)) < 1e-6


def test_equal_models_are_accepted_in_every_one_of_200000_rounds():
  proposal, p = three_drafts(5)
  proposal = proposal._replace(probs=p[:3])
  verdict = verify_many(token.RULE)(proposal, p)
  assert_array_equal(verdict.num_accepted, 3)
  assert np.isfinite(token.law(proposal, p)).all()
  assert_array_equal(sampling.residual(p, p), p)


def test_temperature_0_on_both_sides_emits_the_targets_argmax():
  logits = jnp.log(jnp.array([[[0.3, 0.5, 0.2, 0]], [[0.4, 0.35, 0.25, 0]]]))
  p, q = sampling.transform(logits, sampling.params(2, temperature=0))
  proposal = Proposal(
    jnp.array([0, 0, 0], jnp.int32), jnp.repeat(q, 3, 0), jnp.int32(1)
  )
  verdict = verify_many(token.RULE)(proposal, jnp.repeat(p, 4, 0))
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
  assert_allclose(got, rest / rest.sum(), rtol=1e-6)
