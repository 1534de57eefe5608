"""What every verification rule owes: its law, and draws that follow it."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from specdec import exact, simulation
from specdec.base import Proposal, UsageError
from specdec.drafters.policies import confidence, entropy, fixed
from specdec.verify import (
  RULES,
  block,
  controls,
  coupled,
  lenient,
  lossy_rules,
  mentored,
  sample_match,
  token,
  typical,
)

LOSSY = lossy_rules(epsilon=0.3, delta=0.6)
EVERY_RULE = pytest.mark.parametrize('rule', RULES.values(), ids=RULES)
EVERY_LAW = pytest.mark.parametrize(
  'rule', (RULES | LOSSY).values(), ids=RULES | LOSSY
)
FIXED = fixed.build(3)
# The table of the paper on block verification.
TOY_P, TOY_Q = np.array([1, 2]) / 3, np.array([2, 1]) / 3


def pairs(vocab, gamma, seed=0):
  draws = np.random.default_rng([seed, vocab, gamma])
  return exact.pairs(draws, vocab, gamma)


def check_output(rule, p, q, name, lengths=None, point=False):
  law = exact.path_laws(rule, exact.paths(p, q), lengths, point)
  output = exact.output_law(law, p, q)
  assert_allclose(output, exact.joint(p), atol=1e-12, err_msg=name)


@EVERY_RULE
@pytest.mark.parametrize('vocab, gamma', ((2, 4), (3, 0), (3, 2), (5, 3)))
def test_output_law_is_the_targets(float64, rule, vocab, gamma):
  for name, p, q in pairs(vocab, gamma):
    check_output(rule, p, q, name)


@EVERY_RULE
def test_point_mass_drafts_need_no_probabilities(float64, rule):
  for name, p, q in pairs(3, 2):
    check_output(rule, p, exact.point_masses(q), name, point=True)


@EVERY_RULE
def test_padding_drafts_do_not_bend_the_law(float64, rule):
  for length in (0, 1):
    for name, p, q in pairs(3, 2):
      check_output(rule, p, q, name, np.full(9, length))


@EVERY_RULE
@pytest.mark.parametrize(
  'policy',
  (FIXED, confidence.build(3, 0.3), entropy.build(3, 0.3, 0.5)),
  ids=('fixed', 'confidence', 'entropy'),
)
def test_an_early_stop_that_keeps_its_token_is_lossless(float64, rule, policy):
  ragged = 0
  for name, p, q in pairs(3, 3):
    lengths = exact.draft_lengths(policy, exact.paths(p, q))
    check_output(rule, p, q, name, lengths)
    ragged += len(set(lengths)) > 1
  assert ragged or policy.before is FIXED.before and policy.after is FIXED.after


@EVERY_LAW
def test_law_without_drafts_is_the_targets(float64, rule):
  for _, p, q in pairs(3, 0):
    law = exact.path_laws(rule, exact.paths(p, q))
    assert_allclose(law, p[0][None, None], atol=1e-12)


@EVERY_LAW
def test_law_is_a_law_and_is_empty_beyond_the_drafts(float64, rule):
  for _, p, q in pairs(3, 3):
    for length in range(4):
      law = exact.path_laws(rule, exact.paths(p, q), np.full(27, length))
      # Drafts that q never draws may have any law.
      law = law[exact.joint(q).ravel() > 0]
      assert_allclose(law.sum((-1, -2)), 1, atol=1e-12)
      assert law.min() >= 0
      assert not law[:, length + 1 :].any()


def three_drafts(seed, length=3):
  """A proposal of three drafts over four tokens, and the target's rows."""
  draws = np.random.default_rng(seed)
  p, q = draws.dirichlet(np.ones(4), 4), draws.dirichlet(np.ones(4), 3)
  tokens = jnp.array([1, 2, 0], jnp.int32)
  proposal = Proposal(tokens, jnp.float32(q), jnp.int32(length))
  return proposal, jnp.float32(p)


@pytest.mark.parametrize(
  'name', [name for name in RULES | LOSSY if name != 'coupled']
)
@pytest.mark.parametrize('length, point', ((3, False), (2, False), (3, True)))
def test_verify_draws_what_law_says(name, length, point):
  # 100,000 keys, p-value above 0.01. The draws of `coupled` follow its law
  # only when the drafts run the same race; see test_coupled.
  rule = (RULES | LOSSY)[name]
  proposal, p = three_drafts(length, length)
  proposal = proposal._replace(probs=None if point else proposal.probs)
  counts = simulation.count_verdicts(rule, proposal, p)
  assert simulation.p_value(counts, rule.law(proposal, p)) > 0.01


@pytest.mark.parametrize(
  'rule',
  (
    controls.CORRECT_FROM_P,
    controls.ACCEPT_ARGMAX,
    controls.drop_unlikely(0.2),
    *LOSSY.values(),
  ),
)
def test_enumeration_rejects_a_rule_that_is_not_lossless(float64, rule):
  _, p, q = next(pairs(3, 2))
  output = exact.output_law(exact.path_laws(rule, exact.paths(p, q)), p, q)
  assert np.abs(output - exact.joint(p)).max() > 1e-3
  assert not rule.lossless


@pytest.mark.parametrize('gamma', (1, 2, 3, 4))
def test_expected_accepted_of_the_toy_pair(float64, gamma):
  p, q = _constant(TOY_P, gamma + 1), _constant(TOY_Q, gamma)
  token_means = (2 / 3, 10 / 9, 38 / 27, 130 / 81)
  block_means = (2 / 3, 11 / 9, 45 / 27, 166 / 81)
  for rule, means in ((token.RULE, token_means), (block.RULE, block_means)):
    got = exact.expected_accepted(exact.path_laws(rule, exact.paths(p, q)), q)
    assert_allclose(got, means[gamma - 1], atol=1e-12)


@pytest.mark.parametrize('vocab, gamma', ((2, 4), (3, 3)))
def test_block_accepts_at_least_what_token_does_and_at_most_the_bound(
  float64, vocab, gamma
):
  more = 0
  for name, p, q in pairs(vocab, gamma):
    means = [
      exact.expected_accepted(exact.path_laws(rule, exact.paths(p, q)), q)
      for rule in (token.RULE, block.RULE)
    ]
    bound = exact.accepted_bound(p, q)
    assert means[0] <= means[1] + 1e-12, name
    assert means[1] <= bound + 1e-12, name
    more += means[1] > means[0] + 1e-6
  assert more  # somewhere it is strictly better


def test_block_equals_token_for_point_mass_drafts(float64):
  for name, p, q in pairs(3, 3):
    q = exact.point_masses(q)
    laws = [
      exact.path_laws(rule, exact.paths(p, q), point=True)
      for rule in (token.RULE, block.RULE)
    ]
    weight = exact.joint(q).ravel() > 0
    assert_allclose(laws[0][weight], laws[1][weight], atol=1e-12, err_msg=name)


def test_sample_match_accepts_sum_p_q(float64):
  for name, p, q in pairs(3, 1):
    law = exact.path_laws(sample_match.RULE, exact.paths(p, q))
    accept = exact.expected_accepted(law, q)
    assert_allclose(accept, p[0] @ q[0], atol=1e-12, err_msg=name)


def test_coupled_accepts_by_the_closed_form(float64):
  for name, p, q in pairs(5, 1):
    law = exact.path_laws(coupled.RULE, exact.paths(p, q))
    some = (p[0] > 0) & (q[0] > 0)
    ratios = [
      np.maximum(p[0] / p[0][i], q[0] / q[0][i]).sum()
      for i in some.nonzero()[0]
    ]
    expected = sum(1 / ratio for ratio in ratios)
    accept = exact.expected_accepted(law, q)
    assert_allclose(accept, expected, atol=1e-12, err_msg=name)


def test_lenience_bounds_every_token_by_p_over_lenience(float64):
  for name, p, q in pairs(5, 1):
    rule = lenient.build(0.5)
    output = exact.output_law(
      exact.path_laws(rule, exact.paths(p, q)), p, q
    ).sum(-1)
    assert (output <= p[0] / 0.5 + 1e-12).all(), name
    strict = exact.path_laws(lenient.build(1.0), exact.paths(p, q))
    assert_allclose(
      strict, exact.path_laws(token.RULE, exact.paths(p, q)), atol=1e-12
    )


def test_mentored_spends_its_budget_and_no_more(float64):
  spent = 0
  for name, p, q in pairs(5, 1):
    for budget in (0.01, 0.2):
      r = np.asarray(mentored.mentor(jnp.array(p[0]), jnp.array(q[0]), budget))
      divergence = (
        r * np.log(np.where(r > 0, r, 1) / np.where(p[0] > 0, p[0], 1))
      ).sum()
      assert_allclose(r.sum(), 1, atol=1e-12)
      assert (r >= 0).all() and not r[p[0] == 0].any(), name
      assert divergence <= budget + 1e-9, name
      gain = np.minimum(r, q[0]).sum() - np.minimum(p[0], q[0]).sum()
      assert gain >= -1e-12, name
      # Either the budget is spent, or r accepts all that can be accepted.
      whole = np.minimum(r, q[0]).sum() >= q[0][p[0] > 0].sum() - 1e-6
      assert whole or divergence > budget - 1e-4, name
      spent += divergence > budget - 1e-4
  assert spent > 3


def test_mentored_is_optimal_on_a_grid_of_laws(float64):
  p, q, budget = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5]), 0.1
  r = np.asarray(mentored.mentor(jnp.array(p), jnp.array(q), budget))
  grid = np.arange(1, 400) / 400
  a, b = (x.ravel() for x in np.meshgrid(grid, grid))
  laws = np.stack([a, b, 1 - a - b], -1)[a + b < 1]
  fits = (laws * np.log(laws / p)).sum(-1) <= budget
  best = np.minimum(laws[fits], q).sum(-1).max()
  assert best <= np.minimum(r, q).sum() + 1e-9
  assert np.minimum(r, q).sum() < best + 0.01


@pytest.mark.parametrize(
  'build, field',
  (
    (lambda: lenient.build(0), 'lossy.lenience = 0'),
    (lambda: typical.build(1.5, 0.3), 'lossy.epsilon = 1.5'),
    (lambda: typical.build(0.1, 0), 'lossy.delta = 0'),
    (lambda: mentored.build(-1), 'lossy.kl_budget = -1'),
    (lambda: confidence.build(3, 2), 'stopping.threshold = 2'),
    (lambda: entropy.build(3, -1, 0.5), 'stopping.scale = -1'),
  ),
)
def test_a_strength_out_of_range_is_named(build, field):
  with pytest.raises(UsageError, match=field):
    build()


def _constant(row, depth):
  """A tree whose levels are all `row`."""
  vocab = row.size
  return [np.broadcast_to(row, (vocab,) * (d + 1)) for d in range(depth)]
