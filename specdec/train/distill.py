"""Distillation: a draft learns what its target would say, token by token.

DistillSpec, https://arxiv.org/abs/2310.08461. A text says one token at each
position, a teacher gives all of p. What decoding gains is the overlap of the
two distributions at the same prefix, so the loss compares them there:

  1 - overlap = total variation <= sqrt(KL / 2)  (Pinsker),

and a small KL of either direction is a large overlap.
"""

import functools

from specdec.base import UsageError
from specdec.train import losses
from specdec.train.step import LossFn

# What two distributions can be compared by. Labels need no teacher; for them
# there is train.pretrain.
LOSSES = {
  name: loss for name, loss in losses.LOSSES.items() if name != 'cross_entropy'
}


def losses_at(beta, eta, k):
  """The same table, with the strengths of those losses that have one.

  Args:
    beta: of jensen_shannon, in (0, 1).
    eta: of lk_hybrid, at least 0.
    k: of top_k_kl, at least 1.

  Raises:
    UsageError: a strength is out of its range.
  """
  for name, value, good, rule in (
    ('beta', beta, 0 < beta < 1, 'in (0, 1)'),
    ('eta', eta, eta >= 0, 'at least 0'),
    ('k', k, k >= 1, 'at least 1'),
  ):
    if not good:
      raise UsageError(f'strengths.{name} = {value!r}: it must be {rule}')
  return LOSSES | {
    'jensen_shannon': functools.partial(losses.jensen_shannon, beta=beta),
    'lk_hybrid': functools.partial(losses.lk_hybrid, eta=eta),
    'top_k_kl': functools.partial(losses.top_k_kl, k=k),
  }


def build(student, teacher, loss, temperature=1.0, ids=None) -> LossFn:
  """A loss between student and teacher on the same prefixes.

  Args:
    student: see `per_token`.
    teacher: see `per_token`.
    loss: see `per_token`.
    temperature: see `per_token`.
    ids: see `per_token`.

  Returns:
    LossFn of a packing.Batch, with the teacher's params as `fixed`. What the
    two say at j counts if the text's token j + 1 does; that token itself plays
    no part.
  """
  compare = per_token(student, teacher, loss, temperature, ids)

  def loss_fn(params, batch, key, teacher_params):
    del key
    values = compare(params, batch.tokens[:, :-1], teacher_params)
    return losses.total(values, batch.mask[:, 1:])

  return loss_fn


def per_token(student, teacher, loss, temperature=1.0, ids=None):
  """The same loss before it is reduced.

  Args:
    student: (params, tokens [B, T]) -> ModelOutput, see functional.forward.
    teacher: the same, of the teacher's params.
    loss: (logits [..., V], probs [..., V]) -> float [...], one of
      LOSSES.
    temperature: at which the two are compared, above 0.
    ids: int32 [n], the tokens of a reduced.Reduced student, in whose place its
      `weights` are trained: its logits are [B, T, n]. None is all tokens.

  Returns:
    (params, tokens [B, T], teacher's params) -> float [B, T].

  """

  def compare(params, tokens, teacher_params):
    logits, probs = losses.tempered(
      student(params, tokens).logits,
      teacher(teacher_params, tokens).logits,
      temperature,
    )
    if ids is not None:
      probs = probs[..., ids]
    assert logits.shape == probs.shape, (logits.shape, probs.shape)
    return loss(logits, probs)

  return compare
