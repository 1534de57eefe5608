"""Lossy: a draft is kept when the target finds it typical.

Medusa, Cai et al., https://arxiv.org/abs/2401.10774, section 2.3. A draft x is
accepted when p(x) > min(epsilon, delta exp(-H(p))): where the target is
unsure, a smaller probability will do. No randomness enters, and q is not
looked at. The next token is drawn from p.
"""

import jax.numpy as jnp

from specdec import rng, sampling
from specdec.base import UsageError, Verdict, VerifyRule
from specdec.verify import drafts


def build(epsilon, delta):
  """The typical rule.

  Args:
    epsilon: probability that is enough anywhere, in (0, 1).
    delta: factor of exp(-entropy), greater than 0.

  Returns:
    base.VerifyRule.

  Raises:
    UsageError: one is out of its range.
  """
  if not 0 < epsilon < 1:
    raise UsageError(f'lossy.epsilon = {epsilon}: it must be in (0, 1)')
  if not delta > 0:
    raise UsageError(f'lossy.delta = {delta}: it must be greater than 0')

  def count(proposal, target_probs):
    p, _ = drafts.drafted_probs(proposal, target_probs)
    rows = target_probs[: p.size]
    logs = jnp.log(jnp.where(rows > 0, rows, 1))
    entropy_nats = -jnp.sum(rows * logs, -1)
    typical = p > jnp.minimum(epsilon, delta * jnp.exp(-entropy_nats))
    return drafts.num_leading(typical & (jnp.arange(p.size) < proposal.length))

  def verify(key, position, proposal, target_probs):
    n = count(proposal, target_probs)
    draw = rng.draw_key(key, position, rng.BONUS, n)
    return Verdict(n, sampling.categorical(draw, target_probs[n]))

  def law(proposal, target_probs):
    n = count(proposal, target_probs)
    slots = jnp.arange(target_probs.shape[0])
    return jnp.where((slots == n)[:, None], target_probs, 0)

  return VerifyRule(verify, law, lossless=False)
