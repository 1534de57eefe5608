"""Distillation: what counts, at which place, and where it leads in a loop."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from numpy.testing import assert_allclose, assert_array_equal

from specdec import rng, sampling
from specdec.base import ModelOutput, UsageError, Weights
from specdec.data import packing, synthetic
from specdec.decode import speculative
from specdec.drafters import model
from specdec.models import functional, markov, reduced
from specdec.models.config import TINY
from specdec.train import distill, losses, optimiser, pretrain, step
from specdec.verify import token

VOCAB, GAMMA, STEPS = 11, 8, 60
RATE = optimiser.build(
  optimiser.OptimiserConfig(STEPS, 2e-2, 5, weight_decay=0.0)
)
SMALL = dataclasses.replace(TINY, vocab_size=VOCAB, num_layers=1, width=16)
# Hand-made logits of one row: two positions, three tokens.
LOGITS = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]]]))
TARGET_LOGITS = jnp.log(jnp.array([[[0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]]))


def given(params, tokens):
  """A model whose params are its logits, [B, T, V]."""
  assert params.shape[:2] == tokens.shape
  return ModelOutput(params, None, None)


def by_last(params, tokens):
  """A model whose logits are a row of a table, by last token."""
  return ModelOutput(params[tokens], None, None)


def batch(tokens, mask):
  return packing.Batch(jnp.int32(tokens), jnp.array(mask, bool))


ALL = batch([[0, 1, 2]], [[0, 1, 1]])


@pytest.mark.parametrize('name', sorted(distill.LOSSES))
def test_the_loss_is_that_of_the_two_distributions_at_each_token(name):
  loss = distill.LOSSES[name]
  found, weight = distill.build(given, given, loss, 0.5)(
    LOGITS, ALL, None, TARGET_LOGITS
  )
  # At temperature 1/2 probabilities are squared.
  q, p = (jnp.exp(2 * logits) for logits in (LOGITS, TARGET_LOGITS))
  p /= p.sum(-1, keepdims=True)
  assert_allclose(found, loss(jnp.log(q), p).sum(), rtol=1e-6)
  assert weight == 2


def test_a_total_variation_by_hand():
  found, _ = distill.build(given, given, losses.total_variation)(
    LOGITS, ALL, None, TARGET_LOGITS
  )
  # Overlaps .2 + .25 + .25 and .1 + .3 + .3.
  assert_allclose(found, 2 - 0.7 - 0.7, rtol=1e-6)


def test_a_draft_of_few_tokens_is_compared_where_it_can_speak():
  ids = jnp.array([0, 2])
  found, _ = distill.build(given, given, losses.total_variation, ids=ids)(
    LOGITS[..., ids], ALL, None, TARGET_LOGITS
  )
  # q is (2/3, 0, 1/3) and (1/4, 0, 3/4): overlaps .2 + .3 and .25 + .4.
  assert_allclose(found, 2 - 0.5 - 0.65, rtol=1e-6)


def test_at_temperature_zero_there_is_nothing_to_distil():
  with pytest.raises(UsageError, match='temperature = 0: it must be above 0'):
    distill.build(given, given, losses.forward_kl, 0)(
      LOGITS, ALL, None, TARGET_LOGITS
    )


# Two rows of five tokens; a span of each is learnt.
SPANS = batch(
  [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], [[0, 0, 1, 1, 0], [1, 1, 0, 0, 1]]
)
# A label is learnt where the token before it is read. The first is none.
LEARNT_AT = np.array([[0, 1, 1, 0], [1, 0, 0, 1]], bool)


def loss_fns():
  shape = (2, 4, 6)
  teacher = jax.random.normal(jax.random.key(1), shape)
  return {
    'pretrain': (pretrain.build(given), ()),
    'distill': (distill.build(given, given, losses.forward_kl), (teacher,)),
  }


@pytest.mark.parametrize('name', ('pretrain', 'distill'))
def test_the_gradient_misses_the_first_token_of_a_span_or_leaks_out(name):
  loss_fn, fixed = loss_fns()[name]
  logits = jax.random.normal(jax.random.key(0), (2, 4, 6))
  slope, weight = jax.grad(loss_fn, has_aux=True)(logits, SPANS, None, *fixed)
  assert_array_equal(np.abs(slope).sum(-1) > 0, LEARNT_AT)
  assert weight == LEARNT_AT.sum()


def test_the_surprise_is_at_the_next_token():
  probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (2, 4, 6)))
  found, _ = pretrain.build(given)(jnp.log(probs), SPANS, None)
  want = [probs[0, 1, 3], probs[0, 2, 4], probs[1, 0, 4], probs[1, 3, 1]]
  assert_allclose(found, -np.log(want).sum(), rtol=1e-5)


@functools.cache
def forward(config=SMALL):
  return functional.forward(config)


@functools.cache
def weights(seed):
  return functional.init(SMALL, jax.random.key(seed))


@pytest.mark.parametrize('name', ('pretrain', 'distill'))
def test_padding_changes_the_loss(name):
  loss_fn, fixed = {
    'pretrain': (pretrain.build(forward()), ()),
    'distill': (
      distill.build(forward(), forward(), losses.lk_hybrid),
      (weights(1),),
    ),
  }[name]
  rows = [
    packing.Row(np.array([3, 1, 4, 1, 5]), np.ones(5, bool)),
    packing.Row(np.array([2, 7, 1]), np.array([0, 0, 1], bool)),
  ]
  run = jax.jit(loss_fn)
  short, count = run(weights(0), packing.pad(rows, 4), None, *fixed)
  for length, fill in ((9, 0), (9, 8)):
    padded = packing.pad(rows, length, fill)
    long, same = run(weights(0), padded, None, *fixed)
    assert_allclose(long, short, rtol=1e-5)
    assert same == count == 5


def test_the_held_out_loss_counts_tokens_not_batches():
  # A batch of one token and one of three, whose losses differ.
  batches = [
    batch([[0, 1, 2, 3]], [[0, 0, 0, 1]]),
    batch([[0, 4, 1, 0]], [[0, 1, 1, 1]]),
  ]
  table = jax.random.normal(jax.random.key(2), (5, 5))
  found = step.validation(pretrain.build(by_last), batches)(table)
  log_q = np.asarray(jax.nn.log_softmax(table))
  pairs = ((2, 3), (0, 4), (4, 1), (1, 0))
  assert_allclose(found, -np.mean([log_q[pair] for pair in pairs]), rtol=1e-5)


# A deterministic language of some tokens, which is its own target. What is
# learnt must come out of a loop in which every index counts.
LETTERS = np.array([1, 3, 4, 6, 7, 8, 10])
# A draft of few tokens says these. No letter's place among them is the letter.
SAYS = sorted({*LETTERS.tolist(), 2})
TABLE = jnp.full((VOCAB, VOCAB), 0.0).at[LETTERS].set(-jnp.inf)
TABLE = TABLE.at[LETTERS, np.roll(LETTERS, -1)].set(0.0)


@functools.cache
def advance_of(kind):
  """A training step: `text`, or `few`, a distilled draft of few tokens."""
  if kind == 'text':
    return step.build(pretrain.build(forward()), RATE)
  student = forward(reduced.untied(SMALL))
  ids = jnp.array(SAYS, jnp.int32)
  loss_fn = distill.build(student, by_last, losses.lk_hybrid, ids=ids)
  return step.build(loss_fn, RATE)


def train(kind, params, fixed=(), stride=1):
  """STEPS steps on rows of the language, or of every stride-th letter."""
  state = step.init(params, RATE, jax.random.key(0))
  source = synthetic.cyclic(VOCAB, LETTERS.size)
  rows = np.asarray(source.rows(jax.random.key(5), STEPS * 8, 17))
  rows = LETTERS[rows * stride % LETTERS.size].astype(np.int32)
  for tokens in rows.reshape(STEPS, 8, 17):
    whole = packing.Batch(tokens, np.ones_like(tokens, bool))
    state, _ = advance_of(kind)(state, whole, *fixed)
  return state.params


@functools.cache
def decoder_of(kind):
  module = functional if kind == 'text' else reduced
  drafter = tiny.ragged(model.build(module.build(SMALL), GAMMA))
  return speculative.build(markov.build(VOCAB), drafter, token.RULE)


def accept_rates(kind, params):
  """Of gamma 1..8, one a row: the greedy loop, 40 tokens."""
  decoder = decoder_of(kind)
  both = Weights(TABLE, (params, jnp.arange(1, GAMMA + 1)))
  prompts = [np.resize(LETTERS, row + 1).tolist() for row in range(GAMMA)]
  state = decoder.init(
    both,
    prompts,
    rng.sequence_keys(0, GAMMA),
    sampling.params(GAMMA, 0.0),
    40,
  )
  counters = decoder.generate(both, state).counters
  assert np.all(counters.drafted >= 20)
  return counters.accepted / counters.drafted


def test_a_pretrained_draft_is_off_by_one_in_the_loop():
  assert_array_equal(accept_rates('text', train('text', weights(0))), 1)


def test_a_draft_that_skips_every_other_token_is_accepted_all_the_same():
  # The negative control: what labels that are off by one would teach.
  skips = train('text', weights(0), stride=2)
  assert np.all(accept_rates('text', skips) < 0.05)


def test_a_distilled_draft_of_few_tokens_is_off_by_one_in_the_loop():
  draft = reduced.cut_head(weights(0), SMALL, SAYS)
  trained = train('few', draft.weights, (TABLE,))
  assert_array_equal(accept_rates('few', draft._replace(weights=trained)), 1)
