"""The cost model of speculative decoding, in closed form.

A round drafts gamma tokens at a cost of c target steps each, verifies them in
one target call that costs v, and commits the accepted prefix and one token
more. With an overlap alpha at every position the identity behind it all is

  E[tokens] = 1 + alpha + ... + alpha^gamma
            = (1 - alpha^(gamma + 1)) / (1 - alpha).

Leviathan et al., https://arxiv.org/abs/2211.17192 (cited as L23 below). Every
function is vectorised: arguments broadcast against each other. All but
`best_gamma` and `pays` are differentiable in p, q, alpha, beta, c and v. gamma
is concrete, an int or a NumPy array; alpha = 0 and alpha = 1 are no exceptions.
"""

import jax.numpy as jnp
import numpy as np


def overlap(p, q):
  """Chance that a draft from q survives: sum min(p, q). L23, Theorem 3.5.

  Args:
    p: float [..., V], the target's distribution.
    q: float [..., V], the draft's.

  Returns:
    float [...], in [0, 1]: beta at one prefix; its mean over prefixes is alpha.
  """
  return jnp.sum(jnp.minimum(p, q), -1)


def total_variation(p, q):
  """Half of sum |p - q|, which is 1 - overlap. L23, Corollary 3.6.

  Args:
    p: float [..., V].
    q: float [..., V].

  Returns:
    float [...], in [0, 1].
  """
  return jnp.sum(jnp.abs(p - q), -1) / 2


def lenient_overlap(p, q, lenience):
  """Overlap when drafts are judged by lenience * q: sum min(p / l, q).

  No token is then emitted with more than p(x) / l. L23, appendix A.5.

  Args:
    p: float [..., V].
    q: float [..., V].
    lenience: l in (0, 1]; 1 is the lossless rule. float [...].

  Returns:
    float [...], in [0, 1].
  """
  lenience = jnp.asarray(lenience, float)[..., None]
  return jnp.sum(jnp.minimum(p / lenience, q), -1)


def classical_acceptance(p, q):
  """What classical rejection sampling would accept: sum_x p(x) min(q / p).

  Its envelope C q, with C = max p / q, spends on every token what the worst
  one needs; it never exceeds `overlap`. L23, appendix A.2.

  Args:
    p: float [..., V].
    q: float [..., V].

  Returns:
    float [...], 1 / C, in [0, 1].
  """
  ratios = jnp.where(p > 0, q / jnp.where(p > 0, p, 1), jnp.inf)
  return jnp.sum(p * jnp.min(ratios, -1, keepdims=True), -1)


def expected_rejections(p, q):
  """Rejections on the way through T tokens: the sum of TV over positions.

  No lossless rule of draft and rejection does with fewer in expectation. Yin
  et al., https://arxiv.org/abs/2411.00841, Theorems 1 and 2.

  Args:
    p: float [..., T, V], at the prefixes of a text drawn from the target.
    q: float [..., T, V], at the same prefixes.

  Returns:
    float [...], in [0, T].
  """
  return jnp.sum(total_variation(p, q), -1)


def expected_accepted(betas):
  """E[tau] of a round whose i-th draft has overlap beta_i.

  A draft counts when it and all before it survive: the sum over i of
  beta_1 ... beta_i. E[tokens] is one more.

  Args:
    betas: float [..., G], in drafting order.

  Returns:
    float [...], drafts.
  """
  return jnp.sum(jnp.cumprod(betas, -1), -1)


def tokens_by_gamma(betas):
  """E[tokens] of a round of 0, 1, ..., G drafts, for acceptance by position.

  Args:
    betas: float [..., G], the chance that the i-th draft is accepted once all
      before it are.

  Returns:
    float [..., G+1], tokens: 1 + beta_1 + beta_1 beta_2 + ..., term by term.
  """
  survival = jnp.cumprod(betas, -1)
  first = jnp.ones((*survival.shape[:-1], 1), survival.dtype)
  return jnp.cumsum(jnp.concatenate([first, survival], -1), -1)


def expected_tokens(alpha, gamma):
  """E[tokens] a round, the block efficiency. L23, equation 1.

  Computed as the sum of powers, which loses no digit as alpha nears 1 and has
  a derivative everywhere.

  Args:
    alpha: overlap, in [0, 1].
    gamma: drafts a round, at least 0; concrete.

  Returns:
    float, tokens, in [1, gamma + 1].
  """
  gamma = np.asarray(gamma)
  shape = np.broadcast_shapes(jnp.shape(alpha), gamma.shape)
  alpha = jnp.broadcast_to(jnp.asarray(alpha, float), shape)
  gamma = np.broadcast_to(gamma, shape)
  drafts = np.arange(gamma.max() + 1)
  drafts = np.broadcast_to(drafts, (*shape, drafts.size))
  survival = alpha[..., None] ** drafts
  return jnp.sum(jnp.where(drafts <= gamma[..., None], survival, 0), -1)


def speedup(alpha, gamma, c, v=1.0):
  """Wall-clock gain over plain decoding. L23, Theorem 3.8, where v = 1.

  Args:
    alpha: overlap, in [0, 1].
    gamma: drafts a round, at least 0; concrete.
    c: t_draft / t_target(1).
    v: t_target(gamma + 1) / t_target(1), what verification really costs.

  Returns:
    float, a factor; 1 / v at gamma = 0.
  """
  return expected_tokens(alpha, gamma) / (gamma * c + v)


def operations_factor(alpha, gamma, c_hat=0.0):
  """Growth of arithmetic operations per token. L23, Theorem 3.11.

  Args:
    alpha: overlap, in [0, 1].
    gamma: drafts a round, at least 0; concrete.
    c_hat: the draft's operations per token over the target's.

  Returns:
    float, a factor: (1 - alpha) (gamma c_hat + gamma + 1) over
    (1 - alpha^(gamma + 1)).
  """
  operations = gamma * c_hat + gamma + 1
  return operations / expected_tokens(alpha, gamma)


def memory_factor(alpha, gamma):
  """Shrinkage of reads of the target's weights and cache. L23, section 3.4.

  One target call serves E[tokens] tokens, so this is `expected_tokens` by the
  name of what it saves; the draft's own reads are left out, as in the paper.
  """
  return expected_tokens(alpha, gamma)


def best_gamma(alpha, c, v=1.0, max_gamma=64):
  """The gamma in 0..max_gamma of the greatest speedup; the least on ties.

  Every candidate is evaluated, so v may have any shape over gamma. L23,
  section 3.5.

  Args:
    alpha: overlap, in [0, 1].
    c: t_draft / t_target(1).
    v: t_target(gamma + 1) / t_target(1); a scalar, or float [max_gamma + 1]
      with one value a gamma, as measured.
    max_gamma: the longest draft considered; concrete.

  Returns:
    int32, of the shape that alpha and c broadcast to.
  """
  alpha, c = jnp.broadcast_arrays(alpha, c)
  gammas = np.arange(max_gamma + 1)
  gammas = np.broadcast_to(gammas, (*alpha.shape, gammas.size))
  v = jnp.broadcast_to(v, gammas.shape)
  gains = speedup(alpha[..., None], gammas, c[..., None], v)
  return jnp.argmax(gains, -1).astype(jnp.int32)


def break_even(round_s):
  """The least overlap, equal at every position, at which some gamma pays.

  Where a round of gamma drafts takes as long as r rounds without, it pays as
  soon as 1 + alpha + ... + alpha^gamma exceeds r.

  Args:
    round_s: float [G+1], seconds of a round of 0, 1, ..., G drafts; concrete.

  Returns:
    float in [0, 1], exact to 1e-9; 1 where not even perfect drafts pay.
  """
  ratios = np.asarray(round_s, float)
  ratios = ratios[1:] / ratios[0]
  low, high = 0.0, 1.0
  while high - low > 1e-9:
    alpha = (low + high) / 2
    tokens = 1 + np.cumsum(alpha ** np.arange(1, ratios.size + 1))
    if np.any(tokens > ratios):
      high = alpha
    else:
      low = alpha
  return high


def pays(alpha, c):
  """Does some gamma gain, when verification costs one step? alpha > c.

  L23, Corollary 3.9.
  """
  return jnp.asarray(alpha) > c


def one_draft_speedup(alpha, c):
  """The gain at gamma = 1, assured whenever `pays`. L23, Corollary 3.9."""
  return (1 + alpha) / (1 + c)


def oracle_speedup(alpha, c, v=1.0):
  """The gain if each round knew where its first rejection falls.

  Such a round drafts what will be kept, alpha / (1 - alpha) tokens on average,
  and no more; where c <= v, no fixed gamma does better. After L23, section 3.5.

  Args:
    alpha: overlap, in [0, 1].
    c: t_draft / t_target(1).
    v: t_target(gamma + 1) / t_target(1), taken equal for all gamma.

  Returns:
    float, a factor: 1 / (alpha c + (1 - alpha) v).
  """
  return 1 / (alpha * c + (1 - alpha) * v)


def memory_bound_speedup(block_efficiency, gamma, size_ratio):
  """MBSU: the gain if time were nothing but reading weights.

  `speedup` with c replaced by the ratio of sizes. Jeon et al.,
  https://arxiv.org/abs/2402.14160; Goel et al.,
  https://arxiv.org/abs/2403.00858.

  Args:
    block_efficiency: tokens committed per target call, bonus included.
    gamma: drafts a round.
    size_ratio: the draft's parameters over the target's.

  Returns:
    float, a factor.
  """
  return block_efficiency / (gamma * size_ratio + 1)
