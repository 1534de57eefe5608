"""What a draft would gain, against enumeration and against the real loop."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import Weights
from specdec.decode import speculative
from specdec.drafters import model as model_drafter
from specdec.drafters import ngram, table
from specdec.models import markov
from specdec.train import overlap
from specdec.verify import token

VOCAB, GAMMA, ROWS = 5, 3, 20_000
MODEL = markov.build(VOCAB)
READER = overlap.of_model(MODEL)


@functools.cache
def tables():
  """Logits of a target and of a draft that overlaps more after some tokens."""
  target, noise = np.random.default_rng(1).normal(size=(2, VOCAB, VOCAB))
  draft = target + np.arange(VOCAB)[:, None] / 2 * noise
  return Weights(jnp.float32(target), jnp.float32(draft))


def law(logits, temperature=1.0):
  """softmax(logits / temperature), float64."""
  weights = np.exp(np.asarray(logits, np.float64) / temperature)
  return weights / weights.sum(-1, keepdims=True)


def test_the_chance_of_a_round_is_not_the_sum_over_its_drafts(float64):
  # Every text of GAMMA tokens, weighed by its law, against every draft.
  weights = Weights(*map(jnp.float64, tables()))
  paths = np.array(list(itertools.product(range(VOCAB), repeat=GAMMA)))
  texts = np.pad(paths, ((0, 0), (1, 0)), constant_values=2)
  found = overlap.build(READER, READER)(
    weights, jnp.asarray(texts), sampling.params(len(texts))
  )
  mask = jnp.broadcast_to(jnp.arange(GAMMA + 1)[None] > 0, texts.shape)
  reached, survived, counts = overlap.by_position(found, mask, GAMMA)
  p, q = (law(logits)[texts[:, :-1], texts[:, 1:]] for logits in weights)
  before = 1.0  # a round always gets to its first draft
  for i in range(GAMMA):
    # A draft's path counts once for each way in which its text goes on.
    ways = VOCAB ** (GAMMA - 1 - i)
    want = np.prod(np.minimum(p, q)[:, : i + 1], -1).sum() / ways
    assert abs(np.sum(p.prod(-1) * survived[:, 1, i]) - want) < 1e-12
    assert abs(np.sum(p.prod(-1) * reached[:, 1, i]) - before) < 1e-12
    before = want
  assert_array_equal(counts.sum((0, 2)), len(texts) * np.array([0, 3, 2, 1]))
  assert_array_equal(np.where(counts, 0, survived), 0)


def test_texts_longer_than_a_piece_are_out_of_line():
  draws = np.random.default_rng(0)
  texts = draws.integers(0, VOCAB, (2, 200))
  asked = {'temperature': [1.0, 0.5]}
  whole = overlap.build(READER, READER)(
    tables(), jnp.asarray(texts), sampling.params(2, **asked), 130
  )
  # A token needs what was fed before it: 130 need three pieces, 129 two.
  assert np.all(whole.overlap[:, 1:193] > 0)
  assert_array_equal(whole.overlap[:, 193:], 0)
  found, texts = (jax.tree.map(lambda x: x[:, :150], x) for x in (whole, texts))
  for row, temperature in enumerate(asked['temperature']):
    p, q = (law(x, temperature)[texts[row, :-1]] for x in tables())
    assert_allclose(found.overlap[row, 1:], np.minimum(p, q).sum(-1), rtol=1e-5)
    at = np.arange(149), texts[row, 1:]
    want = np.minimum(1, q[at] / p[at])
    assert_allclose(found.kept[row, 1:], want, rtol=1e-4)
  assert_array_equal(found.overlap[:, 0], 0)


def test_of_logits_forgets_the_temperature_or_the_mask():
  shape = (2, 3, VOCAB)
  target, draft = (jax.random.normal(jax.random.key(k), shape) for k in (2, 3))
  draft = draft.at[0, 1, 2:].set(-jnp.inf)
  mask = jnp.array([[True, True, False], [True, False, True]])
  params = sampling.params(2, [0.5, 0.0])
  found = overlap.of_logits(target, draft, params, mask)
  want = np.minimum(law(target[0], 0.5), law(draft[0], 0.5)).sum(-1)
  assert_allclose(found[0], np.where(mask[0], want, 0), rtol=1e-5)
  same = jnp.argmax(target[1], -1) == jnp.argmax(draft[1], -1)
  assert_array_equal(found[1], np.where(mask[1], same, 0))
  assert found[1].max() == 1  # the case tests something


@functools.cache
def written():
  """ROWS texts of the target, GAMMA tokens after 3 or 4."""
  texts = [3 + np.arange(ROWS) % 2]
  for uniforms in np.random.default_rng(7).random((GAMMA, ROWS, 1)):
    ends = law(tables().target)[texts[-1]].cumsum(-1)
    texts.append(np.minimum((uniforms > ends).sum(-1), VOCAB - 1))
  return jnp.asarray(np.stack(texts, -1))


@functools.cache
def offline():
  """Overlaps along these texts, aligned to tokens."""
  compare = overlap.build(READER, READER)
  return compare(tables(), written(), sampling.params(ROWS))


@functools.cache
def online():
  """Which drafts of a first round were accepted, [ROWS, G]."""
  drafter = model_drafter.build(MODEL, GAMMA)
  decoder = speculative.build(MODEL, drafter, token.RULE)
  state = decoder.init(
    tables(),
    (3 + np.arange(ROWS) % 2)[:, None].tolist(),
    rng.sequence_keys(8, ROWS),
    sampling.params(ROWS),
    GAMMA + 1,
  )
  state, _ = jax.jit(decoder.step)(tables(), state)
  assert int(state.counters.drafted_at.sum()) == ROWS * GAMMA
  return np.asarray(state.counters.accepted_at, float)


def deviations(found, measured):
  """How far two means are apart, in standard errors, by position."""
  error = np.sqrt((found.var(0) + measured.var(0)) / ROWS)
  return np.abs(found.mean(0) - measured.mean(0)) / error


def test_the_offline_overlap_is_not_the_measured_accept_rate():
  # 20,000 first rounds; within three standard errors at each position.
  mask = jnp.broadcast_to(jnp.arange(1 + GAMMA)[None] > 0, written().shape)
  _, survived, _ = overlap.by_position(offline(), mask, GAMMA)
  found = np.asarray(survived[:, 1], float)
  assert_allclose(found[:, 0], offline().overlap[:, 1])
  assert np.all(deviations(found, online()) < 3)
  assert found.mean(0)[-1] > 0.1  # the case tests something


def test_the_same_test_rejects_an_overlap_that_is_one_token_off():
  found = np.asarray(offline().overlap[:, 2:3], float)
  assert deviations(found, online()[:, :1])[0] > 6


def test_a_table_is_read_otherwise_than_the_model_it_equals():
  draws = np.random.default_rng(3)
  texts = jnp.asarray(draws.integers(0, VOCAB, (2, 70)))
  counted = table.bigram([draws.integers(0, VOCAB, 400)], VOCAB, most=3)
  logits = jnp.full((VOCAB, VOCAB + 1), -jnp.inf)
  rows = jnp.arange(VOCAB)[:, None]
  logits = logits.at[rows, counted.tokens[counted.row]].set(
    counted.logits[counted.row]
  )[:, :-1]
  drafter = overlap.of_drafter(table.build(VOCAB, gamma=1), VOCAB)
  params = sampling.params(2, [0.7, 0.0])
  found, want = (
    overlap.build(READER, reader)(Weights(tables().target, q), texts, params)
    for reader, q in ((drafter, counted), (READER, logits))
  )
  assert_allclose(found.overlap, want.overlap, atol=1e-6)
  assert_allclose(found.kept, want.kept, atol=1e-6)


@pytest.mark.parametrize('temperature', (0.0, 1.0))
def test_a_lookup_without_a_match_has_an_overlap(temperature):
  text = [1, 2, 3, 1, 2, 4, 1, 2]
  # What a match of two tokens proposes before each: mostly nothing,
  # else what followed the last (1, 2).
  drafts = {5: 3, 8: 4}
  drafter = overlap.of_drafter(ngram.build(1, 2, 2), VOCAB)
  found = overlap.build(READER, drafter)(
    Weights(tables().target, None),
    jnp.asarray([[*text, 0]]),
    sampling.params(1, temperature),
  )
  p = sampling.transform(
    tables().target[None], sampling.params(1, temperature)
  )[0]
  for at in range(1, len(text) + 1):
    want = p[text[at - 1], drafts[at]] if at in drafts else 0.0
    assert_allclose(found.overlap[0, at], want, rtol=1e-6)
