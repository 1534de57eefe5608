"""The forward pass over whole rows: the cached one, and differentiable."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models

from specdec.models import functional, hf
from specdec.models.config import TINY, Rope

COUNT = 12
# Each position has a token of its own, so that the gradient of a row of the
# embedding is that of a position. Untied: the head is another array.
TOKENS = jnp.arange(COUNT)[None]
CONFIGS = {
  'plain': TINY,
  'window': dataclasses.replace(
    TINY,
    rope=Rope(theta=500.0, kind='yarn', factor=4.0, original_length=8),
    qkv_bias=True,
    out_bias=True,
    qk_norm=True,
    sliding_window=3,
  ),
}
CASES = (
  'Llama-tied-kv4-llama3',
  'Mistral-window',
  'Qwen3-attention-bias',
)


def error(found, expected):
  return np.max(np.abs(found - expected)) / np.max(np.abs(expected))


@functools.cache
def init(name):
  """Weights of which none is neutral, neither a norm nor a bias."""
  draws = np.random.default_rng(0)
  return jax.tree.map(
    lambda leaf: jnp.float32(0.2 * draws.normal(size=leaf.shape)),
    functional.abstract(CONFIGS[name]),
  )


@functools.cache
def compiled(name, **how):
  """(params, t) -> the logits [T, V], the gradient of a score of those at t."""
  forward = functional.forward(CONFIGS[name], **how)
  draw = jax.random.normal(jax.random.key(2), (TINY.vocab_size,))

  def score(params, t):
    logits = forward(params, TOKENS).logits[0]
    return logits[t] @ draw, logits

  def run(params, t):
    gradient, logits = jax.grad(score, has_aux=True)(params, t)
    return logits, gradient

  return jax.jit(run)


def run(name, t=COUNT - 1, **how):
  return compiled(name, **how)(init(name), t)


@pytest.mark.parametrize('name', CASES)
def test_whole_rows_give_the_logits_of_the_cached_pass(name, tmp_path):
  checkpoint = hf.load(tiny_models.write(tmp_path, name))
  cached = functional.build(checkpoint.config, feature_layers=(0, 1))
  whole = functional.forward(checkpoint.config, feature_layers=(0, 1))
  tokens = jnp.array([tiny_models.TOKENS, tiny_models.TOKENS[::-1]])
  cache = cached.init_cache(*tokens.shape)
  want = jax.jit(cached.apply)(checkpoint.params, tokens, cache)
  got = jax.jit(whole)(checkpoint.params, tokens)
  assert error(got.logits, want.logits) < 1e-5
  assert error(got.features, want.features) < 1e-5


@pytest.mark.parametrize('name, reach', [('plain', COUNT), ('window', 5)])
def test_no_gradient_flows_from_later_tokens(name, reach):
  # Through two layers of a window of 3: itself and the 4 before it.
  for t in range(COUNT):
    rows = run(name, t)[1]['embedding'][...][:COUNT]
    slope = np.linalg.norm(rows, axis=-1)
    ago = t - np.arange(COUNT)
    heard = (ago >= 0) & (ago < reach)
    assert np.all(slope[~heard] == 0)
    assert np.all(slope[heard] > 1e-6)


def test_every_weight_has_a_gradient():
  for path, leaf in jax.tree.leaves_with_path(run('window')[1]):
    assert np.any(leaf != 0), jax.tree_util.keystr(path)


def test_computing_layers_again_changes_no_gradient():
  again, once = run('window', remat=True)[1], run('window')[1]
  for found, expected in zip(*map(jax.tree.leaves, (again, once)), strict=True):
    assert error(found, expected) < 1e-5


def test_bfloat16_inside_gives_float32_logits_and_gradients():
  logits, gradient = run('plain', dtype=jnp.bfloat16)
  assert logits.dtype == jnp.float32
  # Eight bits of mantissa, not twenty-four: near, and really rounded.
  assert 1e-4 < error(logits, run('plain')[0]) < 5e-2
  for leaf in jax.tree.leaves(gradient):
    assert leaf.dtype == jnp.float32 and np.all(np.isfinite(leaf))


def test_logits_of_padding_ids_are_cut_off_in_training_too():
  forward = functional.forward(TINY, vocab_size=50)
  output = jax.eval_shape(forward, init('plain'), TOKENS)
  assert output.logits.shape == (1, COUNT, 50)
