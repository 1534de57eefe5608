"""Speculative decoding: draft, verify in one target call, commit.

Leviathan et al., https://arxiv.org/abs/2211.17192. A round feeds the target
the last committed token and the drafts; the rule keeps a prefix of them and
draws one more token. It feeds only as many tokens as the longest proposal of
the batch asks for, rounded up to one of `feed_lengths`: with no proposal at
all a round is an autoregressive step.

Tokens = rounds + accepted - truncated, where stop tokens truncate.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec import sampling
from specdec.base import (
  RUNNING,
  Cache,
  Proposal,
  RoundInfo,
  UsageError,
  Verdict,
)
from specdec.decode import commit
from specdec.decode.decoder import Decoder, drive


class Verification(NamedTuple):
  """What a target call leaves behind, whatever its length."""

  cache: Cache
  verdict: Verdict  # of B rows
  logprobs: jax.Array  # float32 [B, G+1], of the emitted block
  features: jax.Array  # float32 [B, G+1, F]
  expected: jax.Array  # float32 [B], E[num_accepted | drafts], or 0


def feed_lengths(gamma):
  """Tokens a row that a target call is compiled for: none, half, all drafts."""
  return sorted({1, gamma // 2 + 1, gamma + 1})


def build(target, drafter, rule, use_law=False) -> Decoder:
  """A speculative decoder.

  Args:
    target: base.Model.
    drafter: base.Drafter, which sets gamma.
    rule: base.VerifyRule.
    use_law: count also what the rule's law expects of each round's drafts, a
      Rao-Blackwell estimate of E[tau]; it costs time and changes no token.

  Returns:
    Decoder over Weights(target, draft).

  Raises:
    UsageError: the drafter draws with the target's noise, and the rule does
      not: its output would be biased.
  """
  if drafter.shares_noise and not rule.shares_noise:
    raise UsageError(
      "shares_noise = True: drafts drawn with the target's noise need the rule"
      ' coupled; build the drafter without it'
    )
  gamma = drafter.gamma
  slots = jnp.arange(gamma)[None]

  def step(weights, state):
    alive = state.finish_reason == RUNNING
    rows = jnp.arange(alive.size)
    proposal, draft = drafter.propose(
      weights.draft,
      state.draft,
      state.tokens,
      state.length,
      state.key,
      state.sampling,
    )
    if use_law and rule.shares_noise and not drafter.shares_noise:
      # Of a point mass the law is right whatever the noise.
      if proposal.probs is not None:
        raise UsageError(
          "use_law = True: the rule's law is of drafts that share its noise;"
          ' build the drafter with shares_noise=True'
        )
    # A budget of r tokens has no use for more than r - 1 drafts.
    room = state.max_length - state.length - 1
    length = jnp.where(alive, jnp.minimum(proposal.length, room), 0)
    proposal = proposal._replace(length=length)

    last = state.tokens[rows, state.length - 1][:, None]
    fed = jnp.concatenate([last, proposal.tokens], 1)
    call, result = _verify(
      target, rule, use_law, weights.target, state, fed, proposal
    )
    accepted = jnp.where(alive, result.verdict.num_accepted, 0)
    block = _block(proposal.tokens, result.verdict)
    state, emitted = commit.append(
      state,
      block,
      result.logprobs,
      jnp.arange(gamma + 1)[None] < accepted[:, None],
      accepted + 1,
    )

    old = state.counters
    state = state._replace(
      cache=result.cache._replace(length=state.length - 1),
      draft=drafter.commit(
        weights.draft, draft, state.tokens, state.length, result.features
      ),
      counters=old._replace(
        rounds=old.rounds + alive,
        drafted=old.drafted + length,
        accepted=old.accepted + accepted,
        committed=old.committed + emitted,
        drafted_at=old.drafted_at + (slots < length[:, None]),
        accepted_at=old.accepted_at + (slots < accepted[:, None]),
        expected=old.expected + jnp.where(alive, result.expected, 0),
      ),
      calls=state.calls.at[call].add(1),
    )
    info = RoundInfo(block, result.logprobs, emitted, length, accepted, call)
    return state, info

  return drive(target, drafter, step)


def _block(drafts, verdict):
  """Accepted drafts, then the next token, int32 [B, G+1]."""
  slots = jnp.arange(drafts.shape[1] + 1)[None]
  return jnp.where(
    slots < verdict.num_accepted[:, None],
    jnp.pad(drafts, ((0, 0), (0, 1))),
    verdict.next_token[:, None],
  )


def _expected_accepted(rule, proposal, target_probs):
  """E[num_accepted | drafts] of one sequence, float []."""
  ends = jnp.sum(rule.law(proposal, target_probs), -1)
  return jnp.sum(ends * jnp.arange(ends.size))


def _verify(target, rule, use_law, params, state, fed, proposal):
  """One target call of the length that the batch needs, and its verdict.

  The lengths are a chain of loops that run once or not at all: a loop updates
  the cache in place, where a `lax.switch` inside the decode loop copies it.

  Returns:
    The tokens fed to each row, int32 [], and the Verification.
  """
  batch, width = fed.shape
  needed = jnp.max(proposal.length) + 1

  def call(length, cache):
    output = target.apply(params, fed[:, :length], cache)
    drafts = Proposal(
      proposal.tokens[:, : length - 1],
      None if proposal.probs is None else proposal.probs[:, : length - 1],
      proposal.length,
    )
    probs = sampling.transform(output.logits, state.sampling)
    verdict = jax.vmap(rule.verify)(state.key, state.length, drafts, probs)
    block = _block(drafts.tokens, verdict)
    logprobs = commit.token_logprobs(output.logits, block)
    expected = jnp.zeros(batch)
    if use_law:
      expected = jax.vmap(functools.partial(_expected_accepted, rule))(
        drafts, probs
      )
    pad = ((0, 0), (0, width - length))
    return Verification(
      output.cache._replace(length=cache.length),
      verdict,
      jnp.pad(logprobs, pad),
      jnp.pad(output.features, (*pad, (0, 0))),
      expected,
    )

  none = jnp.zeros(batch, jnp.int32)
  result = Verification(
    state.cache,
    Verdict(none, none),
    jnp.zeros((batch, width)),
    jnp.zeros((batch, width, target.feature_width)),
    jnp.zeros(batch),
  )
  lengths = feed_lengths(width - 1)
  fed_length = jnp.int32(lengths[-1])
  for length in reversed(lengths):
    fed_length = jnp.where(needed <= length, length, fed_length)
  if len(lengths) == 1:
    return fed_length, call(width, state.cache)
  for length in lengths:
    _, result = jax.lax.while_loop(
      lambda carry: carry[0],
      lambda carry, length=length: (
        jnp.bool_(False),
        call(length, carry[1].cache),
      ),
      (fed_length == length, result),
    )
  return fed_length, result
