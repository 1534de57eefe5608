"""What a draft is trained on: one function, one formula, a value a token.

A draft is worth its overlap with the target, alpha = sum_x min(p, q)
(Leviathan et al., https://arxiv.org/abs/2211.17192). The identity that ties
what is trained to what is gained: total variation = 1 - alpha.

Every loss of two distributions takes the draft's logits [..., V] and the
target's probabilities [..., V], and gives float [...]; `total` and `mean`
reduce it under a mask. No gradient flows into the target. Arithmetic is
float32, or float64 for float64 logits.

A draft may be unable to say a token: its logit is -inf, q = 0 and forward KL
is infinite by definition. It is then taken over the draft's support, with p
renormalised there. Every gradient is finite, whatever is zero in p or q.

The target may also come as p[..., ids] beside logits of these ids alone, as a
draft with a reduced head has them: what is missing to 1 counts as tokens that
the draft cannot say, and every value is the same.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec import theory
from specdec.base import UsageError

# A probability of 0 counts as this one under a logarithm; float32 holds it.
FLOOR = 1e-37


def tempered(logits, target_logits, temperature=1.0):
  """The pair that decoding at a temperature compares.

  Args:
    logits: float [..., V], the draft's.
    target_logits: float [..., V].
    temperature: above 0.

  Returns:
    logits / temperature and softmax(target_logits / temperature), the first
    two arguments of every loss but `cross_entropy`.

  Raises:
    UsageError: the temperature is not above 0.
  """
  if not temperature > 0:
    raise UsageError(
      f'temperature = {temperature}: it must be above 0; for a greedy target'
      ' use cross_entropy on its argmax'
    )
  return logits / temperature, jax.nn.softmax(
    _float(target_logits) / temperature, -1
  )


def total(values, mask=None):
  """What counts, as a sum and a weight: the mean is their quotient.

  Args:
    values: float [...], one a token; what is masked may even be NaN.
    mask: bool [...], or float [...] weights of at least 0; None counts all.

  Returns:
    The weighted sum of the values and the sum of the weights, float [] each:
    what a train.step.LossFn returns.
  """
  if mask is None:
    mask = jnp.ones_like(values)
  weights = mask.astype(values.dtype)
  kept = jnp.where(weights > 0, values, 0)
  return jnp.sum(weights * kept), jnp.sum(weights)


def mean(values, mask=None):
  """The mean of what counts; see `total`.

  Returns:
    float [], 0 when nothing counts.
  """
  whole, weight = total(values, mask)
  return whole / jnp.where(weight > 0, weight, 1)


def cross_entropy(logits, labels):
  """The surprise at the token that came: -log q(label).

  Args:
    logits: float [..., V].
    labels: int32 [...].

  Returns:
    float [...]; 0 for a label that the draft cannot say.
  """
  draft = _draft(logits)
  return -jnp.take_along_axis(draft.log_q, labels[..., None], -1)[..., 0]


def forward_kl(logits, probs):
  """KL(p || q) = sum_x p log(p / q), which covers all that the target says.

  Hinton et al., https://arxiv.org/abs/1503.02531. Over the draft's support,
  with p renormalised to it; 0 where p has no mass there.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.

  Returns:
    float [...].
  """
  draft = _draft(logits)
  p = jnp.where(draft.support, _target(probs, draft), 0)
  mass = jnp.sum(p, -1, keepdims=True)
  p = p / jnp.where(mass > 0, mass, 1)
  return jnp.sum(p * (_log(p) - draft.log_q), -1)


def reverse_kl(logits, probs):
  """KL(q || p) = sum_x q log(q / p), which avoids what the target never says.

  MiniLLM, https://arxiv.org/abs/2306.08543. It is infinite where p = 0 < q;
  p = 0 counts as FLOOR, so that the mass is still pushed away.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.

  Returns:
    float [...].
  """
  draft = _draft(logits)
  p = _target(probs, draft)
  return jnp.sum(draft.q * (draft.log_q - _log(p)), -1)


def jensen_shannon(logits, probs, beta=0.5):
  """beta KL(p || m) + (1 - beta) KL(q || m), with m = beta p + (1 - beta) q.

  GKD, https://arxiv.org/abs/2306.13649. JS / beta tends to forward KL as beta
  nears 0, JS / (1 - beta) to reverse KL as it nears 1. At one half it is
  symmetric and at most log 2; it is finite whatever is zero.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.
    beta: weight of the target, in (0, 1).

  Returns:
    float [...].

  Raises:
    UsageError: beta is out of its range.
  """
  if not 0 < beta < 1:
    raise UsageError(f'loss.beta = {beta}: it must be in (0, 1)')
  draft = _draft(logits)
  p = _target(probs, draft)
  log_m = _log(beta * p + (1 - beta) * draft.q)
  of_p = jnp.sum(p * (_log(p) - log_m), -1)
  of_q = jnp.sum(draft.q * (draft.log_q - log_m), -1)
  # Where the draft says nothing m = beta p, and each p adds -p log(beta).
  missing = jnp.maximum(1 - jnp.sum(p, -1), 0)
  return beta * (of_p - missing * math.log(beta)) + (1 - beta) * of_q


def total_variation(logits, probs):
  """TV = 1 - alpha = 1 - sum_x min(p, q), the chance of a rejection.

  DistillSpec, https://arxiv.org/abs/2310.08461. Its gradient vanishes with
  alpha: a draft that knows nothing yet learns slowly.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.

  Returns:
    float [...], in [0, 1].
  """
  draft = _draft(logits)
  return 1 - theory.overlap(_target(probs, draft), draft.q)


def neg_log_acceptance(logits, probs):
  """-log alpha, with alpha = sum_x min(p, q).

  LK losses, https://arxiv.org/abs/2602.23881. The gradient is that of TV over
  alpha, so that it does not vanish; against a point mass this is
  cross-entropy. The sum is taken of logarithms: an alpha that a float cannot
  hold still has its gradient. An alpha of 0 counts as FLOOR.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.

  Returns:
    float [...].
  """
  draft = _draft(logits)
  p = _target(probs, draft)
  both = draft.support & (p > 0)
  log_alpha = _log_sum(jnp.minimum(_log(p), draft.log_q), both)[..., 0]
  return -jnp.where(jnp.any(both, -1), log_alpha, math.log(FLOOR))


def lk_hybrid(logits, probs, eta=3.0):
  """w KL(p || q) + (1 - w) (1 - alpha), with w = exp(-eta alpha) held fixed.

  LK losses, https://arxiv.org/abs/2602.23881: KL while the overlap is small,
  total variation as it grows.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.
    eta: how soon KL gives way, at least 0; 0 is `forward_kl`.

  Returns:
    float [...].
  """
  rejected = total_variation(logits, probs)
  weight = jnp.exp(-eta * jax.lax.stop_gradient(1 - rejected))
  return weight * forward_kl(logits, probs) + (1 - weight) * rejected


def top_k_kl(logits, probs, k=10):
  """sum p log(p / q) over the k tokens that the target likes best.

  HASS, https://arxiv.org/abs/2408.15766, whose loss is this one but for a
  constant of the target: the gradients are equal. It is `forward_kl` at k = V
  and may be negative below. The k are chosen among the draft's support.

  Args:
    logits: float [..., V].
    probs: float [..., V], p.
    k: tokens, at least 1.

  Returns:
    float [...].

  Raises:
    UsageError: k is out of its range.
  """
  if k < 1:
    raise UsageError(f'loss.k = {k}: it must be at least 1')
  draft = _draft(logits)
  p = jnp.where(draft.support, _target(probs, draft), 0)
  p, ids = jax.lax.top_k(p, min(k, p.shape[-1]))
  log_q = jnp.take_along_axis(draft.log_q, ids, -1)
  return jnp.sum(p * (_log(p) - log_q), -1)


# For configs. cross_entropy takes labels, the others the target's probs.
LOSSES = {
  'cross_entropy': cross_entropy,
  'forward_kl': forward_kl,
  'reverse_kl': reverse_kl,
  'jensen_shannon': jensen_shannon,
  'total_variation': total_variation,
  'neg_log_acceptance': neg_log_acceptance,
  'lk_hybrid': lk_hybrid,
  'top_k_kl': top_k_kl,
}


class _Draft(NamedTuple):
  """The draft's distribution, safe to multiply and to differentiate."""

  log_q: jax.Array  # float [..., V], 0 outside the support
  q: jax.Array  # float [..., V], 0 outside the support
  support: jax.Array  # bool [..., V], can the draft say this token?


def _draft(logits):
  """Normalises logits of which some, or all, may be -inf."""
  logits = _float(logits)
  support = logits != -jnp.inf  # a NaN stays one, and is seen
  log_q = jnp.where(support, logits - _log_sum(logits, support), 0)
  return _Draft(log_q, jnp.where(support, jnp.exp(log_q), 0), support)


def _target(probs, draft):
  """p as a constant, in the draft's precision."""
  return jax.lax.stop_gradient(probs).astype(draft.q.dtype)


def _float(x):
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _log(x):
  """The logarithm, where 0 counts as FLOOR; its gradient is finite."""
  return jnp.log(jnp.maximum(x, FLOOR))


def _log_sum(values, valid):
  """log sum exp over what is valid, [..., 1]; 0 where nothing is."""
  top = jnp.max(jnp.where(valid, values, -jnp.inf), -1, keepdims=True)
  top = jax.lax.stop_gradient(jnp.where(top == -jnp.inf, 0, top))
  shifted = jnp.where(valid, values - top, 0)
  total = jnp.sum(jnp.where(valid, jnp.exp(shifted), 0), -1, keepdims=True)
  return top + jnp.log(jnp.where(total > 0, total, 1))
