"""The overlap of a draft with its target on given texts, teacher-forced.

Both read the same prefix and say a distribution each; their overlap
sum_x min(p, q) is the chance that a draft is accepted there (Leviathan et al.,
https://arxiv.org/abs/2211.17192, theorem 3.5). Nothing is sampled, at
temperature 1, so what remains uncertain is the choice of texts alone.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specdec.data import packing
from specdec.train import distill, losses


def of_model(student, params):
  """The overlap of a draft that is a model.

  Args:
    student: (params, tokens [B, T]) -> ModelOutput, see functional.forward.
    params: the draft's.

  Returns:
    What `by_row` takes.
  """

  def overlap(tokens, teacher, teacher_params):
    compare = distill.per_token(student, teacher, losses.total_variation)
    return 1 - compare(params, tokens, teacher_params)

  return overlap


def of_table(table):
  """The overlap of a draft that is a drafters.table.Table of counts."""

  def overlap(tokens, teacher, teacher_params):
    p = jax.nn.softmax(teacher(teacher_params, tokens).logits, -1)
    row = table.row[tokens]
    # The ids of absent tokens lie beyond V; their q is 0.
    ids = jnp.minimum(table.tokens[row], p.shape[-1] - 1)
    q = jax.nn.softmax(table.logits[row], -1)
    return jnp.sum(jnp.minimum(jnp.take_along_axis(p, ids, -1), q), -1)

  return overlap


def by_row(overlap, teacher, teacher_params, rows, batch_size):
  """Sums of overlaps, for intervals.ratio.

  Args:
    overlap: (tokens [B, T], teacher, its params) -> float [B, T].
    teacher: the target, (params, tokens [B, T]) -> ModelOutput.
    teacher_params: its params.
    rows: packing.Batch of R rows.
    batch_size: rows at a time.

  Returns:
    ([R], [R]), the sum of a row's overlaps and the number of its tokens, over
    the tokens that count as labels.
  """

  @jax.jit
  def sums(params, batch):
    counts = batch.mask[:, 1:]
    values = overlap(batch.tokens[:, :-1], teacher, params)
    return jnp.sum(jnp.where(counts, values, 0), -1), jnp.sum(counts, -1)

  parts = [
    sums(teacher_params, batch) for batch in packing.in_order(rows, batch_size)
  ]
  total = len(rows.tokens)
  return tuple(np.concatenate(x)[:total] for x in zip(*parts, strict=True))
