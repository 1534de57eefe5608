"""From a config's words to a drafter and to how many drafts it makes.

A config is a setup.DecodeConfig, or what has the same fields.
"""

import dataclasses

from specdec.base import Drafter, UsageError
from specdec.decode import speculative
from specdec.drafters import model, ngram, table
from specdec.drafters.policies import (
  confidence,
  cost_aware,
  entropy,
  fixed,
  heuristic,
)
from specdec.experiments import calls
from specdec.experiments import costs as costs_lib

# Drafters that are counted, and how.
TABLES = {'unigram': table.unigram, 'bigram': table.bigram}
DRAFTERS = ('ngram', 'model', *TABLES)
POLICIES = ('fixed', 'heuristic', 'confidence', 'entropy', 'cost_aware')
# Where costs are measured before decoding: cached tokens, work of a run, runs.
COSTS_AT, COSTS_REPEATS = calls.Place(1, 128, 4), 5


def policy(config, costs=None):
  """The policy of a config.

  Args:
    config: DecodeConfig.
    costs: cost_aware.Costs, for the policy of that name.

  Raises:
    UsageError: a field of the policy is out of its range.
  """
  gamma = config.gamma
  return {
    'fixed': lambda: fixed.build(gamma),
    'heuristic': lambda: heuristic.build(gamma),
    'confidence': lambda: confidence.build(gamma, config.threshold),
    'entropy': lambda: entropy.build(gamma, config.scale, config.bound),
    'cost_aware': lambda: cost_aware.build(
      gamma, costs, config.explore, config.forgiven
    ),
  }[config.policy]()


def check_policy(config):
  """Refuses fields that the config's policy cannot have.

  Raises:
    UsageError: it names the field.
  """
  if config.policy == 'cost_aware' and config.gamma == 0:
    raise UsageError(
      "gamma = 0: the policy 'cost_aware' chooses from 0..gamma; give at"
      ' least 1'
    )
  policy(config, cost_aware.Costs((1.0,) * (config.gamma + 1), 0.0, 0.0, 0.0))


def policy_of(config, target, draft, weights):
  """The policy of a config, for models on this machine.

  The policy `cost_aware` has the costs measured first, which takes seconds.

  Args:
    config: DecodeConfig.
    target: Model.
    draft: Model, or None.
    weights: Weights of both.
  """
  if config.policy != 'cost_aware':
    return policy(config)
  return policy(config, measure_costs(config, target, draft, weights).costs())


def drafter_of(config, draft, vocab_size, policy=None) -> Drafter:
  """The drafter of a config.

  Args:
    config: DecodeConfig.
    draft: Model, for the drafter `model`.
    vocab_size: V.
    policy: of `policy_of`; None is gamma drafts in every round.
  """
  if config.drafter == 'ngram':
    return ngram.build(config.gamma, config.max_match, config.min_match, policy)
  if config.drafter in TABLES:
    return table.build(vocab_size, config.gamma, policy)
  return model.build(
    draft,
    config.gamma,
    policy,
    config.rules[config.rule].shares_noise,
  )


def measure_costs(config, target, draft, weights, place=COSTS_AT, feeds=None):
  """What the parts of a config's rounds cost here.

  Args:
    config: DecodeConfig of at least one draft.
    target: Model.
    draft: Model, or None.
    weights: Weights of both.
    place: calls.Place; its batch is the config's, and its length no more than
      what the models have room for.
    feeds: tokens a row of the timed target calls; None is those that a decoder
      is compiled for.

  Returns:
    costs_lib.Measured.
  """
  # Every rule can verify drafts with noise of their own; that they are drawn
  # in another way costs the same.
  config = dataclasses.replace(config, rule='token')
  drafter = drafter_of(config, draft, target.vocab_size)
  room = target.max_length - place.steps * (config.gamma + 1)
  length = max(min(place.length, room), 1)
  return costs_lib.measure(
    (target, weights.target),
    (draft, weights.draft),
    [drafter],
    place._replace(batch=config.batch_size, length=length),
    COSTS_REPEATS,
    (config.temperature,),
    feeds or speculative.feed_lengths(config.gamma),
  )
