"""K-SEQ: every independent candidate meets the same, lowered bar.

Sun et al., SpecTr, https://arxiv.org/abs/2310.15141. A candidate x is accepted
with probability min(1, p(x) / (rho q(x))), so that one look accepts x with
min(p(x) / rho, q(x)), and misses with m = 1 - sum_x min(p(x) / rho, q(x)). On
average c = 1 + m + ... + m^(k-1) candidates are looked at, and x comes out
accepted with c min(p(x) / rho, q(x)), which p(x) bounds as long as c <= rho.
What is missing is the correction's law. The least rho is best, and there

  c = rho, or in the paper's form 1 - (1 - beta)^k = rho beta, beta = 1 - m.
"""

import jax
import jax.numpy as jnp

from specdec import sampling
from specdec.verify.multi import candidates as source
from specdec.verify.multi.rule import MultiRule, Trial, build


def k_seq(k) -> MultiRule:
  """k independent candidates from q, under a common rho."""
  return build(k, source.draw_independent, source.prob_independent, _judge)


def looks(p, q, rho, k, most):
  """How many candidates are looked at, on average: 1 + m + ... + m^(k-1).

  Args:
    p: float [V].
    q: float [V].
    rho: float [], at least 1.
    k: int32 [], candidates.
    most: the greatest k; concrete.

  Returns:
    float [], in [0, k].
  """
  # The miss as a sum of what is missed: 0, not about 0, where p = q.
  miss = jnp.sum(jnp.maximum(q - p / rho, 0))
  tries = jnp.arange(most)
  return jnp.sum(jnp.where(tries < k, miss**tries, 0))


def least_rho(p, q, k, most):
  """The least rho in [1, k] with `looks` <= rho, by bisection.

  Of the last interval the upper end is taken, where the rule is lossless
  however wide the interval is.

  Args:
    p: float [V].
    q: float [V].
    k: int32 [], candidates.
    most: the greatest k; concrete.

  Returns:
    float [], in [1, k].
  """

  def holds(rho):
    return looks(p, q, rho, k, most) <= rho

  def halve(_, interval):
    low, high = interval
    middle = (low + high) / 2
    good = holds(middle)
    return jnp.where(good, low, middle), jnp.where(good, middle, high)

  one = jnp.ones((), p.dtype)
  halvings = jnp.finfo(p.dtype).nmant + most.bit_length()
  top = jnp.maximum(one, k.astype(p.dtype))
  _, high = jax.lax.fori_loop(0, halvings, halve, (one, top))
  # Where p = q, the sides differ by less than rounding for a good way above 1.
  return jnp.where(holds(one), one, high)


def _judge(candidates, p, q) -> Trial:
  most, k = candidates.shape[0], jnp.sum(candidates >= 0)
  rho = least_rho(p, q, k, most)
  accepted = looks(p, q, rho, k, most) * jnp.minimum(p / rho, q)
  return Trial(
    source.at(p, candidates),
    rho * source.at(q, candidates),
    sampling.residual(p, accepted),
  )
