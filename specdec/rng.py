"""Where every key comes from.

Draws are keyed, never carried. A round's key is a function of the sequence's
key and of the position of the round's first draft; rounds start at distinct
committed positions, so no key is used twice. Within a round each purpose has
its stream, and each draw its offset: a draw depends on neither the batch, nor
padding, nor the number of drafts beside it.

Noise must not be keyed by absolute position alone: a rule that looks at later
drafts before it keeps an earlier one would meet the same noise again in the
next round, and its output would be biased.
"""

import jax
import jax.numpy as jnp

# Streams of a round.
DRAFT, ACCEPT, RESIDUAL, BONUS = range(4)


def sequence_keys(seed, num, start=0):
  """Keys of sequences start..start+num-1.

  Args:
    seed: int, the run's seed.
    num: number of sequences.
    start: index of the first sequence in the run.

  Returns:
    Typed keys [num]. A sequence's key depends on its index, not on `num`.
  """
  indices = start + jnp.arange(num)
  return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), indices)


def round_key(key, position):
  """The key of the round whose first draft stands at `position`."""
  return jax.random.fold_in(key, position)


def draw_key(key, position, stream, offset):
  """The key of one draw.

  Args:
    key: the sequence's key; it is not consumed.
    position: int32 [], position of the round's first draft.
    stream: DRAFT, ACCEPT, RESIDUAL or BONUS.
    offset: int32 [], index of the draw within the round.

  Returns:
    A typed key []; it is used for one draw.
  """
  stream_key = jax.random.fold_in(round_key(key, position), stream)
  return jax.random.fold_in(stream_key, offset)


def token_key(key, position):
  """The key of the token at an absolute position, whatever the round.

  It is the key that the autoregressive loop draws with. Among the rules only
  `coupled` may use it.

  Args:
    key: the sequence's key; it is not consumed.
    position: int32 [].

  Returns:
    A typed key [].
  """
  return draw_key(key, position, BONUS, 0)


def uniforms(key, position, num, dtype):
  """The uniforms of a round's acceptances.

  Args:
    key: the sequence's key; it is not consumed.
    position: int32 [], position of the round's first draft.
    num: number of drafts.
    dtype: of the result.

  Returns:
    [num] in [0, 1), keyed by offset.
  """
  keys = jax.vmap(draw_key, (None, None, None, 0))(
    key, position, ACCEPT, jnp.arange(num)
  )
  return jax.vmap(lambda k: jax.random.uniform(k, dtype=dtype))(keys)
