"""Simulated rounds, beside the exact law of what they count."""

import jax
import numpy as np
import pytest

from specdec import exact, simulation
from specdec.drafters import model
from specdec.verify import block, controls, coupled, token


def p_value(rule, draw, law_of=None):
  """100,000 rounds of two drafts over three tokens."""
  draws = np.random.default_rng(2)
  p, q = exact.tree(draws, 3, 3), exact.tree(draws, 3, 2)
  counts = simulation.count_rounds(rule, draw, p, q, 100_000)
  with jax.enable_x64(True):
    law = exact.path_laws(law_of or rule, exact.paths(p, q))
  weight = exact.joint(q).reshape(-1, 1, 1)
  return simulation.p_value(counts, weight * law)


@pytest.mark.parametrize(
  'rule, draw',
  (
    (token.RULE, model.draw_own),
    (block.RULE, model.draw_own),
    (coupled.RULE, coupled.draw),
  ),
)
def test_rounds_follow_the_law_of_the_rule(rule, draw):
  assert p_value(rule, draw) > 0.01


@pytest.mark.parametrize(
  'rule, draw, law_of',
  (
    # The right law, drawn with the noise of the drafts.
    (controls.REUSE_NOISE, model.draw_own, None),
    # Drafts that share the noise of a rule which does not.
    (coupled.RULE, model.draw_own, None),
    (token.RULE, model.draw_own, block.RULE),
  ),
)
def test_rounds_that_do_not_follow_the_law_are_found(rule, draw, law_of):
  assert p_value(rule, draw, law_of) < 1e-6


def test_p_value_of_a_count_where_the_law_has_no_mass_is_0():
  assert simulation.p_value([10, 1], [1.0, 0.0]) == 0
  assert simulation.p_value([10, 0], [1.0, 0.0]) == 1


def test_p_value_is_uniform_under_the_law():
  # 400 samples of 1,000 draws from eight tokens, by quarters.
  draws = np.random.default_rng(3)
  law = draws.dirichlet(np.ones(8))
  values = [
    simulation.p_value(draws.multinomial(1_000, law), law) for _ in range(400)
  ]
  quarters = np.histogram(values, 4, (0, 1))[0]
  assert simulation.p_value(quarters, np.full(4, 0.25)) > 0.01
