"""Lossy: the most acceptance that a budget of divergence buys.

Tran-Thien, "An optimal lossy variant of speculative decoding",
https://huggingface.co/blog/vivien/optimal-lossy-variant-of-speculative-decoding.
Where a draft x ~ q is offered, the output's law r maximises the acceptance
sum_x min(q(x), r(x)) under KL(r || p) <= budget; then the token rule is run
with r for p. Stationarity gives r = clip(q, B p, A p) with B <= 1 <= A: A and
the budget fix each other, B makes r sum to 1. A budget of 0 is the token rule.
"""

import functools

import jax
import jax.numpy as jnp

from specdec.base import UsageError, VerifyRule
from specdec.verify import drafts, token

# Halvings of the interval of log A, and the most Newton steps to B for each.
HALVINGS, NEWTON_STEPS = 16, 12
EPSILON = 1e-7  # a step to B that is too small to go on


def build(budget_nats):
  """The mentored rule.

  Args:
    budget_nats: most KL(r || p) of a position, at least 0.

  Returns:
    base.VerifyRule.

  Raises:
    UsageError: it is negative.
  """
  if not budget_nats >= 0:
    raise UsageError(f'lossy.kl_budget = {budget_nats}: it must be at least 0')

  if budget_nats == 0:
    return token.RULE

  def relax(proposal, target_probs):
    """The target with r in the rows that have a draft."""
    rows = jax.vmap(functools.partial(mentor, budget_nats=budget_nats))(
      target_probs[:-1], drafts.draft_rows(proposal, target_probs)
    )
    drafted = jnp.arange(rows.shape[0]) < proposal.length
    rows = jnp.where(drafted[:, None], rows, target_probs[:-1])
    return jnp.concatenate([rows, target_probs[-1:]])

  def verify(key, position, proposal, target_probs):
    return token.verify(key, position, proposal, relax(proposal, target_probs))

  def law(proposal, target_probs):
    return token.law(proposal, relax(proposal, target_probs))

  return VerifyRule(verify, law, lossless=False)


def mentor(p, q, budget_nats):
  """The law r of the output.

  Args:
    p: float [V].
    q: float [V].
    budget_nats: most KL(r || p).

  Returns:
    float [V].
  """
  some = p > 0
  safe = jnp.where(some, p, 1)
  ratio = jnp.where(some, q / safe, 0)

  def clipped(ceiling):
    """r of the greatest ratio r / p = ceiling, which is at least 1."""
    top = jnp.minimum(q, ceiling * p)
    lack = 1 - jnp.sum(top)

    def newton(carry):
      # The lifted mass is convex in the floor: Newton's steps from 1 fall.
      step, floor, _ = carry
      under = some & (ratio < floor)
      slope = jnp.sum(jnp.where(under, p, 0))
      lifted = floor * slope - jnp.sum(jnp.where(under, q, 0))
      fall = (lifted - lack) / jnp.where(slope > 0, slope, 1)
      fall = jnp.where(slope > 0, jnp.clip(fall, 0, floor), 0)
      return step + 1, floor - fall, fall

    one = jnp.ones_like(lack)
    _, floor, _ = jax.lax.while_loop(
      lambda carry: (carry[0] < NEWTON_STEPS) & (carry[2] > EPSILON),
      newton,
      (jnp.int32(0), one, one),
    )
    r = jnp.maximum(top, floor * p)
    return r / jnp.sum(r)

  def divergence(r):
    logs = jnp.log(jnp.where(r > 0, r, 1)) - jnp.log(safe)
    return jnp.sum(jnp.where(r > 0, r * logs, 0))

  def halve(_, interval):
    low, high = interval
    middle = (low + high) / 2
    fits = divergence(clipped(jnp.exp(middle))) <= budget_nats
    return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

  # Beyond the greatest ratio a higher ceiling changes nothing.
  widest = jnp.log(jnp.maximum(jnp.max(ratio), 1))
  whole = clipped(jnp.exp(widest))
  low, _ = jax.lax.fori_loop(
    0, HALVINGS, halve, (jnp.zeros_like(widest), widest)
  )
  return jnp.where(
    divergence(whole) <= budget_nats, whole, clipped(jnp.exp(low))
  )
