"""Figures of a finished batch, on the host.

Block efficiency is tokens committed per target call of a row (the bonus
included), accept rate is accepted / drafted. They differ by definition: never
call either of them alpha.
"""

import jax
import numpy as np

from specdec.base import FINISH_REASONS


def outputs(state):
  """What each row emitted.

  Args:
    state: DecodeState.

  Returns:
    A list of B dicts: tokens (ids), logprobs (under the target), drafted (was
    it an accepted draft?), finish_reason.
  """
  state = jax.device_get(state._replace(key=None, cache=None, draft=None))
  rows = []
  for row, reason in enumerate(state.finish_reason):
    span = slice(state.prompt_length[row], state.length[row])
    rows.append(
      {
        'tokens': state.tokens[row, span].tolist(),
        'logprobs': state.logprobs[row, span].tolist(),
        'drafted': state.drafted[row, span].tolist(),
        'finish_reason': FINISH_REASONS[reason],
      }
    )
  return rows


def totals(counters):
  """Sums and rates over rows.

  Args:
    counters: Counters of B rows, or a list of such.

  Returns:
    A dict: rounds, drafted, accepted, committed, block_efficiency,
    accept_rate, accept_rate_by_position. A rate without a denominator is
    None, as the accept rate is for gamma = 0.
  """
  batches = counters if isinstance(counters, list) else [counters]
  sums = jax.tree.map(
    lambda *leaves: sum(np.asarray(leaf).sum(0) for leaf in leaves), *batches
  )
  return {
    'rounds': int(sums.rounds),
    'drafted': int(sums.drafted),
    'accepted': int(sums.accepted),
    'committed': int(sums.committed),
    'block_efficiency': rate(sums.committed, sums.rounds),
    'accept_rate': rate(sums.accepted, sums.drafted),
    'accept_rate_by_position': [
      rate(accepted, drafted)
      for accepted, drafted in zip(
        sums.accepted_at, sums.drafted_at, strict=True
      )
    ],
  }


def rate(part, whole):
  """The quotient part / whole, or None where whole is 0."""
  return float(part) / float(whole) if whole else None
