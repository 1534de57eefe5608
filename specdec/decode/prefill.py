"""From prompts to the state that the first round needs.

The whole prompt is fed, but the last committed token counts as not yet cached:
the first round feeds it again, like every round. So a round's first token
needs no path of its own.
"""

import jax.numpy as jnp
import numpy as np

from specdec import cache as cache_lib
from specdec.base import (
  BUDGET,
  RUNNING,
  Counters,
  DecodeState,
  UsageError,
)

# Rows of up to so many stop tokens share one compilation.
STOP_SLOTS = 8


def state(
  target, drafter, weights, tokens, length, max_length, stops, key, sampling
):
  """Feeds the prompts to both models and sets all counters to zero.

  Args:
    target: base.Model.
    drafter: base.Drafter.
    weights: base.Weights.
    tokens: int32 [B, S], right-padded prompts.
    length: int32 [B], of the prompts.
    max_length: int32 [B], prompt and budget.
    stops: int32 [B, N], -1 is no token.
    key: typed keys [B].
    sampling: SamplingParams [B].

  Returns:
    DecodeState.
  """
  batch = tokens.shape[0]
  gamma = drafter.gamma
  cache, features = cache_lib.fill(target, weights.target, tokens, length)
  draft = drafter.init(weights.draft, tokens, length, features)
  zeros = jnp.zeros(batch, jnp.int32)
  by_slot = jnp.zeros((batch, gamma), jnp.int32)
  return DecodeState(
    tokens=tokens,
    length=length,
    prompt_length=length,
    max_length=max_length,
    stop_tokens=stops,
    finish_reason=jnp.where(max_length > length, RUNNING, BUDGET),
    logprobs=jnp.zeros(tokens.shape),
    drafted=jnp.zeros(tokens.shape, bool),
    key=key,
    sampling=sampling,
    cache=cache._replace(length=length - 1),
    draft=draft,
    counters=Counters(
      zeros, zeros, zeros, zeros, by_slot, by_slot, jnp.zeros(batch)
    ),
    calls=jnp.zeros(gamma + 2, jnp.int32),
  )


def check_rows(num, keys, sampling):
  """Refuses keys or parameters of another number of rows than the prompts.

  Args:
    num: B, prompts.
    keys: typed keys [B].
    sampling: SamplingParams [B].

  Raises:
    UsageError: it names the field.
  """
  for name, value in (('keys', keys), *sampling._asdict().items()):
    if value.shape != (num,):
      raise UsageError(
        f'{name} has the shape {value.shape}: give one for each of {num}'
        ' prompts'
      )


def arrays(target, gamma, prompts, max_new_tokens, stops, max_len=None):
  """Checks a batch of prompts and lays it out.

  Args:
    target: base.Model.
    gamma: G.
    prompts: B lists of token ids, none empty.
    max_new_tokens: budget, one int or one a row.
    stops: token ids that end any row, or B lists of them.
    max_len: tokens that every row has room for; None is just enough. Calls
      with the same value share one compilation.

  Returns:
    tokens [B, S] with S = max_len + G + 1, length [B], max_length [B] and
    stops [B, N], int32 each.

  Raises:
    UsageError: a prompt is empty, or it does not fit.
  """
  length = np.array([len(prompt) for prompt in prompts], np.int32)
  budget = np.asarray(max_new_tokens)
  if budget.shape not in ((), length.shape) or budget.dtype.kind not in 'iu':
    raise UsageError(
      f'max_new_tokens = {max_new_tokens}: give an integer, or one for each of'
      f' {len(prompts)} prompts'
    )
  budget = np.broadcast_to(budget, length.shape).astype(np.int32)
  max_length = length + budget
  if len(prompts) == 0 or not length.all():
    raise UsageError('prompts: each needs at least one token')
  if budget.min() < 0:
    raise UsageError(f'max_new_tokens = {budget.min()}: it must be at least 0')
  limit = target.max_length if max_len is None else max_len
  limit = min(limit, target.max_length)
  if max_length.max() > limit:
    row = int(np.argmax(max_length))
    raise UsageError(
      f'prompt {row} has {length[row]} tokens and max_new_tokens ='
      f' {budget[row]}: together they must not exceed {limit};'
      ' shorten one of them'
    )
  width = (max_length.max() if max_len is None else max_len) + gamma + 1
  tokens = np.zeros((len(prompts), width), np.int32)
  for row, prompt in enumerate(prompts):
    if min(prompt) < 0 or max(prompt) >= target.vocab_size:
      raise UsageError(
        f'prompt {row} has a token outside 0..{target.vocab_size - 1}: encode'
        " it with the target's tokenizer"
      )
    tokens[row, : len(prompt)] = prompt
  return (
    jnp.asarray(tokens),
    jnp.asarray(length),
    jnp.asarray(max_length),
    jnp.asarray(_stop_rows(stops, len(prompts))),
  )


def _stop_rows(stops, batch):
  """Stop tokens as int32 [B, N], padded with -1 to a multiple of STOP_SLOTS."""
  rows = [list(row) if np.ndim(row) else None for row in stops]
  if not rows or rows[0] is None:
    rows = [list(stops)] * batch
  if len(rows) != batch:
    raise UsageError(f'stops has {len(rows)} rows: give one for each prompt')
  longest = max(1, *(len(row) for row in rows))
  width = -(-longest // STOP_SLOTS) * STOP_SLOTS
  return np.array([row + [-1] * (width - len(row)) for row in rows], np.int32)
