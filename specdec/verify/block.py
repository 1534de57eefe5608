"""Block verification: the drafts are judged together, not one by one.

Sun et al., https://arxiv.org/abs/2403.10444, Algorithm 2. With P_i and Q_i the
next-token distributions after i drafts x_1..x_i, and p_0 = 1,

  p_i = min(p_{i-1} P_{i-1}[x_i] / Q_{i-1}[x_i], 1)
  Z_i = sum_x max(p_i P_i[x] - Q_i[x], 0)
  h_i = Z_i / (Z_i + 1 - p_i), and h_L = p_L at the last draft.

The last i with u_i < h_i is how many drafts are kept; a failure in between ends
nothing. The correction is drawn from max(p_i P_i - Q_i, 0), normalised. No
lossless rule that looks at one path of drafts accepts more in expectation.
"""

import jax
import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import Proposal, Verdict, VerifyRule
from specdec.verify import drafts


def verify(key, position, proposal: Proposal, target_probs) -> Verdict:
  """Keeps a prefix of the drafts and draws one more token; see token.verify.

  The uniform of draft i is looked at whether or not earlier ones passed, so
  a round's noise must not be met again in a later round.
  """
  gamma = proposal.tokens.shape[0]
  joint, keep = levels(proposal, target_probs)
  u = rng.uniforms(key, position, gamma, keep.dtype)
  kept = jnp.where(u < keep[1:], jnp.arange(1, gamma + 1), 0)
  n = jnp.max(kept, initial=0).astype(jnp.int32)

  stream = jnp.where(n < proposal.length, rng.RESIDUAL, rng.BONUS)
  draw = rng.draw_key(key, position, stream, n)
  weights = end_weights(proposal, target_probs[n], joint[n], n)
  return Verdict(n, sampling.categorical(draw, weights))


def law(proposal: Proposal, target_probs):
  """P(num_accepted = n, next_token = x | drafts), as float [G+1, V]."""
  joint, keep = levels(proposal, target_probs)
  fail = 1 - keep
  # P(all behind n fail): a product from the end.
  behind = jnp.cumprod(jnp.append(fail[1:], 1)[::-1])[::-1]
  rows = jax.vmap(lambda n: end_weights(proposal, target_probs[n], joint[n], n))
  weights = rows(jnp.arange(keep.size))
  mass = jnp.sum(weights, -1, keepdims=True)
  chance = (keep * behind)[:, None]
  return chance * weights / jnp.where(mass > 0, mass, 1)


def levels(proposal, target_probs):
  """p_i and h_i of the formulas.

  Args:
    proposal: base.Proposal of G drafts.
    target_probs: float [G+1, V].

  Returns:
    float [G+1] each; h_0 = 1, and h_i = 0 beyond the valid drafts.
  """
  gamma = proposal.tokens.shape[0]
  one = jnp.ones(1, target_probs.dtype)
  if gamma == 0:
    return one, one
  p, q = drafts.drafted_probs(proposal, target_probs)

  def extend(before, ratio):
    here = sampling.acceptance(before * ratio[0], ratio[1])
    return here, here

  _, joint = jax.lax.scan(extend, one[0], (p, q))
  joint = jnp.concatenate([one, joint])

  rest = joint[:-1, None] * target_probs[:-1]
  rest -= drafts.draft_rows(proposal, target_probs)
  # A sum as a product with ones: XLA on CPU does not vectorise a sum of rows.
  ones = jnp.ones(rest.shape[-1], rest.dtype)
  mass = jnp.matmul(jnp.maximum(rest, 0), ones, precision='highest')
  whole = mass + (1 - joint[:-1])
  keep = jnp.where(whole > 0, mass / jnp.where(whole > 0, whole, 1), 1)
  keep = jnp.append(keep, 0)
  slots = jnp.arange(gamma + 1)
  keep = jnp.where(slots == proposal.length, joint, keep)
  keep = jnp.where(slots > proposal.length, 0, keep)
  return joint, keep.at[0].set(1)


def end_weights(proposal, p, joint, n):
  """What the token behind n kept drafts is drawn from, not normalised.

  Args:
    proposal: base.Proposal.
    p: float [V], the target's row after n drafts.
    joint: float [], p_n of the formulas.
    n: int32 [].

  Returns:
    float [V].
  """
  if proposal.tokens.shape[0] == 0:
    return p
  rest = sampling.excess(joint * p, drafts.draft_row(proposal, n, p))
  return jnp.where(n < proposal.length, rest, p)


RULE = VerifyRule(verify, law, lossless=True)
