"""Runs one experiment: flags -> config -> experiment; nothing else.

  python scripts/run.py --config configs/NAME.py [--config.field=value ...]

Results go to --workdir, runs/NAME when it is absent. Bad input ends with one
line that says what to do, and exit code 2.
"""

import importlib
import logging
import pathlib
import pkgutil
import sys

from absl import app, flags
from ml_collections import config_flags

from specdec import experiments
from specdec.base import UsageError

CONFIG = config_flags.DEFINE_config_file('config', None, 'The experiment.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Where results go.')


def parse(argv):
  """Parses the flags; what they get wrong is one line."""
  try:
    rest = flags.FLAGS(argv)
    if CONFIG.value is None:
      raise UsageError('no experiment: give --config configs/NAME.py')
    # A file that did not load says so when it is read, not before.
    if not CONFIG.value.get('experiment'):
      raise UsageError('the config names no experiment: set its `experiment`')
    if rest[1:]:
      raise UsageError(
        f'{rest[1]!r} is no flag: give --config.field=value for a field'
      )
    return rest
  except (AttributeError, KeyError) as error:
    reason = error.args[0]
    if isinstance(reason, KeyError):
      reason = reason.args[0]
    name, _, hint = str(reason).partition('\n')
    given = (arg for arg in argv if name.strip("'") in arg)
    fail(
      f'{next(given, name)}: the config has no such field.'
      f' {hint or "Its file lists them all."}'
    )
  except OSError:
    name = config_flags.get_config_filename(flags.FLAGS['config'])
    fail(f'config = {name!r}: it cannot be read; give configs/NAME.py')
  except (flags.Error, UsageError) as error:
    fail(error)


def main(_):
  """Runs the experiment that the config names."""
  config = CONFIG.value
  try:
    run = experiment(config.experiment)
    run(config, pathlib.Path(WORKDIR.value or f'runs/{config.experiment}'))
  except UsageError as error:
    fail(error)
  except KeyboardInterrupt:
    fail('interrupted')


def experiment(name):
  """The function `run` of a module of specdec.experiments."""
  names = [module.name for module in pkgutil.iter_modules(experiments.__path__)]
  if name in names:
    module = importlib.import_module(f'specdec.experiments.{name}')
    if hasattr(module, 'run'):
      return module.run
  raise UsageError(
    f'experiment = {name!r}: give a module of specdec/experiments that has a'
    ' function run'
  )


def fail(message):
  """One line on stderr; exit code 2."""
  print('error:', ' '.join(str(message).split()), file=sys.stderr)
  sys.exit(2)


if __name__ == '__main__':
  # absl lets INFO through, at which jax names each accelerator that is absent.
  logging.getLogger('jax').setLevel(logging.WARNING)
  app.run(main, flags_parser=parse)
