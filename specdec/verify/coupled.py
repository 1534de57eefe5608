"""Shared noise: draft and target run one race, and often the same token wins.

Daliri et al., https://arxiv.org/abs/2408.07978. At each absolute position
every token x has one exponential E_x; the draft is argmin E_x / q(x), the
target's sample argmin E_x / p(x), and a draft is accepted when the two agree.
The output is the target's sample, whatever the draft: with the same key it is
the autoregressive loop's (drawn by `sampling.race`), token for token.

The law, by exponential races. Put u_x = q(x) / (p(x) + q(x)) and
N(u) = sum_x max((1 - u) q(x), u p(x)), which is linear between the u_x. Then

  P(draft x, sample x) = p(x) q(x) / ((p(x) + q(x)) N(u_x))
  P(draft x, sample y) = q(x) p(y) int_{u_y}^{u_x} du / N(u)^2, 0 if u_y > u_x,

and on a linear piece the integral is (b - a) / (N(a) N(b)). The first line
is 1 / sum_y max(p(y) / p(x), q(y) / q(x)).
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Proposal, Verdict, VerifyRule
from specdec.verify import drafts, sample_match


def verify(key, position, proposal: Proposal, target_probs) -> Verdict:
  """Accepts the drafts up to the first that is not the race's winner."""
  slots = jnp.arange(target_probs.shape[0])
  keys = jax.vmap(rng.token_key, (None, 0))(key, position + slots)
  samples = jax.vmap(sampling.race)(keys, target_probs)
  return sample_match.match(proposal, samples)


def draw(key, position, slot, probs):
  """A draft that runs the target's race; see Drafter.shares_noise.

  Args:
    key: the sequence's key.
    position: int32 [], position of the round's first draft.
    slot: int32 [], of this draft.
    probs: float [V].

  Returns:
    int32 [].
  """
  return sampling.race(rng.token_key(key, position + slot), probs)


def law(proposal: Proposal, target_probs):
  """P(num_accepted = n, next_token = x | drafts), as float [G+1, V].

  Drafts with probabilities are taken to be drawn by `draw`. A point mass is
  its own race's winner whatever the noise, and is accepted with p(x).
  """
  gamma = proposal.tokens.shape[0]
  if gamma == 0:
    return target_probs

  def at(slot):
    p = target_probs[slot]
    q = drafts.draft_row(proposal, slot, p)
    return sample_law(p, q, proposal.tokens[slot])

  slots = jnp.arange(gamma)
  samples = jax.vmap(at)(slots)
  valid = slots < proposal.length
  accept = jnp.where(valid, samples[slots, proposal.tokens], 0)
  samples = samples.at[slots, proposal.tokens].multiply(1 - valid)
  # A slot without a draft has no race to share: its row is p.
  rows = jnp.where(valid[:, None], samples, target_probs[:-1])
  left = jnp.where(valid, 1 - accept, 1)
  rows /= jnp.where(left > 0, left, 1)[:, None]
  rows = jnp.concatenate([rows, target_probs[-1:]])
  return drafts.end_probs(accept, proposal.length)[:, None] * rows


def sample_law(p, q, token):
  """The law of the target's sample, given the draft of the same race.

  Args:
    p: float [V].
    q: float [V].
    token: int32 [], the draft.

  Returns:
    float [V]; at `token` it is the probability that the draft is accepted.
  """
  total = p + q
  u = jnp.where(total > 0, q / jnp.where(total > 0, total, 1), 0)
  order = jnp.argsort(u)
  ends = u[order]
  heavier_q = jnp.sum(q) - jnp.cumsum(q[order])
  mass = (1 - ends) * heavier_q + ends * jnp.cumsum(p[order])
  start = jnp.zeros(1, u.dtype)
  starts = jnp.concatenate([start, ends[:-1]])
  masses = jnp.concatenate([start + jnp.sum(q), mass[:-1]])
  areas = jnp.cumsum((ends - starts) / (mass * masses))
  area = jnp.zeros_like(u).at[order].set(areas)
  agree = p[token] / jnp.where(total[token] > 0, total[token], 1)
  agree /= jnp.zeros_like(u).at[order].set(mass)[token]
  return (p * jnp.maximum(area[token] - area, 0)).at[token].set(agree)


RULE = VerifyRule(verify, law, lossless=True, shares_noise=True)
