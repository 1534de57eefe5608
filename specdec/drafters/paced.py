"""A drafter whose policy says how many drafts each round may have.

The one place that tells a policy what became of a round. A round that leaves a
row alive commits its accepted drafts and one token, so

  accepted = new length - old length - 1,

and what a stop token or the budget cuts off ends the row, which learns no
more. A row that committed nothing in the last round is finished: its limit is
0, so that it asks for no draft.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specdec.base import Drafter


class Paced(NamedTuple):
  """The state of a drafter and of its policy."""

  inner: Any  # the drafter's own
  policy: Any  # the policy's
  alive: jax.Array  # bool [B], did the last round commit anything?
  begin: jax.Array  # int32 [B], the length when the round began
  drafted: jax.Array  # int32 [B], drafts of the round


def build(drafter, policy) -> Drafter:
  """Puts a policy in front of a drafter.

  Args:
    drafter: base.Drafter whose `propose` takes one argument more, the most
      drafts of each row, int32 [B] in 0..G, and keeps to it.
    policy: policies.policy.Policy.

  Returns:
    base.Drafter; its state is a Paced.
  """

  def init(params, tokens, length, features):
    batch = tokens.shape[0]
    return Paced(
      drafter.init(params, tokens, length, features),
      policy.init(batch),
      jnp.ones(batch, bool),
      length,
      jnp.zeros(batch, jnp.int32),
    )

  def propose(params, state, tokens, length, keys, sampling):
    limit = jnp.clip(policy.limit(state.policy), 0, drafter.gamma)
    limit = jnp.where(state.alive, limit, 0)
    proposal, inner = drafter.propose(
      params, state.inner, tokens, length, keys, sampling, limit
    )
    return proposal, state._replace(
      inner=inner, begin=length, drafted=proposal.length
    )

  def commit(params, state, tokens, length, features):
    alive = length > state.begin
    updated = policy.update(
      state.policy, state.drafted, length - state.begin - 1
    )

    def where_alive(new, old):
      return jnp.where(
        jnp.expand_dims(alive, tuple(range(1, new.ndim))), new, old
      )

    return state._replace(
      inner=drafter.commit(params, state.inner, tokens, length, features),
      policy=jax.tree.map(where_alive, updated, state.policy),
      alive=alive,
    )

  return drafter._replace(init=init, propose=propose, commit=commit)
