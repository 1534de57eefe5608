"""Overlaps on given texts: three kinds of draft against whole distributions."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from specdec.base import ModelOutput
from specdec.data import packing
from specdec.drafters import table
from specdec.experiments import overlap
from specdec.models import reduced

VOCAB = 6
# Token 5 never comes, and 4 never comes first of two.
TEXT = np.array([[0, 1, 2, 3, 0, 1], [3, 0, 2, 0, 1, 4]])
ROWS = packing.Batch(
  np.int32([[0, 1, 2, 4], [5, 3, 0, 0], [2, 2, 1, 0]]),
  np.array([[0, 1, 1, 1], [1, 1, 1, 0], [0, 0, 0, 1]], bool),
)


def by_last(params, tokens):
  """A model whose logits are a row of a table, by last token."""
  return ModelOutput(params[tokens], None, None)


def softmax(logits):
  return np.asarray(jax.nn.softmax(logits, -1))


def expected(p, q):
  """Sums over the labels that count; p and q are [V, V], by last token."""
  each = np.minimum(p, q).sum(-1)[ROWS.tokens[:, :-1]]
  return (each * ROWS.mask[:, 1:]).sum(-1)


def test_each_kind_of_draft_is_its_whole_distribution():
  keys = jax.random.split(jax.random.key(0), 3)
  target, whole, few = (jax.random.normal(key, (VOCAB, VOCAB)) for key in keys)
  ids = jnp.array([1, 2, 5])
  unigram = table.unigram(TEXT, VOCAB)
  # Only the two most frequent successors, so that rows are cut.
  bigram = table.bigram(TEXT, VOCAB, most=2)
  found = overlap.by_row(
    {
      'same': overlap.of_model(by_last, target),
      'model': overlap.of_model(by_last, whole),
      'few': overlap.of_reduced(by_last, reduced.Reduced(few[:, ids], ids)),
      'unigram': overlap.of_table(unigram),
      'bigram': overlap.of_table(bigram),
    },
    by_last,
    target,
    ROWS,
    batch_size=2,
  )
  p, on_few = softmax(target), np.zeros((VOCAB, VOCAB))
  on_few[:, ids] = softmax(few[:, ids])
  counts = np.bincount(TEXT.ravel(), minlength=VOCAB) / TEXT.size
  # By hand: what follows 0 (1 three times of four, 2), 1, 2 (3 and 0), 3.
  after = np.zeros((VOCAB, VOCAB))
  after[0, [1, 2]] = 0.75, 0.25
  after[1, [2, 4]] = 0.5
  after[2, [0, 3]] = 0.5
  after[3, 0] = 1
  after[4:, [0, 1]] = 4 / 7, 3 / 7  # nothing followed: the commonest tokens
  for name, q in {
    'same': p,
    'model': softmax(whole),
    'few': on_few,
    'unigram': np.tile(counts, (VOCAB, 1)),
    'bigram': after,
  }.items():
    sums, labels = found[name]
    assert_array_equal(labels, [3, 2, 1])
    assert_allclose(sums, expected(p, q), rtol=1e-5)
  assert_allclose(found['same'][0], [3, 2, 1], rtol=1e-5)
