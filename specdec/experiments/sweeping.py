"""Shared by the sweeps: loops under one clock, and what predicts their speed.

Every batch of prompts is decoded by the autoregressive loop and by all others
in turn, so that drift of the machine hits all alike. From its replies follows
what rounds of every gamma do, see replay.py, and from the costs of the parts,
see costs.py, how long they take.
"""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from specdec import sampling, theory
from specdec.data import packing
from specdec.decode import autoregressive, speculative, stats
from specdec.experiments import calls, costs, drafting, replay, timed

PLAIN = 'autoregressive'
STEPS = 4  # of a timed run of a part


class Loop(NamedTuple):
  """What tells one speculative loop of a sweep from another."""

  gamma: int  # most drafts of a round
  policy: str  # of drafting.POLICIES


def decoder_of(config, loop, decoding, costs=None):
  """The decoder of a loop.

  Args:
    config: setup.DecodeConfig; its gamma and policy are the loop's.
    loop: Loop.
    decoding: setup.Decoding.
    costs: cost_aware.Costs, for the policy of that name.
  """
  config = dataclasses.replace(config, gamma=loop.gamma, policy=loop.policy)
  drafter = drafting.drafter_of(
    config,
    decoding.draft,
    decoding.target.vocab_size,
    drafting.policy(config, costs),
  )
  return speculative.build(decoding.target, drafter, config.rules[config.rule])


def plain_decoder(target, rule):
  """The autoregressive loop that draws as a rule does."""
  draw = sampling.race if rule.shares_noise else sampling.categorical
  return autoregressive.build(target, draw)


def prices(config, decoding, temperatures, length, repeats):
  """What the parts of rounds cost, as a row of metrics.jsonl.

  Args:
    config: setup.DecodeConfig of the longest rounds, of one draft at least.
    decoding: setup.Decoding.
    temperatures: of the rounds.
    length: cached tokens of a row; fewer, where the models have no room.
    repeats: timed runs of each part.

  Returns:
    A dict: `costs`, `by_temperature` and `measured`, and the models' sizes.
  """
  room = decoding.target.max_length - STEPS * (config.gamma + 1)
  length = max(min(length, room), 1)
  vocab_size = decoding.target.vocab_size
  drafters = [
    drafting.drafter_of(
      dataclasses.replace(config, gamma=gamma, rule='token'),
      decoding.draft,
      vocab_size,
    )
    for gamma in sorted({1, config.gamma})
  ]
  found = costs.measure(
    (decoding.target, decoding.weights.target),
    (decoding.draft, decoding.weights.draft),
    drafters,
    calls.Place(config.batch_size, length, STEPS),
    repeats,
    temperatures,
    sorted(
      {t for g in range(config.gamma + 1) for t in speculative.feed_lengths(g)}
    ),
  )
  return {
    'costs': found.costs()._asdict(),
    'by_temperature': {
      f'{temperature:g}': {
        'step_s': found.step[temperature].median_s,
        'rest_s': [
          found.rest_s(gamma, temperature) for gamma in range(config.gamma + 1)
        ],
      }
      for temperature in temperatures
    },
    'measured': found.summary(),
    'num_params': decoding.num_params._asdict(),
  }


def cached_tokens(batches, max_new_tokens):
  """The cached length of the longest row, halfway through a reply.

  It is what attention works over, whatever the other rows of a batch hold.

  Args:
    batches: of timed.batches.
    max_new_tokens: of a reply.
  """
  longest = [max(map(len, batch.ids)) for batch in batches]
  return sum(longest) // len(longest) + max_new_tokens // 2


def left(batches, rows, cell):
  """The batches that a cell still lacks.

  Args:
    batches: of timed.batches.
    rows: of metrics.jsonl.
    cell: dict of what all rows of the cell hold.
  """
  starts = {
    row['start']
    for row in rows
    if 'start' in row and cell.items() <= row.items()
  }
  return [batch for batch in batches if batch.start not in starts]


def round_s(price, temperature, gamma):
  """Seconds of a round by the drafts of its longest row, float [gamma + 1].

  Args:
    price: of `prices`.
    temperature: one of those.
    gamma: most drafts of a round.
  """
  lengths = speculative.feed_lengths(gamma)
  drafts = np.arange(gamma + 1)
  fed = [min(length for length in lengths if length > d) for d in drafts]
  parts = price['costs']
  rest_s = price['by_temperature'][f'{temperature:g}']['rest_s'][: gamma + 1]
  target_s = np.array(parts['target_s'])[np.array(fed) - 1]
  return np.array(rest_s) + drafts * parts['draft_s'] + target_s


def measure(
  config, decoding, decoders, read, batches, temperature, seed, max_len
):
  """Runs all loops on all batches, in turn.

  Args:
    config: setup.DecodeConfig of the longest rounds.
    decoding: setup.Decoding.
    decoders: {PLAIN: decoder, Loop: decoder}, compiled or not.
    read: of replay.reader.
    batches: of timed.batches, or some of them.
    temperature: of all rows.
    seed: of all draws.
    max_len: room of every row, in tokens.

  Yields:
    (timed.Batch, row of metrics.jsonl).
  """
  params = sampling.params(config.batch_size, temperature)
  loops = {
    name: timed.loop(
      decoder,
      decoding.weights._replace(draft=None)
      if name == PLAIN
      else decoding.weights,
      params,
      seed,
      decoding.stop_tokens,
      max_len,
    )
    for name, decoder in decoders.items()
  }
  rule = config.rules[config.rule]
  is_alike = rule.shares_noise or (temperature == 0 and rule.lossless)
  compile_s = sum(
    timed.compile_s(loop, batch)
    for batch in batches[:1]
    for loop in loops.values()
  )
  for batch in batches:
    results = {name: loop(batch) for name, loop in loops.items()}
    plain = results.pop(PLAIN)
    texts = [output['tokens'] for output in plain.outputs]
    row = {
      'start': batch.start,
      'count': batch.count,
      'compile_s': compile_s if batch is batches[0] else 0.0,
      'plain': _figures(batch, plain),
      'loops': [
        {
          **loop._asdict(),
          **_figures(batch, result),
          'differ': sum(
            output['tokens'] != text
            for output, text in zip(result.outputs, texts, strict=True)
          )
          if is_alike
          else None,
        }
        for loop, result in results.items()
      ],
    }
    row |= _predicted(
      decoding, read, batch, texts, params, list(results), seed, max_len
    )
    yield batch, row


def _figures(batch, result):
  """What a loop did, without the batch's fillers."""
  counters = jax.tree.map(lambda x: x[: batch.count], result.counters)
  return {
    'seconds': result.decode_s,
    'tokens': int(counters.committed.sum()),
    'rounds': int(counters.rounds.sum()),
    'drafted_at': counters.drafted_at.sum(0).tolist(),
    'accepted_at': counters.accepted_at.sum(0).tolist(),
    'calls': int(result.calls.sum()),
  }


def _predicted(decoding, read, batch, texts, params, loops, seed, max_len):
  """What rounds by the token rule do on the autoregressive replies.

  Returns:
    A dict: `overlap`, a sum and the number of tokens; `replayed`, one entry a
    loop of a fixed gamma.
  """
  rows = [
    packing.Row(
      np.array([*ids, *text], np.int32),
      np.repeat([False, True], [len(ids), len(text)]),
    )
    for ids, text in zip(batch.ids, texts, strict=False)
  ]
  gammas = [loop.gamma for loop in loops if loop.policy == 'fixed']
  most = max([1, *gammas])
  offered = read(decoding.weights, rows, params, most, max_len)
  firsts = np.concatenate(
    [np.where(text.proposed > 0, text.kept[:, 0], 0) for text in offered]
  )
  replayed = []
  for gamma in gammas:
    played = replay.run(
      offered, batch.budgets[0], gamma, seed=(seed, batch.start, gamma)
    )
    replayed.append(
      {'gamma': gamma, **{k: v.tolist() for k, v in played._asdict().items()}}
    )
  return {'overlap': [firsts.sum(), firsts.size], 'replayed': replayed}


class Prediction(NamedTuple):
  """What is said of one loop of a fixed gamma, before it is run."""

  block_efficiency: float
  accept_rate_by_position: list  # None where no draft got so far
  constant_alpha: float  # speedup of Leviathan's Theorem 3.8, v = 1
  by_position: float  # the same, with replayed rounds
  measured_costs: float  # speedup by replayed rounds and what each takes
  tokens_per_s: float  # by the same


def predict(rows, price, temperature, gamma) -> Prediction:
  """Puts replayed rounds and measured costs together.

  Args:
    rows: of `measure`, at one temperature.
    price: of `prices`, of the same drafter.
    temperature: of the rows.
    gamma: drafts of a round.
  """
  played = [
    next(x for x in row['replayed'] if x['gamma'] == gamma) for row in rows
  ]
  tokens, steps = (
    sum(row['plain'][name] for row in rows) for name in ('tokens', 'calls')
  )
  overlap, count = np.sum([row['overlap'] for row in rows], 0)
  calls = np.sum([x['calls'] for x in played], 0)
  rounds = sum(sum(x['rounds']) for x in played)
  drafted, accepted = (
    np.sum([x[name] for x in played], 0)
    for name in ('drafted_at', 'accepted_at')
  )
  c = price['costs']['draft_s'] / price['costs']['target_s'][0]
  step_s = price['by_temperature'][f'{temperature:g}']['step_s']
  drafts = np.arange(gamma + 1)
  seconds = calls @ round_s(price, temperature, gamma)
  return Prediction(
    tokens / rounds,
    list(map(stats.rate, accepted, drafted)),
    float(theory.speedup(overlap / count, gamma, c)),
    steps / (calls @ (drafts * c + 1)),
    steps * step_s / seconds,
    tokens / seconds,
  )
