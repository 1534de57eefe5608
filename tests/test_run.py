"""What a user sees of scripts/run.py when something is wrong, or is not."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PUBLISHED = '--config=configs/published.py'


def run(*arguments):
  return subprocess.run(
    [sys.executable, 'scripts/run.py', *arguments],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize(
  'arguments, named',
  (
    ((PUBLISHED, '--config.panel=4'), 'panel'),
    ((PUBLISHED, '--config.panels=many'), 'panels'),
    (('--config=configs/absent.py',), 'configs/absent.py'),
    ((), '--config configs/NAME.py'),
    ((PUBLISHED, 'panels=4'), 'panels=4'),
    (('--colour=red', PUBLISHED), 'colour'),
  ),
)
def test_a_wrong_flag_is_one_line_that_names_it(arguments, named):
  result = run(*arguments)
  assert result.returncode == 2
  (line,) = result.stderr.splitlines()
  assert line.startswith('error: ')
  assert named in line
  assert not result.stdout


def test_a_good_run_is_silent_about_absent_accelerators(tmp_path):
  result = run(
    PUBLISHED, '--config.grid_points=2001', f'--workdir={tmp_path / "run"}'
  )
  assert result.returncode == 0, result.stderr
  assert 'Unable to initialize backend' not in result.stderr
  assert (tmp_path / 'run' / 'summary.json').exists()
