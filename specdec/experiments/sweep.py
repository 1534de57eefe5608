"""Every gamma in one batch: what a round commits, by its number of drafts.

A row's result does not depend on its neighbours, so rows of one batch may draft
up to different numbers of tokens. One program is compiled for all gammas,
temperatures and weights. It counts and does not clock: each row waits for the
longest drafts of all.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specdec import rng, sampling
from specdec.base import Weights
from specdec.decode import autoregressive, speculative, stats
from specdec.drafters import model as model_drafter
from specdec.verify import token


def build(target, draft, gammas, prompts, max_new_tokens, stops):
  """A function that decodes all prompts at all gammas, by the token rule.

  Args:
    target: base.Model.
    draft: base.Model.
    gammas: drafts of a round, ascending; 0 is autoregressive.
    prompts: N lists of token ids.
    max_new_tokens: budget of each.
    stops: stop tokens.

  Returns:
    (Weights, temperature, seed) -> {gamma: (texts, counters)}: N lists of
    token ids, and Counters of N rows on the host. A prompt has one key,
    whatever gamma.
  """
  num, batch = len(prompts), len(prompts) * len(gammas)
  drafter = model_drafter.build(draft, max(gammas))
  decoder = speculative.build(target, drafter, token.RULE)
  limits = np.repeat(np.array(gammas, np.int32), num)

  def run(weights, temperature, seed):
    keys = rng.sequence_keys(seed, num)
    state = decoder.init(
      weights,
      list(prompts) * len(gammas),
      keys[np.tile(np.arange(num), len(gammas))],
      sampling.params(batch, temperature),
      max_new_tokens,
      stops,
    )
    # The state of the policy `fixed` is a limit for each row.
    draft = state.draft._replace(policy=jnp.asarray(limits))
    state = decoder.generate(weights, state._replace(draft=draft))
    texts = [row['tokens'] for row in stats.outputs(state)]
    counters = jax.device_get(state.counters)
    found = {}
    for place, gamma in enumerate(gammas):
      span = slice(place * num, (place + 1) * num)
      here = jax.tree.map(lambda leaf, span=span: leaf[span], counters)
      found[gamma] = (texts[span], here)
    return found

  return run


def greedy(target, params, prompts, max_new_tokens, stops):
  """What the autoregressive loop says, which greedy rounds must say too.

  Args:
    target: base.Model.
    params: its params.
    prompts: N lists of token ids.
    max_new_tokens: budget of each.
    stops: stop tokens.

  Returns:
    N lists of token ids.
  """
  decoder = autoregressive.build(target)
  weights = Weights(params, None)
  state = decoder.init(
    weights,
    prompts,
    rng.sequence_keys(0, len(prompts)),
    sampling.params(len(prompts), 0.0),
    max_new_tokens,
    stops,
  )
  state = decoder.generate(weights, state)
  return [row['tokens'] for row in stats.outputs(state)]


def efficiencies(counters):
  """Tokens of full rounds and target calls, for intervals.ratio.

  Args:
    counters: Counters of N rows.

  Returns:
    ([N], [N]). Drafts that a stop or the budget cut off count as accepted;
    the last rounds before the budget draft less, whatever the draft.
  """
  return counters.rounds + counters.accepted, counters.rounds
