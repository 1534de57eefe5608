"""Losses: golden numbers, identities, and gradients that stay finite."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec import theory
from specdec.base import UsageError
from specdec.train import losses

INF = np.inf
ROWS, VOCAB = 64, 6
# Of two distributions; cross_entropy takes labels.
DIVERGENCES = {k: f for k, f in losses.LOSSES.items() if k != 'cross_entropy'}
PROPER = [k for k in DIVERGENCES if k != 'top_k_kl']  # at least 0

# Target, draft; the last draft cannot say token 1.
P = np.array([0.5, 0.3, 0.2, 0.0])
Q = np.array([0.4, 0.1, 0.25, 0.25])
PARTIAL = np.array([0.5, 0.0, 0.25, 0.25])


def log(x):
  with np.errstate(divide='ignore'):
    return np.log(x)


@functools.cache
def compiled(name):
  """A loss and the gradient of its sum."""

  def value(logits, probs):
    each = losses.LOSSES[name](logits, probs)
    return jnp.sum(each), each

  return jax.jit(jax.value_and_grad(value, has_aux=True))


def run(name, logits, target):
  """Values [N] and gradients [N, V]; rows are filled up, to compile once."""
  rows = np.minimum(np.arange(ROWS), len(logits) - 1)
  (_, each), slope = compiled(name)(jnp.array(logits[rows]), target[rows])
  return np.asarray(each)[: len(logits)], np.asarray(slope)[: len(logits)]


def value(name, logits, target):
  return run(name, logits, target)[0]


def gradient(name, logits, target):
  return run(name, logits, target)[1]


def random_pair(seed, zeros=0.0):
  """Draft logits and target probs; some of each are -inf and 0."""
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(ROWS, VOCAB)) * 2
  probs = rng.dirichlet(np.ones(VOCAB), ROWS)
  probs = np.where(rng.random(probs.shape) < zeros, 0, probs)
  probs[:, 0] += probs.sum(-1) == 0
  logits = np.where(rng.random(logits.shape) < zeros, -INF, logits)
  logits[:, 0] = 0.0
  return logits, probs / probs.sum(-1, keepdims=True)


def test_golden_numbers(float64):
  # By hand, of P and Q: alpha = .4 + .1 + .2 = .7.
  kl = 0.5 * math.log(1.25) + 0.3 * math.log(3) + 0.2 * math.log(0.8)
  top_two = 0.5 * math.log(1.25) + 0.3 * math.log(3)
  reverse = (
    0.4 * math.log(0.8)
    + 0.1 * math.log(1 / 3)
    + 0.25 * math.log(1.25)
    + 0.25 * math.log(0.25 / losses.FLOOR)
  )
  m = np.array([0.45, 0.2, 0.225, 0.125])
  js = (
    0.5 * math.log(0.5 / 0.45)
    + 0.3 * math.log(1.5)
    + 0.2 * math.log(0.2 / 0.225)
    + np.sum(Q * np.log(Q / m))
  ) / 2
  weight = math.exp(-3 * 0.7)
  golden = {
    'forward_kl': kl,
    'reverse_kl': reverse,
    'jensen_shannon': js,
    'total_variation': 0.3,
    'neg_log_acceptance': -math.log(0.7),
    'lk_hybrid': weight * kl + (1 - weight) * 0.3,
    'top_k_kl': kl,
  }
  # Logits have no origin.
  logits = jnp.array(log(Q) + 7)[None]
  probs = jnp.array(P)[None]
  for name, want in golden.items():
    assert_allclose(losses.LOSSES[name](logits, probs), [want], rtol=1e-12)
  assert_allclose(losses.top_k_kl(logits, probs, k=2), [top_two], rtol=1e-12)
  labels = jnp.array([[0, 1, 3]])
  assert_allclose(
    losses.cross_entropy(jnp.tile(logits[:, None], (1, 3, 1)), labels),
    -np.log([[0.4, 0.1, 0.25]]),
    rtol=1e-12,
  )


def test_golden_numbers_of_a_draft_that_cannot_say_a_token(float64):
  # alpha = .5 + .2; p on the draft's support is (5/7, 2/7, 0).
  kl = 5 / 7 * math.log(10 / 7) + 2 / 7 * math.log(8 / 7)
  weight = math.exp(-3 * 0.7)
  golden = {
    'forward_kl': kl,
    'reverse_kl': 0.25 * math.log(1.25) + 0.25 * math.log(0.25 / losses.FLOOR),
    'jensen_shannon': 0.5 * 0.3 * math.log(2)
    + 0.5 * (0.2 * math.log(0.2 / 0.225) + 0.25 * math.log(0.25 / 0.225))
    + 0.5 * 0.25 * math.log(2),
    'total_variation': 0.3,
    'neg_log_acceptance': -math.log(0.7),
    'lk_hybrid': weight * kl + (1 - weight) * 0.3,
    'top_k_kl': 0.2 * math.log(0.2 / 0.25),
  }
  logits, probs = jnp.array(log(PARTIAL))[None], jnp.array(P)[None]
  for name, want in golden.items():
    found = losses.LOSSES[name](logits, probs)
    assert_allclose(found, [want], rtol=1e-12, err_msg=name)
  assert losses.cross_entropy(logits, jnp.array([1])) == 0


@pytest.mark.parametrize('name', losses.LOSSES)
def test_gradients_equal_finite_differences(name, float64):
  logits, target = random_pair(0, zeros=0.25)
  if name == 'cross_entropy':
    target = np.arange(ROWS) % VOCAB
  found, step = gradient(name, logits, target), 1e-6
  assert np.abs(found).max() > 0.01
  for token in range(VOCAB):
    nudge = step * np.eye(VOCAB)[token]
    above = value(name, logits + nudge, target)
    below = value(name, logits - nudge, target)
    slope = (above - below) / (2 * step)
    if name == 'lk_hybrid':  # its weight is held fixed
      weight = np.exp(-3 * (1 - value('total_variation', logits, target)))
      slope = weight * slope_of('forward_kl', logits, target, nudge) + (
        1 - weight
      ) * slope_of('total_variation', logits, target, nudge)
    assert_allclose(found[:, token], slope, atol=1e-7)
  assert_array_equal(found[logits == -INF], 0)


def slope_of(name, logits, target, nudge):
  above = value(name, logits + nudge, target)
  below = value(name, logits - nudge, target)
  return (above - below) / (2 * nudge.max())


def test_the_hybrids_weight_is_no_way_to_lower_the_loss(float64):
  # With a weight that is differentiated the gradient would be another.
  logits, target = random_pair(1)
  nudge = 1e-6 * np.eye(VOCAB)[0]
  whole = slope_of('lk_hybrid', logits, target, nudge)
  found = gradient('lk_hybrid', logits, target)[:, 0]
  assert np.abs(found - whole).max() > 1e-3


# Rows of one batch: what has made losses or their gradients infinite.
NASTY = {
  'p and q are disjoint': ([0, 0, -INF, -INF], [0, 0, 0.5, 0.5]),
  'the draft can say nothing': ([-INF] * 4, [0.1, 0.2, 0.3, 0.4]),
  'the draft can say one token': ([-INF, 3, -INF, -INF], [0.1, 0.2, 0.3, 0.4]),
  'the target is a point mass': ([1, 2, 3, -INF], [0, 1, 0, 0]),
  'on a token the draft cannot say': ([1, 2, 3, -INF], [0, 0, 0, 1]),
  'both are the same point mass': ([0, -INF, -INF, -INF], [1, 0, 0, 0]),
  'q underflows where p is': ([0, -200, -300, -400], [0, 0.2, 0.3, 0.5]),
  'q underflows where p is not': ([0, -200, -300, -400], [1, 0, 0, 0]),
  'masks of huge numbers': ([0, -1e30, -3e38, 1], [0.25, 0.25, 0.25, 0.25]),
  'huge logits': ([1e30, 1e30, 0, -1e30], [0.25, 0.25, 0.25, 0.25]),
  'p underflows': ([0, 0, 0, 0], [1, 1e-38, 1e-45, 0]),
  'equal bit for bit': (
    np.log([0.25] * 4).tolist(),
    [0.25] * 4,
  ),
}


@pytest.mark.parametrize('name', losses.LOSSES)
def test_values_and_gradients_are_finite_in_every_nasty_case(name):
  logits = np.array([row for row, _ in NASTY.values()], np.float32)
  target = np.array([row for _, row in NASTY.values()], np.float32)
  if name == 'cross_entropy':
    target = np.full(len(NASTY), 2)
  found, slope = value(name, logits, target), gradient(name, logits, target)
  for row, case in enumerate(NASTY):
    assert np.isfinite(found[row]), f'{case}: {found[row]}'
    assert np.isfinite(slope[row]).all(), f'{case}: {slope[row]}'
  # What cannot be said cannot be learnt.
  assert_array_equal(slope[logits == -INF], 0)


def test_a_plain_kl_would_fail_the_same_cases():
  # The negative control.
  def plain(logits, probs):
    log_q = jax.nn.log_softmax(logits, -1)
    each = jnp.sum(probs * (jnp.log(probs) - log_q), -1)
    return jnp.sum(each), each

  logits, probs = zip(*NASTY.values(), strict=True)
  (_, each), slope = jax.jit(jax.value_and_grad(plain, has_aux=True))(
    jnp.array(logits), jnp.array(probs)
  )
  assert (~np.isfinite(each)).sum() >= 5
  assert not np.isfinite(slope).all()


@pytest.mark.parametrize('name', losses.LOSSES)
def test_a_nan_of_the_draft_is_not_hidden(name):
  target = np.array([2]) if name == 'cross_entropy' else np.float32(P[None])
  logits = np.float32([[0.0, np.nan, 1.0, 2.0]])
  assert np.isnan(value(name, logits, target)).all()


def test_every_divergence_is_nonnegative_and_zero_at_equality(float64):
  logits, probs = random_pair(2, zeros=0.2)
  for name in PROPER:
    assert value(name, logits, probs).min() > -1e-12, name
  _, probs = random_pair(20, zeros=0.2)
  for name in DIVERGENCES:
    assert_allclose(value(name, log(probs), probs), 0, atol=1e-12)
  for name in ('forward_kl', 'reverse_kl', 'jensen_shannon'):
    assert_allclose(gradient(name, log(probs), probs), 0, atol=1e-12)


def test_total_variation_is_one_minus_the_overlap(float64):
  logits, probs = random_pair(3, zeros=0.2)
  q = jax.nn.softmax(logits, -1)
  assert_allclose(
    value('total_variation', logits, probs),
    theory.total_variation(jnp.array(probs), q),
    atol=1e-12,
  )
  assert_allclose(
    value('neg_log_acceptance', logits, probs),
    np.clip(-log(theory.overlap(jnp.array(probs), q)), 0, None),
    atol=1e-12,
  )


def test_the_acceptance_losses_gradient_is_total_variations_over_alpha(float64):
  logits, probs = random_pair(4)
  alpha = 1 - value('total_variation', logits, probs)
  assert_allclose(
    gradient('neg_log_acceptance', logits, probs),
    gradient('total_variation', logits, probs) / alpha[:, None],
    atol=1e-12,
  )


def test_a_draft_far_from_a_point_mass_learns_as_by_cross_entropy():
  # Its overlap, e^-200, is no float32; total variation stands still.
  logits, probs = np.float32([[0, -200, 1, 1]]), np.float32([[0, 1, 0, 0]])
  want = gradient('cross_entropy', logits, np.array([1]))
  found = gradient('neg_log_acceptance', logits, probs)
  assert_allclose(found, want, rtol=1e-6)
  assert np.abs(found).max() > 0.5
  assert_array_equal(gradient('total_variation', logits, probs), 0)
  assert value('neg_log_acceptance', logits, probs) == value(
    'cross_entropy', logits, np.array([1])
  )


def test_cross_entropy_is_forward_kl_to_a_point_mass(float64):
  logits, _ = random_pair(5, zeros=0.3)
  labels = np.arange(ROWS) % VOCAB
  assert_allclose(
    value('cross_entropy', logits, labels),
    value('forward_kl', logits, np.eye(VOCAB)[labels]),
    atol=1e-12,
  )


def test_jensen_shannon_is_symmetric_and_at_most_log_two(float64):
  _, p = random_pair(6, zeros=0.4)
  _, q = random_pair(60, zeros=0.4)
  one, two = (
    value('jensen_shannon', log(q), p),
    value('jensen_shannon', log(p), q),
  )
  assert_allclose(one, two, atol=1e-12)
  assert one.max() <= math.log(2) + 1e-12
  assert value(
    'jensen_shannon', log(np.eye(VOCAB)[:1]), np.eye(VOCAB)[1:2]
  ) == (pytest.approx(math.log(2), abs=1e-12))


def test_limits_of_the_parameters(float64):
  logits, probs = map(jnp.array, random_pair(7))
  kl, reverse = (
    losses.forward_kl(logits, probs),
    losses.reverse_kl(logits, probs),
  )
  js = losses.jensen_shannon
  assert_allclose(js(logits, probs, 1e-7) / 1e-7, kl, rtol=1e-4)
  assert_allclose(js(logits, probs, 1 - 1e-7) / 1e-7, reverse, rtol=1e-4)
  rejected = losses.total_variation(logits, probs)
  assert_allclose(losses.lk_hybrid(logits, probs, 0), kl, rtol=1e-12)
  assert_allclose(losses.lk_hybrid(logits, probs, 1e9), rejected, rtol=1e-12)
  assert_allclose(losses.top_k_kl(logits, probs, 6), kl, rtol=1e-12)
  assert_allclose(losses.top_k_kl(logits, probs, 99), kl, rtol=1e-12)
  best = jnp.argmax(probs, -1)
  q = jax.nn.softmax(logits, -1)
  p_best = jnp.max(probs, -1)
  q_best = jnp.take_along_axis(q, best[:, None], -1)[:, 0]
  assert_allclose(
    losses.top_k_kl(logits, probs, 1),
    p_best * jnp.log(p_best / q_best),
    rtol=1e-9,
  )


@pytest.mark.parametrize('name', DIVERGENCES)
def test_a_part_of_the_vocabulary_alone_gives_the_same_loss(name, float64):
  # Logits and target of ids 1, 2 and 4, or of all with -inf elsewhere.
  logits, probs = random_pair(8)
  ids = np.array([1, 2, 4])
  part = np.full_like(logits, -INF)
  part[:, ids] = logits[:, ids]
  assert_allclose(
    value(name, logits[:, ids], probs[:, ids]),
    value(name, part, probs),
    rtol=1e-10,
  )
  assert_allclose(
    gradient(name, logits[:, ids], probs[:, ids]),
    gradient(name, part, probs)[:, ids],
    atol=1e-12,
  )


@pytest.mark.parametrize('name', DIVERGENCES)
def test_no_gradient_flows_into_the_target(name):
  logits, probs = random_pair(9)
  loss = losses.LOSSES[name]
  slope = jax.grad(lambda p: jnp.sum(loss(jnp.array(logits), p)))
  assert_array_equal(slope(jnp.array(probs)), 0)


def test_half_precision_logits_are_worked_on_in_float32():
  logits = jnp.array(log(Q)[None], jnp.bfloat16)
  for name, loss in DIVERGENCES.items():
    found = loss(logits, jnp.array(P[None], jnp.bfloat16))
    assert found.dtype == jnp.float32, name


def test_a_temperature_is_the_same_for_draft_and_target(float64):
  logits, target_logits = jnp.array([[2.0, 0, 1]]), jnp.array([[1.0, 3, -INF]])
  tempered, probs = losses.tempered(logits, target_logits, 0.5)
  assert_allclose(tempered, [[4, 0, 2]])
  assert_allclose(probs, [[1 / (1 + math.e**4), 1 / (1 + math.e**-4), 0]])
  assert_allclose(
    losses.forward_kl(*losses.tempered(logits, logits, 0.3)), 0, atol=1e-12
  )
  for temperature in (0, -1, math.nan):
    with pytest.raises(UsageError, match='temperature = .*: it must be above'):
      losses.tempered(logits, logits, temperature)


def test_the_mean_does_not_change_when_padding_is_added():
  values = jnp.array([[1.0, 2.0], [3.0, 4.0]])
  mask = jnp.array([[True, True], [True, False]])
  want = losses.mean(values, mask)
  assert want == 2
  for junk in (0.0, INF, math.nan):
    padded = jnp.pad(values, ((0, 1), (0, 3)), constant_values=junk)
    wider = jnp.pad(mask, ((0, 1), (0, 3)))
    assert losses.mean(padded, wider) == want
  assert losses.mean(values) == 2.5
  assert losses.mean(values, jnp.array([[0, 0.5], [0, 1.5]])) == 3.5


def test_a_fully_masked_row_and_a_fully_masked_batch_have_finite_gradients():
  logits, probs = random_pair(10, zeros=0.3)
  logits, probs = (x[:4].reshape(2, 2, -1) for x in (logits, probs))

  def total(logits, mask):
    return losses.mean(losses.forward_kl(logits, jnp.array(probs)), mask)

  call = jax.jit(jax.value_and_grad(total))
  for rows in ([True, False], [False, False]):
    mask = jnp.array([[keep, keep] for keep in rows])
    found, slope = call(jnp.array(logits), mask)
    assert np.isfinite(found) and np.isfinite(slope).all()
    for row, keep in enumerate(rows):
      assert (np.abs(slope[row]).max() > 0) == keep
  assert found == 0


@pytest.mark.parametrize(
  'name, options, message',
  (
    ('jensen_shannon', {'beta': 0.0}, r'loss.beta = 0.0: it must be in \(0, 1'),
    ('jensen_shannon', {'beta': 1.0}, r'loss.beta = 1.0: it must be in \(0, 1'),
    ('top_k_kl', {'k': 0}, 'loss.k = 0: it must be at least 1'),
  ),
)
def test_a_number_out_of_range_is_named(name, options, message):
  with pytest.raises(UsageError, match=message):
    losses.LOSSES[name](jnp.array(log(Q)), jnp.array(P), **options)
