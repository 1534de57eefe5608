"""Distillation: a draft learns what its target would say, token by token.

DistillSpec, https://arxiv.org/abs/2310.08461. A text says one token at each
position, a teacher gives all of p. What decoding gains is the overlap of the
two distributions at the same prefix, so the loss compares them there:

  1 - overlap = total variation <= sqrt(KL / 2)  (Pinsker),

and a small KL of either direction is a large overlap.
"""

from specdec.train import losses
from specdec.train.step import LossFn

# What two distributions can be compared by. Labels need no teacher; for them
# there is train.pretrain.
LOSSES = {
  name: loss for name, loss in losses.LOSSES.items() if name != 'cross_entropy'
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
