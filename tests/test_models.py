"""The transformer: its cache, trees, windows and features."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from specdec.models import functional
from specdec.models.config import TINY, Rope

CONFIGS = {
  'plain': TINY,
  'everything': dataclasses.replace(
    TINY,
    rope=Rope(theta=500.0, kind='yarn', factor=4.0, original_length=8),
    tie_embeddings=True,
    qkv_bias=True,
    out_bias=True,
    qk_norm=True,
    sliding_window=5,
  ),
}
COUNT = 21
TOKENS = jax.random.randint(jax.random.key(1), (2, COUNT), 0, TINY.vocab_size)


@functools.cache
def compiled(name):
  """A model that compiles once for all tests, and its weights."""
  model = functional.build(CONFIGS[name], feature_layers=(0, 1))
  params = functional.init(CONFIGS[name], jax.random.key(0))
  # No bias or norm may be its neutral initial value.
  noise = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: leaf + 0.1 * noise.normal(size=leaf.shape), params
  )
  return model._replace(apply=jax.jit(model.apply)), params


def whole(name, tokens):
  """One pass over [2, COUNT] tokens."""
  model, params = compiled(name)
  return model.apply(params, tokens, model.init_cache(2, COUNT))


def padded(*parts):
  """Parts, each [n], joined in one row; a causal model hears no padding."""
  row = jnp.concatenate(parts)
  return jnp.pad(row, (0, COUNT - len(row)))


def close(found, expected, tolerance=1e-5):
  assert np.max(np.abs(found - expected)) < tolerance * np.max(np.abs(expected))


@pytest.mark.parametrize('name', CONFIGS)
def test_pieces_through_the_cache_equal_one_pass(name):
  model, params = compiled(name)
  cache, logits, features, at = model.init_cache(2, COUNT), [], [], 0
  for count in (7, 3, 1, 7, 3):
    output = model.apply(params, TOKENS[:, at : at + count], cache)
    logits.append(output.logits)
    features.append(output.features)
    cache, at = output.cache, at + count
  assert cache.length.tolist() == [COUNT, COUNT]
  close(jnp.concatenate(logits, 1), whole(name, TOKENS).logits)
  close(jnp.concatenate(features, 1), whole(name, TOKENS).features)


@pytest.mark.parametrize('name', CONFIGS)
def test_rows_of_unequal_length_do_not_see_stale_rows(name):
  model, params = compiled(name)
  cache = whole(name, TOKENS).cache
  # Roll back to 4 and 15 tokens, and feed the same three to both rows.
  length = jnp.array([4, 15])
  new = jnp.array([[9, 8, 7]] * 2)
  found = model.apply(params, new, cache._replace(length=length)).logits
  rows = [padded(TOKENS[i, : length[i]], new[i]) for i in range(2)]
  expected = whole(name, jnp.stack(rows)).logits
  for row, start in enumerate(length.tolist()):
    close(found[row], expected[row, start : start + 3])


@pytest.mark.parametrize('name', CONFIGS)
def test_a_tree_in_one_pass_equals_its_branches_apart(name):
  model, params = compiled(name)
  start = 7
  tree = jnp.array([[11, 22, 33, 44, 55]] * 2)
  # From the root to each token: 0 -> {1 -> {3, 4}, 2}.
  paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4]]
  mask = np.zeros((2, 5, 5), bool)
  for node, path in enumerate(paths):
    mask[:, node, path] = True
  positions = jnp.array([[start + len(path) - 1 for path in paths]] * 2)
  prefix = TOKENS[:, :start]
  cache = model.apply(params, prefix, model.init_cache(2, COUNT)).cache
  found = model.apply(params, tree, cache, positions, jnp.array(mask)).logits
  for node, path in enumerate(paths):
    branches = [
      padded(prefix[row], tree[row, jnp.array(path)]) for row in range(2)
    ]
    expected = whole(name, jnp.stack(branches)).logits
    close(found[:, node], expected[:, start + len(path) - 1])


@pytest.mark.parametrize('name, reach', [('plain', COUNT), ('everything', 9)])
def test_a_token_is_heard_by_later_ones_within_the_window(name, reach):
  # Through two layers of a window of 5, by itself and the 8 after it.
  changed = TOKENS.at[:, 3].add(1) % TINY.vocab_size
  difference = whole(name, TOKENS).logits - whole(name, changed).logits
  differs = np.max(np.abs(difference), (0, 2))
  assert np.all(differs[:3] == 0)
  assert np.all(differs[3 : 3 + reach] > 1e-4)
  assert np.all(differs[3 + reach :] == 0)


def test_features_of_the_last_layer_give_the_logits():
  output = whole('plain', TOKENS)
  _, params = compiled('plain')
  x = output.features[..., TINY.width :]
  norm = jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + TINY.norm_eps)
  scaled = x / norm * params['norm']['scale'][None, None]
  head = params['head'][...]
  close(jnp.einsum('btd,vd->btv', scaled, head), output.logits)


def test_features_of_a_layer_do_not_depend_on_later_ones():
  _, params = compiled('plain')
  config = dataclasses.replace(TINY, num_layers=1)
  first = functional.build(config, feature_layers=(0,))
  blocks = jax.tree.map(lambda leaf: leaf[:1], params['blocks'])
  alone = jax.jit(first.apply)(
    nnx.State({**params, 'blocks': blocks}),
    TOKENS,
    first.init_cache(2, COUNT),
  )
  assert alone.features.shape == (2, COUNT, first.feature_width)
  close(alone.features, whole('plain', TOKENS).features[..., : TINY.width])


def test_logits_of_padding_ids_are_cut_off():
  model = functional.build(TINY, vocab_size=50)
  _, params = compiled('plain')
  output = jax.jit(model.apply)(params, TOKENS % 50, model.init_cache(2, COUNT))
  assert model.vocab_size == 50
  close(output.logits, whole('plain', TOKENS % 50).logits[..., :50])


@pytest.mark.parametrize('rows, count', ((1, 1), (2, COUNT)))
def test_kernels_out_of_the_stack_are_the_same_model(rows, count):
  plain, params = compiled('everything')
  config = CONFIGS['everything']
  model = functional.build(config, unstacked=True)
  apart = functional.unstack(config, params)
  assert functional.num_params(apart) == functional.num_params(params)
  cache, tokens = plain.init_cache(rows, COUNT), TOKENS[:rows, :count]
  expected = plain.apply(params, tokens, cache).logits
  close(jax.jit(model.apply)(apart, tokens, cache).logits, expected)
