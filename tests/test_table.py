"""Unigram and bigram drafts: counts, what is declared, and the law."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import texts
import tiny
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling, simulation, theory
from specdec.base import UsageError, Weights
from specdec.decode import speculative
from specdec.drafters import table
from specdec.verify import token

VOCAB, GAMMA, LENGTH, ROWS = 5, 3, 4, 20_000
DOCUMENTS = ([0, 1, 0, 1, 0, 2, 0, 2, 0, 3], [4], [1, 1])


def dense(counted):
  """The table as probabilities, [V, V]."""
  probs = np.zeros((counted.row.size, counted.row.size + 1))
  for last, row in enumerate(np.asarray(counted.row)):
    probs[last, counted.tokens[row]] += np.exp(counted.logits[row])
  assert_array_equal(probs[:, -1], 0)  # absent tokens have no mass
  return probs[:, :-1]


def test_golden_counts():
  # 0 is followed by 1, 1, 2, 2, 3; 1 by 0, 0, 1; 2 by 0, 0; 3 and 4 by none.
  common = np.array([5, 4, 2, 1, 1]) / 13
  want = [[0, 0.4, 0.4, 0.2, 0], [2 / 3, 1 / 3, 0, 0, 0], [1, 0, 0, 0, 0]]
  assert_allclose(
    dense(table.bigram(DOCUMENTS, VOCAB)), [*want, common, common], rtol=1e-6
  )
  assert_allclose(
    dense(table.unigram(DOCUMENTS, VOCAB)), [common] * VOCAB, rtol=1e-6
  )


def test_the_most_frequent_are_kept_and_the_lower_id_on_ties():
  found = dense(table.bigram(DOCUMENTS, VOCAB, most=1))
  assert_array_equal(found, np.eye(VOCAB)[[1, 0, 0, 0, 0]])
  found = dense(table.bigram(DOCUMENTS, VOCAB, most=2))
  want = [[0, 0.5, 0.5, 0, 0], [2 / 3, 1 / 3, 0, 0, 0], [1, 0, 0, 0, 0]]
  assert_allclose(found[:3], want, rtol=1e-6)
  assert_allclose(found[3:], [[5 / 9, 4 / 9, 0, 0, 0]] * 2, rtol=1e-6)
  found = dense(table.unigram(DOCUMENTS, VOCAB, most=4))
  assert_allclose(found[0], np.array([5, 4, 2, 1, 0]) / 12, rtol=1e-6)


def test_counts_equal_a_plain_loop():
  draws = np.random.default_rng(0)
  documents = [draws.integers(0, 9, n) for n in draws.integers(0, 40, 30)]
  counts = np.zeros((10, 10))
  for document in documents:
    for a, b in zip(document[:-1], document[1:], strict=True):
      counts[a, b] += 1
  counts[9] = np.bincount(np.concatenate(documents), minlength=10)
  for most in (1, 3, 9, 64):
    kept = counts.copy()
    for row in kept:
      row[np.argsort(-row, kind='stable')[most:]] = 0
    want = kept / kept.sum(-1, keepdims=True)
    found = table.bigram(documents, 10, most)
    assert_allclose(dense(found), want, rtol=1e-5)
    assert np.all(np.diff(found.tokens, axis=-1)[:, :-1] >= 0)


def test_a_large_vocabulary_takes_a_row_for_each_token_that_was_followed():
  found = table.bigram([[49_000, 7, 49_000, 9]], 49_152)
  assert found.tokens.shape == (3, 3)
  assert_array_equal(found.tokens[found.row[49_000]], [7, 9, 49_152])
  assert_array_equal(found.tokens[found.row[123]], [7, 9, 49_000])


@functools.cache
def chain():
  """Logits of a Markov target, and documents that it wrote."""
  _, target, _ = tiny.markov_pair(VOCAB)
  probs = np.asarray(jax.nn.softmax(target, -1), np.float64)
  draws = np.random.default_rng(1)
  text = [0]
  for _ in range(1000):
    text.append(draws.choice(VOCAB, p=probs[text[-1]] / probs[text[-1]].sum()))
  return target, (text,)


@functools.cache
def counted(kind):
  """A table of few tokens, so that q is zero on some that the target says."""
  if kind == 'bigram':
    return table.bigram(chain()[1], VOCAB, most=3)
  one = table.unigram(chain()[1], VOCAB, most=3)
  # As many rows as the bigram has, so that both share what is compiled.
  tokens, logits = (jnp.tile(x, (VOCAB + 1, 1)) for x in one[1:])
  return table.Table(one.row, tokens, logits)


@functools.cache
def proposals():
  drafter = table.build(VOCAB, GAMMA)

  def propose(params, tokens, length, *rest):
    state = drafter.init(params, tokens, length, None)
    return drafter.propose(params, state, tokens, length, *rest)

  return jax.jit(propose)


@pytest.mark.parametrize('kind', ('unigram', 'bigram'))
@pytest.mark.parametrize(
  'asked',
  (
    {},
    {'temperature': 0.5, 'top_p': 0.8},
    {'temperature': 1.5, 'top_k': 2, 'min_p': 0.1},
    {'temperature': 0},
  ),
)
def test_the_declared_rows_are_the_transform_of_the_whole_vocabulary(
  kind, asked
):
  batch = 256
  tokens = jnp.arange(batch * 2).reshape(batch, 2) % VOCAB
  length = 1 + jnp.arange(batch) % 2
  proposal, _ = proposals()(
    counted(kind),
    tokens,
    length,
    rng.sequence_keys(2, batch),
    sampling.params(batch, **asked),
  )
  last = np.concatenate(
    [tokens[jnp.arange(batch), length - 1][:, None], proposal.tokens[:, :-1]], 1
  )
  with np.errstate(divide='ignore'):
    full = np.log(dense(counted(kind)))
  want = [texts.sorted_transform(row, **asked) for row in full]
  assert_allclose(proposal.probs, np.array(want)[last], atol=1e-6)
  assert_array_equal(proposal.length, GAMMA)
  drawn = np.take_along_axis(
    np.asarray(proposal.probs), np.asarray(proposal.tokens)[..., None], -1
  )
  assert (drawn > 0).all()
  if asked == {'temperature': 0}:
    assert_array_equal(drawn, 1)


@pytest.mark.parametrize('kind', ('unigram', 'bigram'))
def test_drafts_have_the_law_that_is_declared(kind):
  # 20,000 drafts at the first position, chi-square, p-value above 0.01.
  tokens = jnp.zeros((ROWS, 1), jnp.int32)
  proposal, _ = proposals()(
    counted(kind),
    tokens,
    jnp.ones(ROWS, jnp.int32),
    rng.sequence_keys(3, ROWS),
    sampling.params(ROWS),
  )
  counts = np.bincount(proposal.tokens[:, 0], minlength=VOCAB)
  assert simulation.p_value(counts, proposal.probs[0, 0]) > 0.01
  # The drafts after the first go by their own last token.
  pairs = texts.count_strings(proposal.tokens[:, :2], VOCAB)
  law = texts.markov_joint(dense(counted(kind))[0], dense(counted(kind)), 2)
  assert simulation.p_value(pairs, law) > 0.01


def overclaiming(drafter):
  """Declares a little of every token, but draws what it drew: wrong."""

  def propose(*args):
    proposal, state = drafter.propose(*args)
    return proposal._replace(probs=(proposal.probs + 0.2) / 2), state

  return drafter._replace(propose=propose)


@functools.cache
def decoder(wrap=None):
  drafter = table.build(VOCAB, GAMMA)
  drafter = wrap(drafter) if wrap else drafter
  return speculative.build(tiny.markov_pair(VOCAB)[0], drafter, token.RULE)


def start(kind, wrap=None, budget=LENGTH):
  """ROWS texts that begin with each token in turn."""
  target, _ = chain()
  weights = Weights(target, counted(kind))
  build = decoder(wrap)
  state = build.init(
    weights,
    (np.arange(ROWS) % VOCAB)[:, None].tolist(),
    rng.sequence_keys(4, ROWS),
    sampling.params(ROWS),
    budget,
    max_len=1 + LENGTH,
  )
  return build, weights, state


def p_value_of_texts(kind, wrap=None):
  """Of ROWS texts of LENGTH tokens under the target's own law."""
  build, weights, state = start(kind, wrap)
  state = build.generate(weights, state)
  strings = np.asarray(state.tokens)[:, : 1 + LENGTH]
  probs = np.asarray(jax.nn.softmax(chain()[0], -1), np.float64)
  law = texts.markov_joint(np.ones(VOCAB) / VOCAB, probs, 1 + LENGTH)
  return simulation.p_value(texts.count_strings(strings, VOCAB), law)


@pytest.mark.parametrize('kind', ('unigram', 'bigram'))
def test_texts_have_the_targets_law(kind):
  # 20,000 texts of four tokens; p-value above 0.01.
  assert p_value_of_texts(kind) > 0.01


def test_the_same_test_rejects_a_table_that_declares_what_it_did_not_draw():
  assert p_value_of_texts('bigram', overclaiming) < 1e-6


@pytest.mark.parametrize('kind', ('unigram', 'bigram'))
def test_the_overlap_is_the_accept_rate_of_the_first_draft(kind):
  # Within three standard errors of 20,000 rounds.
  # A budget of two tokens has use for one draft, in the first round.
  build, weights, state = start(kind, budget=2)
  p = jax.nn.softmax(chain()[0], -1)
  want = theory.overlap(p, jnp.array(dense(counted(kind)), jnp.float32))
  state = build.generate(weights, state)
  drafted = int(state.counters.drafted_at[:, 0].sum())
  assert drafted == ROWS
  found = int(state.counters.accepted_at[:, 0].sum()) / drafted
  error = np.sqrt(np.mean(want * (1 - want)) / drafted)
  assert abs(found - np.mean(want)) < 3 * error


def test_a_bigram_overlaps_more_than_a_unigram():
  p = jax.nn.softmax(chain()[0], -1)
  overlaps = [
    float(jnp.mean(theory.overlap(p, jnp.array(dense(counted(kind))))))
    for kind in ('unigram', 'bigram')
  ]
  assert overlaps[0] + 0.05 < overlaps[1] < 1


@pytest.mark.parametrize('build', (table.unigram, table.bigram))
def test_a_corpus_that_cannot_be_counted_is_one_line(build):
  with pytest.raises(UsageError, match='documents: they hold no token'):
    build([[], []], VOCAB)
  with pytest.raises(UsageError, match=r'hold token 5: it must be in 0\.\.4'):
    build([[0, 5]], VOCAB)
  with pytest.raises(UsageError, match='hold token -1: it must be'):
    build([[-1, 0]], VOCAB)
  with pytest.raises(UsageError, match='draft.most = 0: it must be at least'):
    build([[0]], VOCAB, most=0)


def test_a_negative_gamma_is_named():
  with pytest.raises(UsageError, match='gamma = -1: it must be at least 0'):
    table.build(VOCAB, -1)
