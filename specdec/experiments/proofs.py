"""What configs/prove.py measures of a rule, one function a kind of proof."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specdec import exact, rng, sampling, simulation
from specdec.base import Weights
from specdec.decode import speculative
from specdec.drafters import model
from specdec.models import markov
from specdec.verify import RULES, coupled
from specdec.verify.multi import candidates

# The two-token pair of the loop, and the drafts of a round there.
LOOP_VOCAB, LOOP_OVERLAP, LOOP_GAMMA, LOOP_ROWS = 2, 0.6, 3, 100_000
CANDIDATES = (1, 2, 3)  # at one position
# Texts that are enumerated over all their rounds.
TEXT_VOCAB, TEXT_TOKENS = 2, 5


class Group(NamedTuple):
  """Pairs of trees of one size, and the paths of all of them."""

  pairs: list[tuple[list[np.ndarray], list[np.ndarray]]]  # C of (p, q)
  paths: exact.Paths  # of the first pair, then of the second, ...

  def split(self, laws):
    """Laws of the paths as C parts, one a pair."""
    return np.split(laws, len(self.pairs))


def draw_groups(config):
  """The pairs of all sizes."""
  for vocab in config.vocabs:
    for gamma in config.gammas:
      draws = np.random.default_rng([config.seed, vocab, gamma])
      pairs = [
        (p, q)
        for _ in range(config.repeats)
        for _, p, q in exact.pairs(draws, vocab, gamma)
      ]
      parts = [exact.paths(p, q) for p, q in pairs]
      joined = map(np.concatenate, zip(*parts, strict=True))
      yield Group(pairs, exact.Paths(*joined))


def enumerate_rule(rule, policy, groups):
  """A rule's exact law over all pairs, in float64.

  Args:
    rule: base.VerifyRule.
    policy: drafters.policies.policy.Policy.
    groups: of `draw_groups`.

  Returns:
    A dict: cases, the largest deviation of an output string's probability,
    mean and largest total variation, and the mean of E[tau].
  """
  deviations, variations, accepted = [], [], []
  for group in groups:
    with jax.enable_x64(True):
      lengths = exact.draft_lengths(policy, group.paths)
      laws = exact.path_laws(rule, group.paths, lengths)
    for (p, q), law in zip(group.pairs, group.split(laws), strict=True):
      error = np.abs(exact.output_law(law, p, q) - exact.joint(p))
      deviations.append(error.max())
      variations.append(error.sum() / 2)
      accepted.append(exact.expected_accepted(law, q))
  return {
    'cases': len(deviations),
    'deviation': float(np.max(deviations)),  # a NaN is one, and is seen
    'mean_total_variation': float(np.mean(variations)),
    'total_variation': float(np.max(variations)),
    'mean_accepted': float(np.mean(accepted)),
  }


def enumerate_texts(rule, policy, config):
  """The exact law of whole texts when a policy learns from round to round.

  Args:
    rule: base.VerifyRule.
    policy: drafters.policies.policy.Policy whose limits matter alone.
    config: of prove.

  Returns:
    A dict: cases, and the largest deviation of a text's probability.
  """
  draws = np.random.default_rng([config.seed, 2])

  @functools.cache
  def state(history):
    if not history:
      return policy.init(1)
    drafted, accepted = (jnp.array([x], jnp.int32) for x in history[-1])
    return policy.update(state(history[:-1]), drafted, accepted)

  @functools.cache
  def limit(history):
    return int(policy.limit(state(history))[0])

  deviations = []
  for _, p, q in exact.pairs(draws, TEXT_VOCAB, TEXT_TOKENS - 1):
    with jax.enable_x64(True):
      law = exact.text_law(rule, limit, p, q)
    deviations.append(np.abs(law - exact.joint(p)).max())
  return {'cases': len(deviations), 'deviation': float(np.max(deviations))}


def compare_means(groups):
  """By how much token <= block <= bound fails for E[tau], at worst."""
  gaps = []
  for group in groups:
    with jax.enable_x64(True):
      laws = [
        group.split(exact.path_laws(RULES[name], group.paths))
        for name in ('token', 'block')
      ]
    for (p, q), *both in zip(group.pairs, *laws, strict=True):
      means = [exact.expected_accepted(law, q) for law in both]
      gaps.extend(-np.diff([*means, exact.accepted_bound(p, q)]))
  return {'cases': len(gaps) // 2, 'deviation': float(np.max(gaps))}


def sample_rule(rule, config):
  """The p-value of simulated rounds under the rule's own law."""
  draws = np.random.default_rng([config.seed, 1])
  p, q = exact.tree(draws, 3, 3), exact.tree(draws, 3, 2)
  draw = coupled.draw if rule.shares_noise else model.draw_own
  counts = simulation.count_rounds(rule, draw, p, q, config.rounds)
  with jax.enable_x64(True):
    law = exact.path_laws(rule, exact.paths(p, q))
  weights = exact.joint(q).reshape(-1, 1, 1)
  return {'p_value': simulation.p_value(counts, weights * law)}


def enumerate_candidates(build, groups):
  """The exact law of a rule for several candidates at one position.

  Args:
    build: k -> verify.multi MultiRule.
    groups: of `draw_groups`; those of one draft are looked at.

  Returns:
    A dict: cases, the largest deviation of the output from the target, and
    the mean acceptance, for 1 to 3 candidates.
  """
  deviations, accepted = [], []

  def one(k, p, q):
    rule = build(k)
    tuples = candidates.every(p.size, k)
    prob = jax.vmap(rule.prob, (0, None))(tuples, q)
    law = jax.vmap(rule.law, (0, None, None))(tuples, p, q)
    law = jnp.sum(prob[:, None, None] * law, 0)
    return jnp.sum(law, 0), jnp.sum(law[:k])

  for group in groups:
    if len(group.pairs[0][1]) != 1:
      continue
    p, q = (np.stack([pair[i][0] for pair in group.pairs]) for i in (0, 1))
    for k in CANDIDATES:
      run = jax.vmap(functools.partial(one, k))
      with jax.enable_x64(True):
        output, accept = jax.jit(run, compiler_options=exact.QUICK)(p, q)
      deviations.extend(np.abs(np.asarray(output) - p).max(-1))
      accepted.extend(np.asarray(accept))
  return {
    'cases': len(deviations),
    'deviation': float(np.max(deviations)),
    'mean_accepted': float(np.mean(accepted)),
  }


def loop_rule(rule, config, policy=None):
  """The p-value of texts of several rounds under the target's law.

  Args:
    rule: base.VerifyRule.
    config: of prove.
    policy: drafters.policies.policy.Policy; None drafts LOOP_GAMMA tokens.
  """
  key = jax.random.key(config.seed)
  target, draft = markov.pair(key, LOOP_VOCAB, LOOP_OVERLAP)
  table = markov.build(LOOP_VOCAB)
  drafter = model.build(table, LOOP_GAMMA, policy, rule.shares_noise)
  decoder = speculative.build(table, drafter, rule)
  counts = np.zeros((LOOP_VOCAB,) * config.text_tokens, int)
  for start in range(0, config.texts, LOOP_ROWS):
    state = decoder.init(
      Weights(target, draft),
      np.zeros((LOOP_ROWS, 1), int).tolist(),
      rng.sequence_keys(config.seed, LOOP_ROWS, start),
      sampling.params(LOOP_ROWS),
      config.text_tokens,
    )
    state = decoder.generate(Weights(target, draft), state)
    texts = np.asarray(state.tokens)[:, 1 : 1 + config.text_tokens]
    np.add.at(counts, tuple(texts.T), 1)
  rows = np.asarray(jax.nn.softmax(target, -1), np.float64)
  levels = [rows[0]]
  for _ in range(config.text_tokens - 1):
    shape = (LOOP_VOCAB,) * (len(levels) - 1) + rows.shape
    levels.append(np.broadcast_to(rows, shape))
  return {'p_value': simulation.p_value(counts, exact.joint(levels))}
