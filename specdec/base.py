"""The vocabulary of the package: what is carried, and what acts on it.

Shape letters: B sequences, G draft slots of a round, V vocabulary, T tokens
fed to a model in one call, S buffer rows, P prompt columns, N stop tokens,
F feature width, L layers, H heads, K key-value heads, D width.

Speculative decoding: Leviathan et al., https://arxiv.org/abs/2211.17192, and
Chen et al., https://arxiv.org/abs/2302.01318.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Params = Any  # a pytree of weights
Cache = Any  # a pytree with a field `length`, int32 [B], and `_replace`

# Values of `DecodeState.finish_reason`.
RUNNING, STOP, BUDGET = 0, 1, 2
FINISH_REASONS = ('running', 'stop', 'budget')


class UsageError(ValueError):
  """Bad input. The message is one line: the field, its value, the mend."""


class SamplingParams(NamedTuple):
  """How each row turns logits into the distribution that is sampled."""

  temperature: jax.Array  # float32 [B], 0 is a point mass on the argmax
  top_k: jax.Array  # int32 [B], values outside 1..V-1 keep every token
  top_p: jax.Array  # float32 [B], in (0, 1], 1 keeps every token
  min_p: jax.Array  # float32 [B], in [0, 1), 0 keeps every token


class Proposal(NamedTuple):
  """The drafts of one sequence in one round (a leading B when batched)."""

  tokens: jax.Array  # int32 [G], drafted left to right
  probs: jax.Array | None  # float32 [G, V], what each token was drawn from;
  # None is a point mass on each token
  length: jax.Array  # int32 [], valid drafts, 0..G


class Verdict(NamedTuple):
  """What the target made of one proposal."""

  num_accepted: jax.Array  # int32 [], 0..length
  next_token: jax.Array  # int32 [], the correction, or the bonus


class VerifyRule(NamedTuple):
  """A verification rule, as sampler and as law. Written for one sequence."""

  verify: Callable[..., Verdict]
  # (key, position, Proposal, target_probs [G+1, V]) -> Verdict
  # key is the sequence's; position is the index of the first draft
  law: Callable[..., jax.Array]
  # (Proposal, target_probs [G+1, V]) -> float [G+1, V],
  # P(num_accepted = n, next_token = x | drafts)
  lossless: bool  # is the output's law exactly the target's?
  shares_noise: bool = False  # may drafts be drawn with the target's noise?


class ModelOutput(NamedTuple):
  """One forward pass over T new tokens."""

  logits: jax.Array  # float32 [B, T, V]
  features: jax.Array  # float32 [B, T, F], hidden states of chosen layers
  cache: Cache  # length advanced by T


class Model(NamedTuple):
  """A language model as pure functions: a target, or a draft."""

  apply: Callable[..., ModelOutput]
  # (params, tokens [B, T], cache, positions=None [B, T], mask=None [B, T, T])
  init_cache: Callable[[int, int], Cache]  # (B, S) -> an empty cache
  vocab_size: int  # V
  feature_width: int  # F, 0 when no features are asked for
  max_length: int  # the longest sequence that the model can hold, in tokens


class Drafter(NamedTuple):
  """Where proposals come from, as pure batched functions.

  Rolling back is no operation: state is indexed by length, and stale rows are
  overwritten.
  """

  init: Callable[..., Any]
  # (params, tokens [B, S], length [B], features [B, S, F]) -> state
  propose: Callable[..., tuple[Proposal, Any]]
  # (params, state, tokens [B, S], length [B], keys [B], SamplingParams)
  # -> (Proposal of B rows, state); keys are the sequences'
  commit: Callable[..., Any]
  # (params, state, tokens [B, S], length [B], features [B, G+1, F]) -> state
  # after a round: length is the new one; features[:, i] belongs to the token
  # at the old length - 1 + i
  gamma: int  # G, the most drafts of one round
  shares_noise: bool = False  # drawn with the target's noise, by absolute
  # position? Then only a rule that shares it leaves the law alone


class Weights(NamedTuple):
  """The params of a decoder's two models."""

  target: Params
  draft: Params  # None for a drafter without weights


class Counters(NamedTuple):
  """What happened to each row. tokens = rounds + accepted - truncated."""

  rounds: jax.Array  # int32 [B], rounds in which the row was alive
  drafted: jax.Array  # int32 [B], drafts that were verified
  accepted: jax.Array  # int32 [B], drafts that were accepted
  committed: jax.Array  # int32 [B], tokens emitted, after stop and budget
  drafted_at: jax.Array  # int32 [B, G], the same by position in the round
  accepted_at: jax.Array  # int32 [B, G]
  expected: jax.Array  # float32 [B], sum of E[num_accepted | drafts], by the
  # rule's law; 0 where it was not asked for


class RoundInfo(NamedTuple):
  """One round, for people and plots."""

  tokens: jax.Array  # int32 [B, G+1], the block: accepted drafts, next token
  logprobs: jax.Array  # float32 [B, G+1], each under the target
  committed: jax.Array  # int32 [B], how many of them were emitted
  drafted: jax.Array  # int32 [B]
  accepted: jax.Array  # int32 [B]
  fed: jax.Array  # int32 [], tokens per row that the target was fed


class DecodeState(NamedTuple):
  """All that the next round needs."""

  tokens: jax.Array  # int32 [B, S], prompt, then output; junk past length
  length: jax.Array  # int32 [B], committed tokens, the prompt's included
  prompt_length: jax.Array  # int32 [B]
  max_length: jax.Array  # int32 [B], the length at which the budget ends
  stop_tokens: jax.Array  # int32 [B, N], -1 is no token
  finish_reason: jax.Array  # int32 [B], RUNNING, STOP or BUDGET
  logprobs: jax.Array  # float32 [B, S], each output token under the target
  drafted: jax.Array  # bool [B, S], was this token an accepted draft?
  key: jax.Array  # typed key [B], one a sequence
  sampling: SamplingParams
  cache: Cache  # the target's; holds every committed token but the last
  draft: Any  # the drafter's state
  counters: Counters
  calls: jax.Array  # int32 [G+2], target calls, by tokens fed to each row
