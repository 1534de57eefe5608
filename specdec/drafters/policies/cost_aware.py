"""As many drafts as are expected to give the most tokens per second.

Acceptance alone does not say whether a draft pays: what a round costs on this
machine does. With beta_i the acceptance of the i-th draft once all before it
are kept, a round of g drafts is worth

  (1 + beta_1 + ... + beta_1 ... beta_g) / (rest + g t_draft + t_target(g + 1))

tokens per second, and the best g is taken, 0 included. Leviathan et al.,
https://arxiv.org/abs/2211.17192, section 3.5, with measured costs and with
acceptance by position, of the row's own recent rounds.

Beta counts estimate the acceptance: (strength * prior + hits) / (strength +
trials). They fade as rounds go by, also in rounds without drafts, so that a
row that gave up tries again. The prior is one for all positions and lies
above the acceptance at which drafts just pay: a fresh row drafts until it has
seen more rejections than luck explains. A row that tries goes in small steps,
of 1, 2, 4, ... drafts; a failure then costs the least.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import theory
from specdec.base import UsageError
from specdec.drafters.policies.policy import Policy, never_after, never_before

# What is left of the evidence of a position after a round that drafted: where
# it was tried the last 1 / (1 - FADE) trials count; where it was not it fades
# more slowly, since trying a draft that was never accepted costs time.
FADE, UNTRIED = 0.96, 0.99
# Trials that the estimate of a position is worth as prior of the next one.
CHAIN = 6.0
# Defaults of `build`.
EXPLORE, FORGIVEN = 0.01, 1.5


class Costs(NamedTuple):
  """Seconds that the parts of a round take at one batch size."""

  target_s: tuple[float, ...]  # G+1 of them: calls of 1..G+1 tokens a row
  draft_s: float  # one draft step; 0 for a drafter without a model
  rest_s: float  # all of a round outside of the models
  catch_up_s: float  # to feed the draft a token that it took no part in

  def round_s(self, gamma):
    """Seconds of a round of 0, 1, ..., gamma drafts, float64 [gamma + 1]."""
    drafts = np.arange(gamma + 1)
    target_s = np.asarray(self.target_s, float)[: gamma + 1]
    return self.rest_s + drafts * self.draft_s + target_s


class Evidence(NamedTuple):
  """What a row has seen, and how far it dares."""

  hits: jax.Array  # float32 [B, G], faded count of accepted drafts
  trials: jax.Array  # float32 [B, G], of drafts whose prefix was accepted
  reach: jax.Array  # int32 [B], most drafts of the next round


class Prior(NamedTuple):
  """Where the estimates start, and where they go back to."""

  mean: float  # acceptance at any position
  strength: float  # trials that it is worth
  fade: float  # of the evidence, in a round whose limit was 0
  first: int  # drafts of a row that tries, 0 where none can pay


def build(gamma, costs, explore=EXPLORE, forgiven=FORGIVEN) -> Policy:
  """A policy that maximises expected tokens per second.

  Args:
    gamma: most drafts of a round.
    costs: Costs, of at least gamma + 1 target calls.
    explore: share of its time that a row may lose with drafts that never
      survive, in (0, 1).
    forgiven: rejected first drafts that a fresh row overlooks, above 0.

  Returns:
    Policy; its state is an Evidence.

  Raises:
    UsageError: an argument is out of its range.
  """
  _check(gamma, costs, explore, forgiven)
  round_s = costs.round_s(gamma)
  prior = _prior(round_s, costs.catch_up_s, explore, forgiven)
  slots = np.arange(gamma)[None]

  def init(batch):
    zeros = jnp.zeros((batch, gamma))
    return Evidence(zeros, zeros, jnp.full(batch, prior.first, jnp.int32))

  def best(evidence):
    beta, strength, betas = prior.mean, prior.strength, []
    for slot in range(gamma):
      beta = (strength * beta + evidence.hits[:, slot]) / (
        strength + evidence.trials[:, slot]
      )
      strength = CHAIN
      betas.append(beta)
    rates = (
      theory.tokens_by_gamma(jnp.stack(betas, -1)) / jnp.float32(round_s)[None]
    )
    return jnp.argmax(rates, -1).astype(jnp.int32)

  def limit(evidence):
    return jnp.minimum(best(evidence), evidence.reach)

  def update(evidence, drafted, accepted):
    idle, drew = limit(evidence) == 0, drafted > 0
    seen = (slots < drafted[:, None]) & (slots <= accepted[:, None])
    # A round that might have drafted, and found nothing, teaches nothing.
    fade = jnp.where(idle, prior.fade, 1.0)[:, None]
    fade = jnp.where(drew[:, None], jnp.where(seen, FADE, UNTRIED), fade)
    grown = jnp.minimum(2 * evidence.reach, gamma)
    all_kept = drew & (accepted >= evidence.reach)
    return Evidence(
      fade * evidence.hits + (slots < accepted[:, None]),
      fade * evidence.trials + seen,
      jnp.where(idle, prior.first, jnp.where(all_kept, grown, evidence.reach)),
    )

  return Policy(init, limit, never_before, never_after, update, pauses=True)


def _prior(round_s, catch_up_s, explore, forgiven):
  """The Prior of costs.

  Its mean lies halfway between break-even and 1. Its strength is such that
  drafts stop once more than `forgiven` first drafts were rejected, and none
  accepted. Its fade lets one rejection more be forgotten in as many rounds as
  make its cost, with that of catching up, the share `explore` of their time.
  """
  even = theory.break_even(round_s)
  if even == 1:
    return Prior(0.0, 1.0, 1.0, 0)
  mean = (1 + even) / 2
  strength = forgiven * even / (mean - even)
  # More drafts than one where they cost about the same.
  first = int(np.flatnonzero(round_s <= 1.1 * round_s[1])[-1])
  lost = round_s[first] / round_s[0] - 1
  # Catching up costs its share however rarely a row tries.
  share = max(explore - catch_up_s / round_s[0], explore / 4)
  rounds = max(lost / share, 1.0)
  fade = (forgiven / (forgiven + 1)) ** (1 / rounds)
  return Prior(mean, strength, fade, first)


def _check(gamma, costs, explore, forgiven):
  if gamma < 0:
    raise UsageError(f'gamma = {gamma}: it must be at least 0')
  if len(costs.target_s) <= gamma:
    raise UsageError(
      f'costs.target_s has {len(costs.target_s)} entries: gamma = {gamma}'
      f' needs {gamma + 1}, of calls of 1..{gamma + 1} tokens'
    )
  if not min(*costs.target_s, np.inf) > 0:
    raise UsageError(
      f'costs.target_s = {costs.target_s}: each must be above 0; measure again'
    )
  for name in ('draft_s', 'rest_s', 'catch_up_s'):
    if not getattr(costs, name) >= 0:
      raise UsageError(
        f'costs.{name} = {getattr(costs, name)}: it must be at least 0;'
        ' measure again'
      )
  if not 0 < explore < 1:
    raise UsageError(f'stopping.explore = {explore}: it must be in (0, 1)')
  if not forgiven > 0:
    raise UsageError(f'stopping.forgiven = {forgiven}: it must be above 0')
