"""Recursive rejection: what one candidate leaves undone, the next one does.

Candidate x_i, drawn from q_i, is judged as by the token rule, against r_i
instead of p: accepted with probability min(1, r_i(x) / q_i(x)), where r_1 = p
and after each rejection r_{i+1} is max(r_i - q_i, 0), normalised. The identity
of the token rule, min(r_i, q_i) + max(r_i - q_i, 0) = r_i, makes the output's
law p, whatever the q_i are. So three rules differ in q_i alone:

  with replacement     q_i = q: SpecInfer, https://arxiv.org/abs/2305.09781
  without replacement  q_i = q less x_1 .. x_{i-1}, normalised: Sequoia,
                       https://arxiv.org/abs/2402.12374
  top-k                q_i = a point mass on the i-th most likely token of q:
                       the trees of EAGLE-2, https://arxiv.org/abs/2406.16858
"""

import jax
import jax.numpy as jnp

from specdec import sampling
from specdec.verify.multi import candidates as source
from specdec.verify.multi.rule import MultiRule, Trial, build


def with_replacement(k) -> MultiRule:
  """k independent candidates from q."""

  def judge(candidates, p, q):
    return _judge(candidates, p, jnp.broadcast_to(q[None], (k, q.shape[0])))

  return build(k, source.draw_independent, source.prob_independent, judge)


def without_replacement(k) -> MultiRule:
  """k different candidates from q, or all its support if that is fewer."""

  def judge(candidates, p, q):
    return _judge(candidates, p, source.distinct_rows(candidates, q))

  return build(k, source.draw_distinct, source.prob_distinct, judge)


def top_k(k) -> MultiRule:
  """The k most likely tokens of q, or all its support if that is fewer.

  Nothing is drawn: `draw` ignores its key. The most likely candidates are
  accepted with probability p(x_1) + ... + p(x_k), the optimum for them.
  """

  def draw(key, q, k):
    del key
    return source.likeliest(q, k)

  def judge(candidates, p, q):
    del q
    points = jax.nn.one_hot(candidates, p.shape[0], dtype=p.dtype)
    return _judge(candidates, p, points)

  return build(k, draw, source.prob_likeliest, judge)


def _judge(candidates, p, rows) -> Trial:
  """Candidates [K] against p [V], where row i of `rows` [K, V] is q_i."""
  # No candidate takes nothing away: the residual of r and 0 is r.
  rows = jnp.where(candidates[:, None] >= 0, rows, 0)

  def step(r, drawn):
    x, row = drawn
    return sampling.residual(r, row), (source.at(r, x), source.at(row, x))

  rest, (target, draft) = jax.lax.scan(step, p, (candidates, rows))
  return Trial(target, draft, rest)
