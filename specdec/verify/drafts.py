"""What every rule reads from a proposal: p and q of its drafts, rows of q."""

import jax
import jax.numpy as jnp


def drafted_probs(proposal, target_probs):
  """p and q of the drafted tokens.

  Args:
    proposal: base.Proposal of G drafts.
    target_probs: float [G+1, V].

  Returns:
    float [G] each; a point mass has q = 1.
  """
  slots = jnp.arange(proposal.tokens.shape[0])
  p = target_probs[slots, proposal.tokens]
  if proposal.probs is None:
    return p, jnp.ones_like(p)
  return p, proposal.probs[slots, proposal.tokens]


def draft_row(proposal, slot, like):
  """What the draft of one slot was drawn from.

  Args:
    proposal: base.Proposal of G > 0 drafts.
    slot: int32 []; from G on it is taken as G - 1.
    like: float [V], whose width and dtype a point mass takes.

  Returns:
    float [V].
  """
  slot = jnp.minimum(slot, proposal.tokens.shape[0] - 1)
  if proposal.probs is None:
    return jax.nn.one_hot(
      proposal.tokens[slot], like.shape[-1], dtype=like.dtype
    )
  return proposal.probs[slot]


def draft_rows(proposal, target_probs):
  """What the drafts of all slots were drawn from.

  Args:
    proposal: base.Proposal of G drafts.
    target_probs: float [G+1, V], whose width and dtype point masses take.

  Returns:
    float [G, V].
  """
  if proposal.probs is None:
    return jax.nn.one_hot(
      proposal.tokens, target_probs.shape[-1], dtype=target_probs.dtype
    )
  return proposal.probs


def num_leading(accepted):
  """How many stand before the first False of bool [G]. int32 []."""
  return jnp.sum(jnp.cumprod(accepted.astype(jnp.int32))).astype(jnp.int32)


def end_probs(accept, length):
  """Where a rule ends that goes from draft to draft until one fails.

  Args:
    accept: float [G], P(draft i is accepted | those before it are); 0 from
      `length` on.
    length: int32 [], valid drafts.

  Returns:
    float [G+1], P(num_accepted = n).
  """
  one = jnp.ones(1, accept.dtype)
  reach = jnp.cumprod(jnp.concatenate([one, accept]))
  end = jnp.concatenate([1 - accept, one])
  return jnp.where(jnp.arange(end.size) <= length, reach * end, 0)
