"""The overlap of drafts with a target on given texts, teacher-forced.

All read the same prefix and say a distribution each; the overlap
sum_x min(p, q) is the chance that a draft is accepted there (Leviathan et al.,
https://arxiv.org/abs/2211.17192, theorem 3.5). Nothing is sampled, at
temperature 1, so what remains uncertain is the choice of texts alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import theory
from specdec.data import packing


class Draft(NamedTuple):
  """A draft as a function of its params."""

  overlap: Callable[..., jax.Array]
  # (params, tokens [B, T], p [B, T, V]) -> float [B, T]
  params: Any


def of_model(forward, params) -> Draft:
  """A draft that is a model.

  Args:
    forward: (params, tokens [B, T]) -> ModelOutput, see functional.forward.
    params: its params.
  """

  def overlap(params, tokens, p):
    return theory.overlap(p, jax.nn.softmax(forward(params, tokens).logits, -1))

  return Draft(overlap, params)


def of_reduced(forward, params) -> Draft:
  """A draft that says only some tokens; elsewhere its q is 0.

  Args:
    forward: (weights, tokens [B, T]) -> ModelOutput, logits [B, T, n].
    params: reduced.Reduced.
  """

  def overlap(params, tokens, p):
    q = jax.nn.softmax(forward(params.weights, tokens).logits, -1)
    return theory.overlap(p[..., params.ids], q)

  return Draft(overlap, params)


def of_head(ids) -> Draft:
  """The mass of p on some tokens: no draft that says only these has more.

  Args:
    ids: int32 [n].
  """
  return Draft(lambda ids, tokens, p: p[..., ids].sum(-1), ids)


def of_table(table) -> Draft:
  """A draft that is a drafters.table.Table of counts."""

  def overlap(table, tokens, p):
    row = table.row[tokens]
    q = jax.nn.softmax(table.logits[row], -1)
    # The ids of absent tokens lie beyond V; their q is 0.
    ids = jnp.minimum(table.tokens[row], p.shape[-1] - 1)
    return theory.overlap(jnp.take_along_axis(p, ids, -1), q)

  return Draft(overlap, table)


def by_row(drafts, forward, params, rows, batch_size):
  """Sums of overlaps, for intervals.ratio.

  Args:
    drafts: {name: Draft}.
    forward: the target's, (params, tokens [B, T]) -> ModelOutput.
    params: the target's.
    rows: packing.Batch of R rows.
    batch_size: rows at a time.

  Returns:
    {name: ([R], [R])}, the sum of a row's overlaps and the number of its
    tokens, over the tokens that count as labels.
  """

  @jax.jit
  def sums(params, draft_params, batch):
    tokens, counts = batch.tokens[:, :-1], batch.mask[:, 1:]
    p = jax.nn.softmax(forward(params, tokens).logits, -1)
    found = {
      name: draft.overlap(draft_params[name], tokens, p)
      for name, draft in drafts.items()
    }
    kept = {name: jnp.where(counts, x, 0) for name, x in found.items()}
    return {name: x.sum(-1) for name, x in kept.items()}, counts.sum(-1)

  draft_params = {name: draft.params for name, draft in drafts.items()}
  parts = [
    jax.device_get(sums(params, draft_params, batch))
    for batch in packing.in_order(rows, batch_size)
  ]
  total = len(rows.tokens)
  counts = np.concatenate([count for _, count in parts])[:total]
  return {
    name: (np.concatenate([found[name] for found, _ in parts])[:total], counts)
    for name in drafts
  }
