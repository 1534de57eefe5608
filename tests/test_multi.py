"""Several candidates at one position: laws by enumeration, draws against them.

The exact tests visit every tuple of candidates of 36 pairs (p, q) for each of
V = 2..5, dense, sparse, equal, disjoint, tied, sharp, nearly equal and tiny.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize

from specdec import exact, rng, simulation
from specdec.base import UsageError
from specdec.verify.multi import MULTI_RULES, candidates, k_seq, optimum

NAMES = tuple(MULTI_RULES)
DRAWN = ('with_replacement', 'without_replacement', 'k_seq')
VOCABS = (2, 3, 4, 5)
KS = (1, 2, 3)
P = np.array([0.50, 0.20, 0.15, 0.10, 0.05])
Q = np.array([0.38, 0.25, 0.20, 0.10, 0.07])
# A pair that leaves something to correct after three candidates.
SKEW = [0.05, 0.4, 0.3, 0.2, 0.05], [0.4, 0.1, 0.15, 0.1, 0.25]
# Compiling takes the time here, not running: half of it is saved.
QUICK = {
  'xla_backend_optimization_level': 0,
  'xla_llvm_disable_expensive_passes': True,
}


@functools.cache
def pairs(vocab):
  """Pairs of target and draft, each float64 [36, V]."""
  draws = np.random.default_rng(vocab)

  def random(concentration=1.0):
    return draws.dirichlet(np.full(vocab, concentration))

  def sparse():
    return exact.tree(draws, vocab, 1, zeros=0.5)[0]

  def fourths():
    return draws.multinomial(4, np.full(vocab, 1 / vocab)) / 4

  def near(p, width):
    q = p * (1 + width * draws.standard_normal(vocab))
    return q / q.sum()

  def tiny(power):
    weights = random() * 10.0 ** (-power * draws.integers(0, 2, vocab))
    return weights / weights.sum()

  points = np.eye(vocab)
  even = points[::2].sum(0)
  rows = [(random(), random()) for _ in range(8)]
  rows += [(random(0.1), random(0.1)) for _ in range(6)]
  rows += [(sparse(), sparse()) for _ in range(6)]
  rows += [(fourths(), fourths()) for _ in range(5)]
  rows += [(p, p) for p in (random(), sparse())]
  rows += [(p, near(p, w)) for p, w in ((random(), 1e-9), (random(), 1e-15))]
  rows += [(tiny(12), tiny(12)), (tiny(300), tiny(300))]
  rows += [(points[0], random()), (random(), points[-1])]
  rows += [(points[1], points[1]), (points[0], points[1])]
  rows += [(even / even.sum(), (1 - even) / (1 - even).sum())]
  if vocab == 5:
    rows[:2] = (P, Q), SKEW
  p, q = np.array(rows).swapaxes(0, 1)
  return p, q


@functools.cache
def enumerations(name, vocab):
  """For each k: prob [36, N], law [36, N, K+1, V] and bound [36].

  N are all tuples of candidates, in the order of `candidates.every`.
  """

  def one(k, p, q):
    rule, tuples = MULTI_RULES[name](k), candidates.every(vocab, k)
    prob = jax.vmap(rule.prob, (0, None))(tuples, q)
    law = jax.vmap(rule.law, (0, None, None))(tuples, p, q)
    return prob, law, optimum.optimum(rule.prob, p, q, k)

  @functools.partial(jax.jit, compiler_options=QUICK)
  @jax.vmap
  def run(p, q):
    return {k: one(k, p, q) for k in KS}

  with jax.enable_x64(True):
    return jax.tree.map(np.asarray, run(*pairs(vocab)))


def enumeration(name, vocab, k):
  return enumerations(name, vocab)[k]


def acceptance(name, vocab, k):
  """P(one of the candidates is accepted), [36]."""
  prob, law, _ = enumeration(name, vocab, k)
  return np.einsum('cn,cnix->c', prob, law[:, :, :k])


def one_draw(rule, key, p, q):
  draw_key, verify_key = jax.random.split(key)
  drawn = rule.draw(draw_key, q)
  return drawn, rule.verify(verify_key, drawn, p, q)


@functools.cache
def many(rule):
  """Three candidates and the choice among them, under 50,000 keys."""

  @functools.partial(jax.jit, compiler_options=QUICK)
  def run(p, q):
    keys = rng.sequence_keys(3, 50_000)
    return jax.vmap(one_draw, (None, 0, None, None))(rule, keys, p, q)

  return lambda p, q: run(jnp.float32(p), jnp.float32(q))


@functools.cache
def three(name):
  """The rule of three candidates, built once, so that it is compiled once."""
  return MULTI_RULES[name](3)


def cells(drawn, judged, correction=None):
  """P(candidates, index, token) at SKEW, [N, 4, V], of three candidates.

  Args:
    drawn: the rule that draws.
    judged: the rule that judges.
    correction: what the last token is drawn from, if not by the rule.
  """
  prob, law = enumeration(drawn, 5, 3)[0][1], enumeration(judged, 5, 3)[1][1]
  if correction is not None:
    end = law[:, -1:].sum(-1, keepdims=True) * np.array(correction)
    law = np.concatenate([law[:, :-1], end], 1)
  return prob[:, None, None] * law


def count_cells(rule):
  """How often each of them comes out in 50,000 draws."""
  drawn, choice = many(rule)(*SKEW)
  counts = np.zeros((6, 6, 6, 4, 5), int)
  where = (*(np.asarray(drawn).T + 1), choice.index, choice.token)
  np.add.at(counts, where, 1)
  return counts.reshape(-1, 4, 5)


@pytest.mark.parametrize(
  'name, rates',
  (
    ('with_replacement', (0.88, 0.9256, 0.953872)),
    ('without_replacement', (0.88, 0.937255, 0.975666)),
    ('top_k', (0.5, 0.7, 0.85)),
    ('k_seq', (0.88, 0.957936, 0.987759)),
  ),
)
def test_acceptance_of_a_known_pair(name, rates):
  for k, rate in zip(KS, rates, strict=True):
    assert_allclose(acceptance(name, 5, k)[0], rate, atol=5e-7)


def test_optimum_of_a_known_pair(float64):
  for k, rate in zip(KS, (0.88, 1, 1), strict=True):
    assert_allclose(optimum.optimum_independent(P, Q, k), rate, atol=1e-12)
    bound = enumeration('with_replacement', 5, k)[2]
    assert_allclose(bound[0], rate, atol=1e-12)


@pytest.mark.parametrize('vocab', VOCABS)
@pytest.mark.parametrize('name', NAMES)
def test_output_law_is_the_targets(name, vocab):
  p, _ = pairs(vocab)
  for k in KS:
    prob, law, _ = enumeration(name, vocab, k)
    assert_allclose(prob.sum(-1), 1, atol=1e-12)
    # Candidates that are never drawn have a law too.
    assert law.min() >= 0
    assert_allclose(law.sum((-1, -2)), 1, atol=1e-12)
    output = np.einsum('cn,cnix->cx', prob, law)
    assert_allclose(output, p, atol=1e-12, err_msg=f'k = {k}')


@pytest.mark.parametrize('vocab', VOCABS)
@pytest.mark.parametrize('name', NAMES)
def test_no_rule_accepts_more_than_the_optimum(name, vocab):
  p, q = pairs(vocab)
  for k in KS:
    rate, bound = acceptance(name, vocab, k), enumeration(name, vocab, k)[2]
    assert (rate <= bound + 1e-12).all()
    if name == 'top_k':
      assert_allclose(rate, bound, atol=1e-12)
    elif k == 1:
      assert_allclose(rate, bound, atol=1e-12)
      assert_allclose(bound, np.minimum(p, q).sum(-1), atol=1e-12)
    if name == 'k_seq':
      # SpecTr's guarantee.
      assert (rate >= (1 - (1 - 1 / k) ** k) * bound - 1e-12).all()


@pytest.mark.parametrize('vocab', VOCABS)
def test_one_sort_finds_the_best_subset(float64, vocab):
  for k in KS:
    fast = optimum.optimum_independent(*pairs(vocab), k)
    slow = enumeration('with_replacement', vocab, k)[2]
    assert_allclose(fast, slow, atol=1e-12)


def test_one_sort_finds_the_best_of_1024_subsets(float64):
  draws = np.random.default_rng(0)
  p, q = draws.dirichlet(np.ones(10), (2, 50))
  subsets = np.array([*itertools.product((0, 1), repeat=10)])
  for k in (2, 5):
    values = p @ subsets.T - (q @ subsets.T) ** k
    bound = 1 + values.min(-1)
    assert (bound < 1).sum() > 5  # there is something to find
    fast = optimum.optimum_independent(p, q, k)
    assert_allclose(fast, bound, atol=1e-12)


@pytest.mark.parametrize(
  'name', ('with_replacement', 'without_replacement', 'top_k')
)
def test_optimum_is_that_of_the_linear_programme(name):
  vocab, k = 4, 2
  p, _ = pairs(vocab)
  prob, _, bound = enumeration(name, vocab, k)
  tuples = candidates.every(vocab, k)
  hits = (tuples[:, :, None] == np.arange(vocab)).any(1).astype(float)
  # A coupling [N, V] of candidates and token: its margins are prob and p.
  rows = np.kron(np.eye(len(tuples)), np.ones(vocab))
  columns = np.tile(np.eye(vocab), len(tuples))
  for c in range(len(p)):
    best = optimize.linprog(
      -hits.ravel(),
      A_eq=np.vstack([rows, columns]),
      b_eq=np.concatenate([prob[c], p[c]]),
    )
    assert best.success
    assert_allclose(bound[c], -best.fun, atol=1e-8)


def test_rho_is_the_least_that_solves_spectrs_equation(float64):
  p, q = pairs(5)
  solve = functools.partial(k_seq.least_rho, most=3)
  rhos = jax.vmap(jax.vmap(solve, (0, 0, None)), (None, None, 0))(
    p, q, np.array(KS)
  )
  for k, rho in zip(KS, np.asarray(rhos), strict=True):
    beta = np.minimum(p / rho[:, None], q).sum(-1)
    assert ((rho >= 1) & (rho <= k)).all()
    assert_allclose(1 - (1 - beta) ** k, rho * beta, atol=1e-12)
    # A little less, and the accepted mass exceeds p.
    less = rho - 1e-6
    beta = np.minimum(p / less[:, None], q).sum(-1)
    inner = (rho > 1 + 1e-6) & (beta > 1e-3)
    assert k == 1 or inner.any()
    assert (1 - (1 - beta) ** k > less * beta)[inner].all()


@pytest.mark.parametrize('name', NAMES)
def test_draw_and_verify_follow_prob_and_law(name):
  # 50,000 draws; p-values above 0.01.
  counts = count_cells(three(name))
  assert simulation.p_value(counts, cells(name, name)) > 0.01
  assert simulation.p_value(counts.sum((0, 1)), np.array(SKEW[0])) > 0.01
  # Wrong: the correction is drawn from p instead of what is left of it.
  wrong = cells(name, name, correction=SKEW[0])
  assert simulation.p_value(counts, wrong) < 1e-6
  assert np.abs(wrong.sum((0, 1)) - SKEW[0]).max() > 1e-3


def test_distinct_candidates_judged_as_independent_ones_are_biased():
  # 50,000 draws, which follow their own wrong law: p-value above 0.01.
  distinct, judge = three('without_replacement'), three('with_replacement')
  law = cells('without_replacement', 'with_replacement')
  assert np.abs(law.sum((0, 1)) - SKEW[0]).max() > 1e-3
  counts = count_cells(judge._replace(draw=distinct.draw))
  assert simulation.p_value(counts, law) > 0.01
  assert simulation.p_value(counts.sum((0, 1)), np.array(SKEW[0])) < 1e-6


def test_a_token_without_target_mass_is_rejected_even_at_u_0(monkeypatch):
  monkeypatch.setattr(
    jax.random, 'uniform', lambda key, shape, dtype: jnp.zeros(shape, dtype)
  )
  p, q = jnp.float32([0, 0.4, 0.6]), jnp.float32([0.7, 0.2, 0.1])
  drawn = jnp.int32([[0, 1], [1, 0], [0, 0]])
  verify = MULTI_RULES['with_replacement'](2).verify
  verify = jax.vmap(verify, (None, 0, None, None))
  verify = jax.jit(verify, compiler_options=QUICK)
  choice = verify(jax.random.key(0), drawn, p, q)
  assert_array_equal(choice.index, [1, 0, 2])
  assert (choice.token > 0).all()


def test_without_replacement_stops_at_the_end_of_the_support():
  # 50,000 draws of three candidates, of which q has but two.
  p, q = [0.4, 0.2, 0.1, 0.2, 0.1], [0, 0.9, 0, 0.1, 0]
  drawn, choice = many(three('without_replacement'))(p, q)
  assert_array_equal(np.sort(drawn, -1), [[-1, 1, 3]] * 50_000)
  assert_array_equal(drawn[:, 2], -1)
  # None is never accepted, and what q lacks is still put out.
  assert_array_equal(np.unique(choice.index), [0, 1, 3])
  assert_array_equal(np.unique(choice.token), range(5))


def test_top_k_ends_with_the_support_or_the_vocabulary():
  for q, expected in (
    ([0.2, 0.3, 0.2, 0.3], [1, 3, 0, 2, -1]),  # ties: the lowest id first
    ([0, 1, 0, 0], [1, -1, -1, -1, -1]),
  ):
    drawn = MULTI_RULES['top_k'](5).draw(None, jnp.float32(q))
    assert_array_equal(drawn, expected)


@pytest.mark.parametrize('vocab', (2, 5))
@pytest.mark.parametrize('name', NAMES)
def test_a_missing_candidate_makes_k_smaller(name, vocab):
  wide, tuples = enumeration(name, vocab, 3)[1], candidates.every(vocab, 3)
  for kept in ((0,), (2,), (0, 1), (0, 2), (1, 2)):
    missing = np.setdiff1d(range(3), kept)
    alike = (tuples[:, missing] == -1).all(-1)  # in the order of `every`
    law = wide[:, alike][:, :, [*kept, 3]]
    assert not wide[:, alike][:, :, missing].any()
    narrow = enumeration(name, vocab, len(kept))[1]
    assert_allclose(law, narrow, atol=1e-12)


@pytest.mark.parametrize('name', NAMES)
def test_float32_is_finite_and_close(name):
  rule, tuples = MULTI_RULES[name](2), candidates.every(3, 2)

  @functools.partial(jax.jit, compiler_options=QUICK)
  @jax.vmap
  def run(p, q):
    prob = jax.vmap(rule.prob, (0, None))(tuples, q)
    return prob, jax.vmap(rule.law, (0, None, None))(tuples, p, q)

  p, q = pairs(3)
  prob, law = map(np.asarray, run(jnp.float32(p), jnp.float32(q)))
  assert law.dtype == np.float32
  assert np.isfinite(law).all()
  assert_allclose(np.einsum('cn,cnix->cx', prob, law), p, atol=1e-6)


@pytest.mark.parametrize('name', DRAWN)
def test_equal_models_always_accept_the_first_candidate(name):
  # In float32, where a thousand probabilities do not sum to 1 exactly.
  law = jax.vmap(MULTI_RULES[name](8).law, (0, None, None))
  law = jax.jit(law, compiler_options=QUICK)
  tokens = np.arange(0, 1000, 10, dtype=np.int32)
  drawn = np.broadcast_to(tokens[:, None], (100, 8))
  q = np.random.default_rng(0).dirichlet(np.ones(1000)).astype(np.float32)
  for total in (0.99999, 1.00001):
    p = q * np.float32(total)
    assert_array_equal(law(drawn, p, p)[np.arange(100), 0, tokens], 1)


@pytest.mark.parametrize('name', ('with_replacement', 'without_replacement'))
def test_alone_is_as_in_a_batch_and_no_key_is_used_twice(name):
  p, q = map(jnp.float32, SKEW)
  drawn, choice = many(three(name))(p, q)
  with jax.debug_key_reuse(True):
    run = functools.partial(one_draw, three(name))
    alone = jax.jit(run, compiler_options=QUICK)
    for i, key in enumerate(rng.sequence_keys(3, 5)):
      again, one = alone(key, p, q)
      assert_array_equal(again, drawn[i])
      assert (one.index, one.token) == (choice.index[i], choice.token[i])


@pytest.mark.parametrize('name', NAMES)
def test_no_candidates_at_all_is_a_usage_error(name):
  with pytest.raises(UsageError, match='k = 0'):
    MULTI_RULES[name](0)
