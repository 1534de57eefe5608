"""Prompt lookup: what followed the last tokens when they stood here before.

Saxena, https://github.com/apoorvumang/prompt-lookup-decoding. The longest
suffix of up to `max_match` tokens that occurs earlier in the row is looked up,
the latest occurrence wins, and what followed it is proposed. A continuation
that reaches the end of the row goes on in its own copy, so a loop of any
period is continued. No weights, no state of its own, no work on the host.
"""

import jax
import jax.numpy as jnp

from specdec.base import Drafter, Proposal, UsageError
from specdec.drafters import paced
from specdec.drafters.policies import fixed


def build(gamma, max_match=5, min_match=3, policy=None):
  """An n-gram drafter.

  Args:
    gamma: G, most drafts of a round; without a match there are none.
    max_match: longest suffix looked up, in tokens.
    min_match: shortest one that counts.
    policy: policies.policy.Policy; None drafts gamma tokens at every match.

  Returns:
    base.Drafter; it declares point masses. Its state is a paced.Paced.

  Raises:
    UsageError: a number is out of its range.
  """
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')
  if not 1 <= min_match <= max_match:
    raise UsageError(
      f'ngram.min_match = {min_match}: it must be in'
      f' 1..ngram.max_match = {max_match}'
    )

  policy = fixed.build(gamma) if policy is None else policy

  def propose_row(tokens, length, limit):
    starts, matched = _matches(tokens, length, max_match)
    score = jnp.where(
      matched >= min_match, matched * tokens.shape[0] + starts, -1
    )
    best = jnp.argmax(score)
    period = jnp.maximum(length - best, 1)
    drafts = tokens[best + jnp.arange(gamma) % period]
    found = score[best] >= 0
    return Proposal(drafts, None, jnp.where(found, limit, 0))

  def propose(params, state, tokens, length, keys, sampling, limit):
    del params, keys, sampling
    return jax.vmap(propose_row)(tokens, length, limit), state

  def init(params, tokens, length, features):
    del params, tokens, length, features
    return ()

  def commit(params, state, tokens, length, features):
    del params, tokens, length, features
    return state

  return paced.build(Drafter(init, propose, commit, gamma), policy)


def _matches(tokens, length, max_match):
  """How well the row's end matches what stands before each index.

  Args:
    tokens: int32 [S].
    length: int32 [].
    max_match: longest suffix.

  Returns:
    The indices, int32 [S], and for each the length of the longest common
    suffix of tokens[:index] and tokens[:length], int32 [S], at most
    `max_match`; 0 from `length` on.
  """
  starts = jnp.arange(tokens.shape[0], dtype=jnp.int32)
  alike = starts < length
  matched = jnp.zeros_like(starts)
  for back in range(1, max_match + 1):
    here = starts - back
    same = tokens[jnp.maximum(here, 0)] == tokens[jnp.maximum(length - back, 0)]
    alike &= same & (here >= 0)
    matched += alike
  return starts, matched
