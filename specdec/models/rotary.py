"""Rotary position embedding, in the half-split form.

Su et al., https://arxiv.org/abs/2104.09864. A head's first and second half are
the real and imaginary parts of head_dim / 2 rotating pairs.
"""

import math

import jax.numpy as jnp
import numpy as np


def frequencies(rope, head_dim):
  """Angular frequencies, radians a token.

  Args:
    rope: config.Rope.
    head_dim: width of one head.

  Returns:
    float64 [head_dim / 2], and the factor that scales cosine and sine.
  """
  pairs = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
  base = rope.theta**-pairs
  stretched = base / rope.factor
  if rope.kind == 'none':
    return base, 1.0
  if rope.kind == 'linear':
    return stretched, 1.0
  if rope.kind == 'divided':
    return base / np.array(rope.divisors), 1.0
  if rope.kind == 'llama3':
    return _llama3(rope, base, stretched), 1.0
  ramp = _yarn_ramp(rope, head_dim)
  scale = rope.attention_factor
  if scale is None:
    scale = 0.1 * math.log(rope.factor) + 1 if rope.factor > 1 else 1.0
  return stretched * ramp + base * (1 - ramp), scale


def angles(rope, head_dim, positions):
  """Cosine and sine of every pair, float32 [B, T, head_dim / 2] each.

  Args:
    rope: config.Rope.
    head_dim: width of one head.
    positions: int32 [B, T].
  """
  base, scale = frequencies(rope, head_dim)
  base = jnp.asarray(base, jnp.float32)[None, None]
  angle = positions[..., None].astype(jnp.float32) * base
  return jnp.cos(angle) * scale, jnp.sin(angle) * scale


def rotate(x, cosine, sine):
  """Rotates the pairs of x, [B, T, heads, head_dim], in float32."""
  cosine, sine = cosine[:, :, None], sine[:, :, None]
  real, imaginary = jnp.split(x.astype(jnp.float32), 2, -1)
  return jnp.concatenate(
    [real * cosine - imaginary * sine, imaginary * cosine + real * sine], -1
  ).astype(x.dtype)


def _llama3(rope, base, stretched):
  """Long wavelengths are stretched, short ones kept, a blend between."""
  turns = rope.original_length * base / (2 * math.pi)
  span = rope.high_freq_factor - rope.low_freq_factor
  keep = np.clip((turns - rope.low_freq_factor) / span, 0, 1)
  return stretched * (1 - keep) + base * keep


def _yarn_ramp(rope, head_dim):
  """How much of each pair is stretched, 0 to 1."""

  def pair_of(turns):
    length = rope.original_length / (turns * 2 * math.pi)
    return head_dim * math.log(length) / (2 * math.log(rope.theta))

  low, high = pair_of(rope.beta_fast), pair_of(rope.beta_slow)
  if rope.truncate:
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, head_dim - 1)
  if low == high:
    high += 0.001
  return np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
