"""What a draft would gain on given text, without decoding any.

Leviathan et al., https://arxiv.org/abs/2211.17192. Before each token of a text
stand p and q; the draft's chance there is the overlap sum_x min(p, q). Over
text that the target wrote, the chance of a whole round follows as well: drafts
x_1, .., x_i come from q and are kept with min(1, p / q), so that

  P(i are accepted) = sum over x of prod_j q(x_j) min(1, p(x_j) / q(x_j))
                    = E over x from p of prod_{j < i} min(1, q(x_j) / p(x_j))
                                         times the overlap before x_i.

Everything is aligned to tokens: entry t is about token t, given those before
it. Entry 0 is 0, since nothing stands before the first token.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specdec import cache as cache_lib
from specdec import rng, sampling, theory


class Overlaps(NamedTuple):
  """Two distributions beside each other, along texts."""

  overlap: jax.Array  # float32 [B, S], sum_x min(p, q)
  kept: jax.Array  # float32 [B, S], min(1, q / p) of the token that came


class Reader(NamedTuple):
  """A model or a drafter, asked at every prefix of given texts."""

  init: Callable[..., Any]
  # (params, tokens [B, S]) -> state; S a multiple of cache.CHUNK
  read: Callable[..., tuple[jax.Array, Any]]
  # (params, state, tokens [B, S], at, SamplingParams)
  # -> (probs [B, CHUNK, V] after tokens[:, : at + 1] and on, state)


def of_logits(target_logits, draft_logits, params, mask=None):
  """sum_x min(p, q), with p and q as they are sampled.

  Args:
    target_logits: float [B, T, V].
    draft_logits: float [B, T, V]; -inf is a token that the draft cannot say.
    params: SamplingParams of B rows.
    mask: bool [B, T], which positions count; None is all.

  Returns:
    float32 [B, T], 0 where the mask is False.
  """
  assert target_logits.shape == draft_logits.shape, draft_logits.shape
  overlap = theory.overlap(
    *(sampling.transform(x, params) for x in (target_logits, draft_logits))
  )
  return overlap if mask is None else jnp.where(mask, overlap, 0)


def of_model(model) -> Reader:
  """Reads with a base.Model, piece by piece."""

  def init(params, tokens):
    del params
    return model.init_cache(*tokens.shape)

  def read(params, cache, tokens, at, sampling_params):
    output = model.apply(params, _piece(tokens, at), cache)
    return sampling.transform(output.logits, sampling_params), output.cache

  return Reader(init, read)


def of_drafter(drafter, vocab_size) -> Reader:
  """Reads with a drafter that carries nothing from token to token.

  Such as a table or `ngram`, at a fixed gamma.

  Where it proposes nothing q is 0, and so is the overlap.

  Args:
    drafter: base.Drafter of gamma = 1.
    vocab_size: V.
  """
  assert drafter.gamma == 1, drafter.gamma

  def init(params, tokens):
    del params, tokens
    return ()

  def read(params, state, tokens, at, sampling_params):
    batch, width = tokens.shape
    lengths = at + 1 + jnp.arange(cache_lib.CHUNK)
    rows = jnp.repeat(jnp.arange(batch), cache_lib.CHUNK)
    lengths = jnp.minimum(jnp.tile(lengths, batch), width)
    proposal, _ = drafter.propose(
      params,
      drafter.init(params, tokens[rows], lengths, None),
      tokens[rows],
      lengths,
      # What is drawn does not matter: q is what it is drawn from.
      rng.sequence_keys(0, rows.size),
      jax.tree.map(lambda x: x[rows], sampling_params),
    )
    if proposal.probs is None:
      probs = jax.nn.one_hot(proposal.tokens[:, 0], vocab_size)
    else:
      probs = proposal.probs[:, 0]
    probs = jnp.where((proposal.length > 0)[:, None], probs, 0)
    return probs.reshape(batch, cache_lib.CHUNK, vocab_size), state

  return Reader(init, read)


def build(target: Reader, draft: Reader):
  """Compares two readers along texts.

  Args:
    target: Reader.
    draft: Reader of the same vocabulary.

  Returns:
    (weights, tokens int32 [B, S], SamplingParams, longest=None) -> Overlaps,
    to be jitted. Texts are padded on the right. `longest`, int32 [], is the
    length of the longest: what lies far beyond is not read, and its entries
    are 0.
  """

  def compare(weights, tokens, sampling_params, longest=None):
    batch, width = tokens.shape
    chunk = cache_lib.CHUNK
    padded = -(-width // chunk) * chunk
    tokens = jnp.pad(tokens, ((0, 0), (0, padded + 1 - width)))
    fed = tokens[:, :-1]
    end = padded if longest is None else jnp.minimum(longest - 1, padded)

    def step(carry):
      at, states, found = carry
      p, target_state = target.read(
        weights.target, states[0], fed, at, sampling_params
      )
      q, draft_state = draft.read(
        weights.draft, states[1], fed, at, sampling_params
      )
      here = _compare(p, q, _piece(tokens, at + 1))
      found = jax.tree.map(
        lambda whole, piece: jax.lax.dynamic_update_slice_in_dim(
          whole, piece, at + 1, 1
        ),
        found,
        here,
      )
      return at + chunk, (target_state, draft_state), found

    states = (
      target.init(weights.target, fed),
      draft.init(weights.draft, fed),
    )
    zeros = jnp.zeros((batch, padded + 1))
    _, _, found = jax.lax.while_loop(
      lambda carry: carry[0] < end,
      step,
      (jnp.int32(0), states, Overlaps(zeros, zeros)),
    )
    return jax.tree.map(lambda x: x[:, :width], found)

  return compare


def by_position(overlaps, mask, gamma):
  """What becomes of a round that starts at each token of a reply.

  Args:
    overlaps: Overlaps [B, S].
    mask: bool [B, S], the reply, without gaps.
    gamma: G.

  Returns:
    reached, float [B, S, G]: the chance that the drafts before the i-th are
    all accepted; survived, float [B, S, G]: that the i-th is, too; both 0
    where counts, bool [B, S, G], says that the reply ends before it.
  """
  reach = jnp.where(mask, 1.0, 0.0)
  results = []
  for offset in range(gamma):
    overlap, kept, inside = (
      jnp.pad(x[:, offset:], ((0, 0), (0, offset))) for x in (*overlaps, mask)
    )
    counts = mask & inside
    reach = jnp.where(counts, reach, 0)
    results.append((reach, reach * overlap, counts))
    reach = reach * kept
  return tuple(jnp.stack(parts, -1) for parts in zip(*results, strict=True))


def _compare(p, q, tokens):
  """Overlaps of probabilities [B, T, V] before tokens [B, T]."""
  of_p, of_q = (
    jnp.take_along_axis(x, tokens[..., None], -1)[..., 0] for x in (p, q)
  )
  return Overlaps(theory.overlap(p, q), sampling.acceptance(of_q, of_p))


def _piece(tokens, at):
  """The next CHUNK tokens, [B, CHUNK]."""
  return jax.lax.dynamic_slice_in_dim(tokens, at, cache_lib.CHUNK, 1)
