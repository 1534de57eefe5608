"""Imports point down: which part of the package may know of which."""

import ast
import pathlib
import sys

import pytest

import specdec

ROOT = pathlib.Path(specdec.__file__).parent

# A part is a module, or a subpackage, right under specdec. It may import
# itself and the parts of the rows above its own; two parts of a row do not
# know of each other.
LAYERS = (
  ('base', 'rng', 'theory'),
  ('sampling', 'rejection', 'cache'),
  ('verify', 'models'),
  ('drafters',),
  ('decode', 'data'),
  ('metrics', 'timing', 'checkpoint', 'sharding', 'plots'),
  ('train',),
  ('experiments',),
)
LEVEL = {part: level for level, row in enumerate(LAYERS) for part in row}
# The loops are handed a model and a drafter; plots read files.
FORBIDDEN = {
  'decode': {'models', 'drafters'},
  'plots': set(LEVEL) - {'plots'},
}
LIBRARIES = {'jax', 'numpy'}  # all that the lowest layer may know of


def modules():
  """{dotted name: path} of every module of the package."""
  found = {}
  for path in sorted(ROOT.rglob('*.py')):
    parts = ('specdec', *path.relative_to(ROOT).with_suffix('').parts)
    found['.'.join(parts).removesuffix('.__init__')] = path
  return found


def imported(source, name, is_package=False):
  """Dotted names that a module's text imports, wherever in it they stand."""
  package = name.split('.') if is_package else name.split('.')[:-1]
  names = set()
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      base = package[: len(package) - node.level + 1] if node.level else []
      base = '.'.join([*base, *([node.module] if node.module else [])])
      names |= {f'{base}.{alias.name}' for alias in node.names}
  return names


def arrows(source, name, is_package=False):
  """(part, part) of each import of specdec in a module's text."""
  own = name.split('.')[1]
  names = (n.split('.') for n in imported(source, name, is_package))
  return {(own, n[1] if len(n) > 1 else '') for n in names if n[0] == 'specdec'}


def points_up(arrow):
  """Is this import one that the layers do not allow?"""
  own, other = arrow
  if own not in LEVEL or other not in LEVEL:
    return True
  if other in FORBIDDEN.get(own, ()):
    return True
  return own != other and LEVEL[other] >= LEVEL[own]


@pytest.mark.parametrize('name', modules())
def test_an_import_points_up(name):
  path = modules()[name]
  if name == 'specdec':
    assert not imported(path.read_text(), name, True)
    return
  assert name.split('.')[1] in LEVEL, 'this part stands in no layer'
  found = arrows(path.read_text(), name, path.name == '__init__.py')
  assert not [arrow for arrow in found if points_up(arrow)]


def test_the_lowest_layer_knows_of_a_library_beside_jax_and_numpy():
  for part in LAYERS[0]:
    names = imported(modules()[f'specdec.{part}'].read_text(), part)
    libraries = {name.split('.')[0] for name in names}
    assert libraries <= {*LIBRARIES, *sys.stdlib_module_names}, part


@pytest.mark.parametrize(
  ('name', 'source'),
  [
    ('specdec.base', 'from specdec import sampling'),
    ('specdec.rng', 'from specdec.base import Model'),
    ('specdec.verify.token', 'from specdec.models import markov'),
    ('specdec.models.hf', 'import specdec.verify.token'),
    ('specdec.models.load', 'from ..drafters import ngram'),
    ('specdec.decode.commit', 'from specdec.models.markov import build'),
    ('specdec.decode.commit', 'def late():\n  from specdec import drafters'),
    ('specdec.decode.stats', 'from specdec import metrics'),
    ('specdec.data.prompts', 'from specdec.decode import stats'),
    ('specdec.plots.article', 'from specdec import theory'),
    ('specdec.train.loop', 'from specdec.experiments import setup'),
    ('specdec.decode.stats', 'from specdec import *'),
    ('specdec.decode.stats', 'import specdec'),
  ],
)
def test_an_import_that_points_up_is_caught(name, source):
  assert any(map(points_up, arrows(source, name)))


@pytest.mark.parametrize(
  ('name', 'source'),
  [
    ('specdec.decode.stats', 'from specdec.base import FINISH_REASONS'),
    ('specdec.decode.decoder', 'from . import prefill\nimport jax'),
    ('specdec.drafters.model', 'from specdec import cache as cache_lib'),
    ('specdec.train.loop', 'from specdec import checkpoint, metrics, models'),
    ('specdec.experiments.timed', 'from ..decode import stats'),
  ],
)
def test_an_import_that_points_down_is_left_alone(name, source):
  assert not any(map(points_up, arrows(source, name)))
