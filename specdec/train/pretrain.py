"""Pretraining: a model learns a text, one token after another.

The loss is the surprise at each token given those before it. With p the law
of the text and q the model's,

  E[-log q] = H(p) + KL(p || q),

so that no loss falls below the entropy of the text, and what lies above it is
what the model does not know yet.
"""

from specdec.train import losses
from specdec.train.step import LossFn


def build(forward) -> LossFn:
  """The cross-entropy of a model and a text.

  Args:
    forward: (params, tokens [B, T]) -> ModelOutput, see functional.forward.

  Returns:
    LossFn of a packing.Batch. Label j of a row is token j + 1, which counts if
    its mask says so; the first token of a row is nothing but input.
  """

  def loss_fn(params, batch, key):
    del key
    logits = forward(params, batch.tokens[:, :-1]).logits
    surprise = losses.cross_entropy(logits, batch.tokens[:, 1:])
    return losses.total(surprise, batch.mask[:, 1:])

  return loss_fn
