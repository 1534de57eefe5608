"""An import only ever points down.

Modules of one level may know each other, except where NEVER says no.
"""

import ast
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# The first prefix that fits a module gives its level.
LEVELS = {
  'specdec.base': 0,
  'specdec.rng': 0,
  'specdec.theory': 0,
  'specdec.sampling': 1,
  'specdec.rejection': 1,
  'specdec.cache': 1,
  'specdec.exact': 1,
  'specdec.simulation': 1,
  'specdec.pytree': 1,
  'specdec.verify': 2,
  'specdec.models': 2,
  'specdec.drafters': 3,
  'specdec.decode': 4,
  'specdec.data': 4,
  'specdec.checkpoint': 4.5,
  'specdec.sharding': 4.5,
  'specdec.timing': 4.5,
  'specdec.metrics': 4.5,
  'specdec.plots': 4.5,
  'specdec.train': 5,
  'specdec.experiments': 6,
  'scripts': 7,
  'configs': 7,
}
NEVER = (
  ('specdec.verify', 'specdec.models'),
  ('specdec.models', 'specdec.verify'),
  ('specdec.decode', 'specdec.models'),
  ('specdec.decode', 'specdec.drafters'),
  ('specdec.decode', 'specdec.data'),
  ('specdec.data', 'specdec.decode'),
  ('specdec.plots', 'specdec.decode'),
  ('specdec.plots', 'specdec.models'),
)
# What the lowest level may import.
PLAIN = {'jax', 'numpy', *sys.stdlib_module_names}


def level(module):
  """The level of a module, None for the package itself."""
  for prefix, number in LEVELS.items():
    if module == prefix or module.startswith(prefix + '.'):
      return number
  return None


def modules():
  for folder in ('specdec', 'scripts', 'configs'):
    for path in sorted((ROOT / folder).rglob('*.py')):
      parts = path.relative_to(ROOT).with_suffix('').parts
      yield '.'.join(parts[:-1] if parts[-1] == '__init__' else parts), path


def imports(source):
  """The modules that a source imports, also inside functions."""
  names = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, 'write absolute imports'
      names.update(f'{node.module}.{alias.name}' for alias in node.names)
  return names


def faults(module, source):
  """The imports of a module that point up, or where none may point."""
  wrong = []
  for name in imports(source):
    if name.startswith(('specdec', 'scripts', 'configs')):
      there = level(name)
      up = there is not None and there > level(module)
      barred = any(
        module.startswith(a) and name.startswith(b) for a, b in NEVER
      )
      if up or barred or there is None:
        wrong.append(name)
    elif level(module) == 0 and name.split('.')[0] not in PLAIN:
      wrong.append(name)
  return wrong


@pytest.mark.parametrize('module, path', list(modules()))
def test_imports_point_down(module, path):
  if module == 'specdec':
    return
  assert level(module) is not None, 'this module has no level'
  assert not faults(module, path.read_text())


@pytest.mark.parametrize(
  'module, line',
  (
    ('specdec.sampling', 'from specdec.verify import token'),
    ('specdec.decode.prefill', 'from specdec.models import markov'),
    ('specdec.decode.prefill', 'def f():\n  import specdec.drafters.ngram'),
    ('specdec.verify.token', 'from specdec import models'),
    ('specdec.models.hf', 'from specdec.verify.token import RULE'),
    ('specdec.train.loop', 'from specdec.experiments import generate'),
    ('specdec.rng', 'import flax'),
  ),
)
def test_an_arrow_that_points_up_is_found(module, line):
  assert faults(module, line)
