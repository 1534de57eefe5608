"""What the parts of a round cost on this machine, in seconds.

A round of g drafts takes

  rest + g t_draft + t_target(g + 1),

and what is predicted of speculation needs these three, not their ratio at one
token: on a CPU a call of five tokens may take three times a call of one. All
parts are timed in turn, so that drift of the machine hits them alike. The rest
is what whole rounds take beyond the same model calls without the loop; it
grows with the drafts that are drawn and verified, and with a temperature.

Beside t_target(1) stands the time that copying its weights would take, at the
bandwidth that a plain copy reaches here: memory allows no faster step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import timing
from specdec.base import UsageError, Weights
from specdec.decode import autoregressive, speculative
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
  round: dict[tuple[int, float], Times]  # by gamma and temperature, each by the
  # token rule and with all its drafts
  forwards: dict[int, Times]  # the model calls of those rounds, by gamma
  step: dict[float, Times]  # an autoregressive one, by temperature
  copy: Times  # of COPY_BYTES
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
  def gamma(self):
    """Drafts of the longest rounds."""
    return max(self.forwards)

  @property
  def temperatures(self):
    """Of the rounds."""
    return tuple(self.step)

  def rest_s(self, gamma, temperature):
    """A round beyond its model calls, linear between the measured gammas.

    A round of no drafts is an autoregressive step. Below 0 it is too little to
    be measured.
    """
    rests = {0: self.step[temperature].median_s - self.target_s(1)}
    for g in sorted(self.forwards):
      whole = self.round[g, temperature].median_s
      rests[g] = whole - self.forwards[g].median_s
    return float(np.interp(gamma, list(rests), list(rests.values())))

  def overhead(self, gamma, temperature):
    """The share of a round outside of the models, of a measured gamma."""
    whole = self.round[gamma, temperature].median_s
    return self.rest_s(gamma, temperature) / whole

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
    """The Costs of rounds of 0..gamma drafts, at the first temperature."""
    catch_up_s = 0.0
    if self.catch_up is not None:
      catch_up_s = self.catch_up.median_s / (self.gamma + 1)
    return Costs(
      tuple(self.target_s(tokens) for tokens in range(1, self.gamma + 2)),
      self.draft_s,
      max(self.rest_s(self.gamma, self.temperatures[0]), 0.0),
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
      'forwards_ms': {str(g): _ms(t) for g, t in self.forwards.items()},
      'step_ms': {f'{t:g}': _ms(times) for t, times in self.step.items()},
      'rounds': [
        {
          'gamma': gamma,
          'temperature': temperature,
          'ms': _ms(times),
          'rest_ms': 1e3 * self.rest_s(gamma, temperature),
          'overhead': self.overhead(gamma, temperature),
        }
        for (gamma, temperature), times in self.round.items()
      ],
      'c': self.c,
      'v': {str(t - 1): self.v(t - 1) for t in self.target},
      'bandwidth_bytes_per_s': self.bytes_per_s,
      'weights_bytes': self.weights_bytes,
      'floor_ms': 1e3 * self.floor_s,
      'step_over_floor': self.target_s(1) / self.floor_s,
    }


def programs(target, draft, drafters, place, temperatures, feeds=None):
  """Everything that is timed, by what it is: tuples of a name and numbers.

  Args:
    target: (base.Model, params).
    draft: the same of the draft; (None, its params) for a drafter without a
      model.
    drafters: base.Drafters, one a gamma, each of at least one draft in every
      round.
    place: calls.Place.
    temperatures: of the rounds.
    feeds: tokens a row of the timed target calls; None is 1..gamma + 1, of the
      greatest gamma. A call of a number between two of them is taken to cost
      what the longer does, which is what a decoder compiled for these lengths
      pays.

  Returns:
    {key: function without arguments}, for `timing.interleaved`.

  Raises:
    UsageError: feeds lack 1 or gamma + 1.
  """
  gamma = max(drafter.gamma for drafter in drafters)
  feeds = range(1, gamma + 2) if feeds is None else feeds
  if gamma < 1 or 1 not in feeds or max(feeds) < gamma + 1:
    raise UsageError(
      f'feeds = {tuple(feeds)}: they must hold 1 and reach gamma + 1 ='
      f' {gamma + 1}, with gamma at least 1'
    )
  rows = place.length + place.steps * (gamma + 1)
  models = [target] if draft[0] is None else [target, draft]
  weights = Weights(target[1], draft[1])

  # At a large batch caches are most of the memory: one set serves all.
  box = calls.caches(models, place, rows + gamma + 1)

  def forwards(*each):
    return calls.forwards(models, each, place, rows, box)

  def steps(decoder, weights):
    return {
      temperature: calls.rounds(
        decoder, weights, place, rows, temperature=temperature
      )
      for temperature in temperatures
    }

  # In place: fresh memory would be timed with it.
  copy = calls.again(lambda _, x: x + 1, (), [jnp.zeros(COPY_BYTES // 4)])
  found = {('copy',): copy}
  for feed in feeds:
    found['target', feed] = forwards(calls.Call(0, feed))
  if draft[0] is not None:
    found['draft',] = forwards(calls.Call(1, 1))
    found['catch up',] = forwards(calls.Call(1, gamma + 1, logits=False))
  plain = autoregressive.build(target[0])
  for temperature, run in steps(plain, weights._replace(draft=None)).items():
    found['step', temperature] = run
  for drafter in drafters:
    drafting = []
    if draft[0] is not None:
      # The first draft feeds two tokens, the next ones one each.
      drafting = [
        calls.Call(1, feed) for feed in (2, *(1,) * (drafter.gamma - 1))
      ]
    verifying = calls.Call(0, drafter.gamma + 1)
    found['forwards', drafter.gamma] = forwards(*drafting, verifying)
    decoder = speculative.build(target[0], drafter, RULES['token'])
    for temperature, run in steps(decoder, weights).items():
      found['round', drafter.gamma, temperature] = run
  return found


def collect(times, place, weights_bytes) -> Measured:
  """Puts the times of `programs` together.

  Args:
    times: {key: Times} of whole runs.
    place: calls.Place of the programs.
    weights_bytes: of the target.
  """
  once = {
    key: Times(*(value / place.steps for value in spread))
    for key, spread in times.items()
  }

  def by(kind):
    return {key[1]: t for key, t in once.items() if key[0] == kind}

  return Measured(
    target=by('target'),
    draft=once.get(('draft',)),
    catch_up=once.get(('catch up',)),
    round={key[1:]: t for key, t in once.items() if key[0] == 'round'},
    forwards=by('forwards'),
    step=by('step'),
    copy=times['copy',],
    batch=place.batch,
    length=place.length,
    weights_bytes=weights_bytes,
  )


def measure(
  target,
  draft,
  drafters,
  place,
  repeats,
  temperatures=(0.0,),
  feeds=None,
  progress=lambda: None,
) -> Measured:
  """Times the parts of a round.

  Args:
    target: see `programs`, as the next three, temperatures and feeds.
    draft: a model and its params.
    drafters: base.Drafters.
    place: calls.Place.
    repeats: timed runs of each part.
    temperatures: of the rounds.
    feeds: tokens a row.
    progress: called after every run.
  """
  found = programs(target, draft, drafters, place, temperatures, feeds)
  times = timing.interleaved(found, repeats, progress)
  weights_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(target[1]))
  return collect(times, place, weights_bytes)


def _ms(times):
  """Median and quartiles in milliseconds."""
  return None if times is None else [1e3 * value for value in times]
