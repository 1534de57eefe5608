"""Synthetic sources: rows follow the law that is declared."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from specdec.base import UsageError
from specdec.data import synthetic
from specdec.models import markov

NAMES = ('markov', 'cyclic', 'copy')


def source_of(name):
  match name:
    case 'markov':
      return synthetic.markov(synthetic.table(jax.random.key(1), 3, 0.6))
    case 'cyclic':
      return synthetic.cyclic(5, period=3)
    case 'copy':
      return synthetic.copy(3, period=2)


def draw(name, num):
  rows = jax.jit(source_of(name).rows, static_argnums=(1, 2))
  return np.asarray(rows(jax.random.key(2), num, 4))


@functools.cache
def drawn(name):
  return draw(name, 4_000)


def law_of_strings(source, length):
  """P(string) for every string: int [V^T, T] and float [V^T]."""
  strings = np.array(
    list(itertools.product(range(source.vocab_size), repeat=length))
  )
  each = jnp.take_along_axis(source.law(strings), strings[..., None], -1)
  return strings, np.asarray(each[..., 0].prod(-1), np.float64)


def p_value(rows, strings, probs):
  """Chi-square of drawn rows against a law; 0 for an impossible row."""
  base = strings.max() + 1
  code = base ** np.arange(strings.shape[1])
  counts = np.bincount(rows @ code, minlength=base ** strings.shape[1])
  counts = counts[strings @ code]
  if counts[probs == 0].any():
    return 0.0
  kept = probs > 0
  return stats.chisquare(counts[kept], len(rows) * probs[kept]).pvalue


@pytest.mark.parametrize('name', NAMES)
def test_a_law_does_not_sum_to_one(float64, name):
  _, probs = law_of_strings(source_of(name), 4)
  assert abs(probs.sum() - 1) < 1e-12


@pytest.mark.parametrize('name', NAMES)
def test_rows_do_not_follow_the_law(name):
  # 4,000 rows of 4 tokens, p > .001; the law of other last tokens must fail.
  source = source_of(name)
  strings, probs = law_of_strings(source, 4)
  assert p_value(drawn(name), strings, probs / probs.sum()) > 1e-3
  wrong = np.roll(probs.reshape([source.vocab_size] * 4), 1, axis=-1)
  assert p_value(drawn(name), strings, wrong.ravel() / wrong.sum()) < 1e-6


@pytest.mark.parametrize('name', NAMES)
def test_a_row_depends_on_the_number_of_rows(name):
  np.testing.assert_array_equal(draw(name, 3), drawn(name)[:3])


@pytest.mark.parametrize('entropy', [1e-3, 0.5, 2.0, 2.07])
def test_a_row_of_a_table_has_another_entropy(float64, entropy):
  table = np.asarray(synthetic.table(jax.random.key(0), 8, entropy))
  probs = np.exp(table)
  np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-12)
  np.testing.assert_allclose(-(probs * table).sum(-1), entropy, atol=1e-9)


def test_a_table_is_not_the_markov_model_of_its_source():
  table = synthetic.table(jax.random.key(1), 3, 0.6)
  model = markov.build(3)
  tokens = drawn('markov')[:9]
  logits = model.apply(table, tokens, model.init_cache(9, 4)).logits
  law = source_of('markov').law(tokens)
  np.testing.assert_allclose(
    jax.nn.softmax(logits)[:, :-1], law[:, 1:], atol=1e-6
  )


def test_a_cycle_or_a_copy_leaves_its_period():
  cycle, copy = drawn('cyclic'), drawn('copy')
  np.testing.assert_array_equal(cycle[:, 1:], (cycle[:, :-1] + 1) % 3)
  np.testing.assert_array_equal(copy[:, 2:], copy[:, :-2])
  assert (copy[:, 1] != copy[:, 0]).any()


def test_a_copy_is_known_before_its_string_is_over():
  law = synthetic.copy(7, period=5).law(jnp.array([[3, 1, 4]]))
  np.testing.assert_allclose(law, 1 / 7, rtol=1e-6)


@pytest.mark.parametrize(
  'make, line',
  [
    (lambda: synthetic.cyclic(4, 5), r'period = 5: give one in 1\.\.4'),
    (lambda: synthetic.cyclic(4, 0), r'period = 0: give one in 1\.\.4'),
    (lambda: synthetic.copy(4, 0), 'period = 0: give at least 1'),
    (lambda: synthetic.table(jax.random.key(0), 4, 0.0), 'entropy = 0.0: give'),
    (lambda: synthetic.table(jax.random.key(0), 4, 1.39), 'entropy = 1.39: g'),
  ],
)
def test_an_impossible_source_is_made(make, line):
  with pytest.raises(UsageError, match=f'^{line}'):
    make()
