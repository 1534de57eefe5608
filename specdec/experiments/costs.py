"""What the parts of a round cost on this machine, in seconds.

A round of g drafts takes

  rest + g t_draft + t_target(g + 1),

and what is predicted of speculation needs these three, not their ratio at one
token: on a CPU a call of five tokens may take three times a call of one. All
parts are timed in turn, so that drift of the machine hits them alike. The rest
is what whole rounds take beyond the same model calls without the loop.

Beside t_target(1) stands the time that copying its weights would take, at the
bandwidth that a plain copy reaches here: memory allows no faster step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specdec import timing
from specdec.base import UsageError, Weights
from specdec.decode import speculative
from specdec.drafters.policies.cost_aware import Costs
from specdec.experiments import calls
from specdec.timing import Times
from specdec.verify import RULES

# Bytes of the array whose copy is timed: more than any cache holds.
COPY_BYTES = 2**28


class Measured(NamedTuple):
  """Seconds of single calls and rounds, at one batch and cached length."""

  target: dict[int, Times]  # by tokens fed to each row, 1 among them
  draft: Times | None  # one token a row; None for a drafter without a model
  catch_up: Times | None  # gamma + 1 tokens a row, without their logits
  round: Times  # a greedy round of gamma drafts, by the token rule
  forwards: Times  # the model calls of that round
  copy: Times  # of COPY_BYTES
  gamma: int
  batch: int
  length: int  # cached tokens of a row
  weights_bytes: int  # of the target

  def target_s(self, tokens):
    """t_target of the least measured call that takes so many tokens a row."""
    return self.target[min(t for t in self.target if t >= tokens)].median_s

  @property
  def draft_s(self):
    """t_draft, one step; 0 without a draft model."""
    return 0.0 if self.draft is None else self.draft.median_s

  @property
  def rest_s(self):
    """A round beyond its model calls; below 0 is too little to be measured."""
    return self.round.median_s - self.forwards.median_s

  @property
  def overhead(self):
    """The share of a round outside of the models."""
    return self.rest_s / self.round.median_s

  @property
  def c(self):
    """t_draft / t_target(1)."""
    return self.draft_s / self.target_s(1)

  def v(self, gamma):
    """t_target(gamma + 1) / t_target(1)."""
    return self.target_s(gamma + 1) / self.target_s(1)

  @property
  def bytes_per_s(self):
    """Bandwidth of a copy: what is read and what is written both count."""
    return 2 * COPY_BYTES / self.copy.median_s

  @property
  def floor_s(self):
    """To read the target's weights once, at that bandwidth."""
    return self.weights_bytes / self.bytes_per_s

  def costs(self):
    """The Costs of rounds of 0..gamma drafts."""
    catch_up_s = 0.0
    if self.catch_up is not None:
      catch_up_s = self.catch_up.median_s / (self.gamma + 1)
    return Costs(
      tuple(self.target_s(tokens) for tokens in range(1, self.gamma + 2)),
      self.draft_s,
      max(self.rest_s, 0.0),
      catch_up_s,
    )

  def summary(self):
    """What a summary.json holds: milliseconds with quartiles, and ratios."""
    return {
      'batch_size': self.batch,
      'cached_tokens': self.length,
      'target_ms': {str(t): _ms(times) for t, times in self.target.items()},
      'draft_ms': _ms(self.draft),
      'catch_up_ms': _ms(self.catch_up),
      'round_ms': _ms(self.round),
      'forwards_ms': _ms(self.forwards),
      'rest_ms': 1e3 * self.rest_s,
      'overhead': self.overhead,
      'c': self.c,
      'v': {str(t - 1): self.v(t - 1) for t in self.target},
      'bandwidth_bytes_per_s': self.bytes_per_s,
      'weights_bytes': self.weights_bytes,
      'floor_ms': 1e3 * self.floor_s,
      'step_over_floor': self.target_s(1) / self.floor_s,
    }


def programs(target, draft, drafter, place, feeds=None):
  """Everything that is timed, by name.

  Args:
    target: (base.Model, params).
    draft: the same of the draft; (None, its params) for a drafter without a
      model.
    drafter: base.Drafter of the longest rounds, at least one draft, in every
      round.
    place: calls.Place.
    feeds: tokens a row of the timed target calls; None is 1..gamma + 1. A call
      of a number between two of them is taken to cost what the longer does,
      which is what a decoder compiled for these lengths pays.

  Returns:
    {name: function without arguments}, for `timing.interleaved`.

  Raises:
    UsageError: feeds lack 1 or gamma + 1.
  """
  gamma = drafter.gamma
  feeds = range(1, gamma + 2) if feeds is None else feeds
  if gamma < 1 or 1 not in feeds or max(feeds) < gamma + 1:
    raise UsageError(
      f'feeds = {tuple(feeds)}: they must hold 1 and reach gamma + 1 ='
      f' {gamma + 1}, with gamma at least 1'
    )
  rows = place.length + place.steps * (gamma + 1)
  models = [target] if draft[0] is None else [target, draft]

  def forwards(*each):
    return calls.forwards(models, each, place, rows)

  decoder = speculative.build(target[0], drafter, RULES['token'])
  weights = Weights(target[1], draft[1])
  copied = jnp.zeros(COPY_BYTES // 4)
  copy = jax.jit(lambda x: x + 1)
  found = {'copy': lambda: copy(copied)}
  for feed in feeds:
    found[f'target {feed}'] = forwards(calls.Call(0, feed))
  steps = []
  if draft[0] is not None:
    found['draft'] = forwards(calls.Call(1, 1))
    found['catch up'] = forwards(calls.Call(1, gamma + 1, logits=False))
    # The first draft feeds two tokens, the next ones one each.
    steps = [calls.Call(1, feed) for feed in (2, *(1,) * (gamma - 1))]
  found['forwards'] = forwards(*steps, calls.Call(0, gamma + 1))
  found['round'] = calls.rounds(decoder, weights, place, rows, temperature=0.0)
  return found


def collect(times, gamma, place, weights_bytes) -> Measured:
  """Puts the times of `programs` together.

  Args:
    times: {name: Times} of whole runs.
    gamma: drafts of the rounds.
    place: calls.Place of the programs.
    weights_bytes: of the target.
  """

  def one(name):
    if name not in times:
      return None
    return Times(*(value / place.steps for value in times[name]))

  return Measured(
    target={
      int(name.split()[1]): one(name)
      for name in times
      if name.startswith('target ')
    },
    draft=one('draft'),
    catch_up=one('catch up'),
    round=one('round'),
    forwards=one('forwards'),
    copy=times['copy'],
    gamma=gamma,
    batch=place.batch,
    length=place.length,
    weights_bytes=weights_bytes,
  )


def measure(
  target,
  draft,
  drafter,
  place,
  repeats,
  feeds=None,
  progress=lambda: None,
) -> Measured:
  """Times the parts of a round.

  Args:
    target: see `programs`, as draft, drafter, place and feeds.
    draft: a model and its params.
    drafter: base.Drafter.
    place: calls.Place.
    repeats: timed runs of each part.
    feeds: tokens a row.
    progress: called after every run.
  """
  found = programs(target, draft, drafter, place, feeds)
  times = timing.interleaved(found, repeats, progress)
  weights_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(target[1]))
  return collect(times, drafter.gamma, place, weights_bytes)


def _ms(times):
  """Median and quartiles in milliseconds."""
  return None if times is None else [1e3 * value for value in times]
