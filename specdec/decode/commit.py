"""From a verified block to committed tokens: stop, budget, buffers.

Shared by every loop, so that there is one answer to where a row ends.
"""

import jax.numpy as jnp

from specdec.base import BUDGET, RUNNING, STOP


def cut(block, count, budget, stops):
  """Where the first of (stop token, budget) ends a row.

  Args:
    block: int32 [B, W], candidate tokens.
    count: int32 [B], how many of them are valid.
    budget: int32 [B], how many may still be emitted.
    stops: int32 [B, N], -1 is no token.

  Returns:
    How many are emitted, int32 [B], and the finish reason, int32 [B]. A stop
    token is emitted; a stop wins over a budget that ends at the same token.
  """
  slots = jnp.arange(block.shape[1])[None]
  emitted = jnp.minimum(count, budget)
  is_stop = jnp.any(block[:, :, None] == stops[:, None, :], -1)
  is_stop &= slots < emitted[:, None]
  stopped = jnp.any(is_stop, -1)
  emitted = jnp.where(stopped, jnp.argmax(is_stop, -1) + 1, emitted)
  spent = jnp.where(emitted >= budget, BUDGET, RUNNING)
  return emitted.astype(jnp.int32), jnp.where(stopped, STOP, spent)


def append(state, block, logprobs, drafted, count):
  """Writes a block behind each row and ends the rows that are done.

  Args:
    state: DecodeState.
    block: int32 [B, W].
    logprobs: float32 [B, W].
    drafted: bool [B, W], which tokens were accepted drafts.
    count: int32 [B], valid tokens of the block; a finished row emits none.

  Returns:
    The state with tokens, logprobs, drafted, length and finish_reason
    updated, and how many tokens each row emitted, int32 [B].
  """
  budget = state.max_length - state.length
  alive = state.finish_reason == RUNNING
  emitted, reason = cut(block, count, budget, state.stop_tokens)
  emitted = jnp.where(alive, emitted, 0)
  rows = jnp.arange(block.shape[0])[:, None]
  slots = jnp.arange(block.shape[1])[None]
  # What is not emitted is aimed beyond the buffer and dropped.
  columns = jnp.where(
    slots < emitted[:, None],
    state.length[:, None] + slots,
    state.tokens.shape[1],
  )

  def put(buffer, values):
    return buffer.at[rows, columns].set(values, mode='drop')

  return state._replace(
    tokens=put(state.tokens, block),
    logprobs=put(state.logprobs, logprobs),
    drafted=put(state.drafted, drafted),
    length=state.length + emitted,
    finish_reason=jnp.where(alive, reason, state.finish_reason),
  ), emitted


def token_logprobs(logits, tokens):
  """Log-probabilities of tokens [B, T] under logits [B, T, V]; [B, T]."""
  chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
  top = jnp.max(logits, -1)
  spread = jnp.sum(jnp.exp(logits - top[..., None]), -1)
  return chosen - top - jnp.log(spread)
