"""Drafts of few tokens and few layers: what is left is the whole model's."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from specdec import exact, rng, sampling
from specdec.base import UsageError
from specdec.drafters import model
from specdec.models import functional, reduced
from specdec.models.config import TINY
from specdec.verify import controls, token

SMALL = dataclasses.replace(TINY, vocab_size=6, width=16, hidden=16)
TIED = dataclasses.replace(SMALL, tie_embeddings=True)
IDS = np.array([0, 2, 3])
TOKENS = jnp.array([[1, 2, 3, 4, 5, 0, 5, 4]])


@functools.cache
def weights(config):
  return functional.init(config, jax.random.key(0))


@functools.cache
def compiled(build, config, **options):
  """A model that compiles once for all tests."""
  built = build(config, **options)
  return built._replace(apply=jax.jit(built.apply))


def forward(built, params, tokens=TOKENS):
  return built.apply(params, tokens, built.init_cache(*tokens.shape))


@functools.cache
def logits(config):
  return np.asarray(
    forward(compiled(functional.build, config), weights(config)).logits
  )


@pytest.mark.parametrize('config', (SMALL, TIED))
def test_logits_are_the_whole_models_on_the_ids_and_none_elsewhere(config):
  draft = reduced.cut_head(weights(config), config, IDS)
  assert draft.weights['head'][...].shape == (3, config.width)
  found = forward(compiled(reduced.build, config), draft)
  assert_allclose(found.logits[..., IDS], logits(config)[..., IDS], atol=1e-5)
  assert_array_equal(np.delete(found.logits, IDS, -1), -np.inf)
  assert_array_equal(found.cache.length, TOKENS.shape[1])


def test_all_ids_are_the_whole_model():
  draft = reduced.cut_head(weights(TIED), TIED, np.arange(6))
  found = forward(compiled(reduced.build, TIED), draft).logits
  assert_allclose(found, logits(TIED), atol=1e-5)


def test_a_wider_vocabulary_of_the_target_is_filled_up():
  draft = reduced.cut_head(weights(SMALL), SMALL, IDS)
  built = compiled(reduced.build, SMALL, vocab_size=9)
  assert built.vocab_size == 9
  assert_array_equal(forward(built, draft).logits[..., 6:], -np.inf)


def test_kernels_out_of_the_stack_are_the_same_model():
  draft = reduced.cut_head(weights(SMALL), SMALL, IDS)
  apart = draft._replace(
    weights=functional.unstack(reduced.untied(SMALL), draft.weights)
  )
  built = compiled(reduced.build, SMALL, unstacked=True)
  found = forward(built, apart, TOKENS[:, :1]).logits[..., IDS]
  assert_allclose(found, logits(SMALL)[:, :1, IDS], atol=1e-5)


def test_the_head_is_tied_to_nothing():
  # Twice the head is twice the logits; with a tied embedding it is not.
  draft = reduced.cut_head(weights(TIED), TIED, IDS)
  draft.weights['head'] = jax.tree.map(lambda x: 2 * x, draft.weights['head'])
  found = forward(compiled(reduced.build, TIED), draft).logits
  assert_allclose(found[..., IDS], 2 * logits(TIED)[..., IDS], atol=1e-5)
  assert 'head' not in weights(TIED)


def tree(build, params):
  """Conditionals of three tokens after token 1, as `exact` wants them."""
  prefixes = jnp.array([[1, a, b] for a in range(6) for b in range(6)])
  output = forward(compiled(build, SMALL), params, prefixes).logits
  probs = np.exp(np.asarray(output, np.float64)).reshape(6, 6, 3, 6)
  probs /= probs.sum(-1, keepdims=True)
  return [probs[0, 0, 0], probs[:, 0, 1], probs[:, :, 2]]


def test_the_law_stays_the_targets_though_the_draft_knows_half_of_it():
  p = tree(functional.build, weights(SMALL))
  q = tree(reduced.build, reduced.cut_head(weights(SMALL), SMALL, IDS))[:2]
  with jax.enable_x64(True):
    # The negative control corrects from p, not from the residual.
    found, wrong = (
      exact.output_law(exact.path_laws(rule, exact.paths(p, q)), p, q)
      for rule in (token.RULE, controls.CORRECT_FROM_P)
    )
  assert_allclose(found, exact.joint(p), atol=1e-12)
  assert np.abs(wrong - exact.joint(p)).max() > 1e-3
  assert_array_equal(q[1][:, [1, 4, 5]], 0)


def test_drafts_are_drawn_from_the_ids_alone():
  drafter = model.build(reduced.build(SMALL), 2)
  draft = reduced.cut_head(weights(SMALL), SMALL, IDS)
  batch = 4
  tokens = jnp.arange(batch * 8).reshape(batch, 8) % 6

  @jax.jit
  def propose(keys):
    length = jnp.full(batch, 5)
    cache = drafter.init(draft, tokens, length, None)
    return drafter.propose(
      draft, cache, tokens, length, keys, sampling.params(batch)
    )[0]

  drafts = [propose(rng.sequence_keys(seed, batch)) for seed in range(30)]
  found = np.concatenate([d.tokens for d in drafts])
  assert set(found.ravel().tolist()) == set(IDS.tolist())
  assert_array_equal(np.delete(drafts[0].probs, IDS, -1), 0)
  assert_allclose(drafts[0].probs.sum(-1), 1, rtol=1e-6)


def test_all_layers_are_the_whole_model_bit_for_bit():
  params, config = reduced.cut_layers(weights(SMALL), SMALL, (0, 1))
  assert config == SMALL
  found = forward(compiled(functional.build, config), params).logits
  assert_array_equal(found, logits(SMALL))


@pytest.mark.parametrize('tied', (False, True))
def test_the_first_layer_alone_is_what_the_whole_model_computes_so_far(tied):
  config = TIED if tied else SMALL
  params, cut = reduced.cut_layers(weights(config), config, (0,))
  assert cut.num_layers == 1
  found = forward(compiled(functional.build, cut, feature_layers=(0,)), params)
  whole = compiled(functional.build, config, feature_layers=(0,))
  want = forward(whole, weights(config)).features
  assert_allclose(found.features, want, atol=1e-5)
  # The head is on top of it.
  assert np.abs(found.logits - logits(config)).max() > 0.1


def test_layers_run_in_the_order_that_is_given():
  one, config = reduced.cut_layers(weights(SMALL), SMALL, [1, 0])
  two, _ = reduced.cut_layers(one, config, [1, 0])
  built = compiled(functional.build, config)
  assert np.abs(forward(built, one).logits - logits(SMALL)).max() > 0.1
  assert_array_equal(forward(built, two).logits, logits(SMALL))


def test_the_most_frequent_tokens_and_those_that_must_stay():
  counts = [5, 0, 9, 5, 5, 0]
  assert_array_equal(reduced.frequent(counts, 2), [0, 2])
  assert_array_equal(reduced.frequent(counts, 3), [0, 2, 3])
  assert_array_equal(reduced.frequent(counts, 3, keep=[5, 5]), [0, 2, 5])
  assert_array_equal(reduced.frequent(counts, 6), np.arange(6))
  assert counts == [5, 0, 9, 5, 5, 0]


@pytest.mark.parametrize(
  'call, message',
  (
    (lambda: reduced.frequent([1, 2], 3), r'vocab_size = 3: it must be in 1\.'),
    (lambda: reduced.frequent([1, 2], 0), r'vocab_size = 0: it must be in 1\.'),
    (lambda: reduced.frequent([1, 2], 1, (0, 1)), r'must be in 2\.\.2'),
    (
      lambda: reduced.cut_head(None, SMALL, [0, 6]),
      r'within 0\.\.5, each once',
    ),
    (
      lambda: reduced.cut_head(None, SMALL, [1, 1]),
      r'within 0\.\.5, each once',
    ),
    (lambda: reduced.cut_head(None, SMALL, []), r'within 0\.\.5, each once'),
    (lambda: reduced.cut_layers(None, SMALL, [2]), r'\(2,\): give some of 0\.'),
    (lambda: reduced.cut_layers(None, SMALL, []), r'\(\): give some of 0\.\.1'),
    (lambda: reduced.cut_layers(None, SMALL, [-1]), r'\(-1,\): give some of 0'),
  ),
)
def test_what_cannot_be_cut_is_one_line(call, message):
  with pytest.raises(UsageError, match=message):
    call()
