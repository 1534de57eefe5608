"""How often any lossless rule can accept one of several candidates.

A rule couples the candidates with a token of law p; the best one solves a
linear programme of optimal transport: Sun et al., SpecTr,
https://arxiv.org/abs/2310.15141. By duality its value is a minimum over
subsets H of the vocabulary: Hu et al., https://arxiv.org/abs/2502.18779,

  1 + min_H [p(H) - P(all candidates lie in H)].

That no rule does better is seen at once: if all candidates lie in H and one of
them is accepted, then the token lies in H, which has the probability p(H).
"""

import jax
import jax.numpy as jnp
import numpy as np

from specdec.verify.multi import candidates as source


def optimum(prob, p, q, k):
  """The bound for any way of drawing, by enumeration: for small V and k.

  Args:
    prob: (candidates [K], q [V]) -> float [], as in `rule.MultiRule`.
    p: float [V].
    q: float [V].
    k: K; concrete.

  Returns:
    float [], in [0, 1]. All 2^V subsets and (V+1)^K candidates are visited.
  """
  assert p.shape == q.shape and p.ndim == 1, f'p {p.shape}, q {q.shape}'
  vocab = p.shape[0]
  tuples = source.every(vocab, k)
  subsets = np.arange(2**vocab)[:, None] >> np.arange(vocab)[None] & 1
  # The last column is that of -1: no candidate lies in every subset.
  members = np.pad(subsets, ((0, 0), (0, 1)), constant_values=1)
  inside = members[:, tuples].all(-1).astype(p.dtype)
  probs = jax.vmap(prob, (0, None))(tuples, q)
  return 1 + jnp.min(subsets.astype(p.dtype) @ p - inside @ probs)


def optimum_independent(p, q, k):
  """The bound for k independent candidates, by one sort.

  P(all candidates lie in H) is q(H)^k, so the value of a subset is concave in
  its indicator h. Put a best h into the derivative: tokens with
  p(x) < k q(H)^(k-1) q(x) make a subset that is no worse, since a concave
  function lies below its tangent. So some best H is a threshold on q / p, a
  prefix of the tokens sorted by it, and V + 1 subsets are enough.

  Args:
    p: float [..., V].
    q: float [..., V].
    k: K; concrete.

  Returns:
    float [...], in [0, 1]; for k = 1 it is the overlap.
  """
  assert p.shape == q.shape, f'p {p.shape}, q {q.shape}'
  ratios = jnp.where(p > 0, q / jnp.where(p > 0, p, 1), jnp.inf)
  order = jnp.argsort(-ratios, -1)
  p, q = (jnp.take_along_axis(x, order, -1) for x in (p, q))
  values = jnp.cumsum(p, -1) - jnp.cumsum(q, -1) ** k
  return 1 + jnp.minimum(jnp.min(values, -1), 0)
