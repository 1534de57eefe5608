"""What every test runs under."""

import jax
import pytest

# A silent broadcast of [V] against [B, V] hides a wrong axis.
jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture
def float64():
  """Double precision inside one test."""
  with jax.enable_x64(True):
    yield
