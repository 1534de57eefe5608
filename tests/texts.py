"""What texts are compared with: laws of chains, counts, a sorting reference."""

import numpy as np


def markov_joint(first, table, length):
  """The law of strings of a Markov chain.

  Args:
    first: [V], law of the first token.
    table: [V, V], by last token.
    length: tokens of a string.
  """
  total = np.asarray(first, float)
  for _ in range(length - 1):
    total = total[..., None] * table
  return total


def count_strings(strings, vocab):
  """How often each string of [N, length] occurs, [V] * length."""
  strings = np.asarray(strings)
  index = np.ravel_multi_index(tuple(strings.T), (vocab,) * strings.shape[1])
  counts = np.bincount(index, minlength=vocab ** strings.shape[1])
  return counts.reshape((vocab,) * strings.shape[1])


def sorted_transform(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
  """`sampling.transform` of one row of logits [V], by sorting, in float64."""
  logits = np.asarray(logits, np.float64)
  if temperature < 1e-5:
    return np.eye(logits.size)[logits.argmax()]
  scaled = (logits - logits.max()) / temperature
  probs = np.exp(scaled) / np.exp(scaled).sum()
  order = np.argsort(-probs, kind='stable')  # ties: lowest id first
  if 0 < top_k < logits.size:
    probs[order[top_k:]] = 0
    probs /= probs.sum()
  if top_p < 1:
    ahead = np.cumsum(probs[order]) - probs[order]
    probs[order[ahead >= top_p]] = 0
    probs /= probs.sum()
  if min_p > 0:
    probs[probs < min_p * probs.max()] = 0
    probs /= probs.sum()
  return probs
