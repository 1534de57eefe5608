"""Bad input: one line that says what to mend, and nothing written."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

from specdec.base import UsageError
from specdec.experiments import generate

ROOT = pathlib.Path(__file__).parent.parent


def config(name='generate', **fields):
  """configs/NAME.py with some fields changed, dots as `__`."""
  path = ROOT / 'configs' / f'{name}.py'
  spec = importlib.util.spec_from_file_location(f'{name}_config', path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  result = module.get_config()
  result.update_from_flattened_dict(
    {name.replace('__', '.'): value for name, value in fields.items()}
  )
  return result


def refusal(workdir, **fields):
  """The one line that generate refuses a config with."""
  workdir = workdir / 'run'
  with pytest.raises(UsageError) as error:
    generate.run(config(**fields), workdir)
  assert not workdir.exists()
  line = str(error.value)
  assert '\n' not in line
  return line


CONFIG = f'--config={ROOT / "configs" / "generate.py"}'


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ([CONFIG, '--config.gama=4'], ['--config.gama=4', 'gamma']),
    ([CONFIG, '--config.gamma.x=4'], ['gamma.x', 'no such field']),
    ([CONFIG, '--config.gamma=four'], ['--config.gamma=four', 'int']),
    (['--config=nowhere.py'], ["'nowhere.py'", 'configs/NAME.py']),
    ([], ['--config configs/NAME.py']),
    ([CONFIG, 'gamma=4'], ["'gamma=4'", '--config.field=value']),
    ([CONFIG, '--config.experiment=setup'], ["'setup'", 'experiments']),
    # The last one asks JAX for its devices first.
    ([CONFIG, '--config.prompts=no.jsonl'], ["prompts = 'no.jsonl'", 'give']),
  ],
)
def test_bad_input_ends_with_a_traceback_or_a_stray_line(
  tmp_path, arguments, words
):
  command = [sys.executable, str(ROOT / 'scripts' / 'run.py'), *arguments]
  done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert done.returncode == 2
  assert done.stdout == ''
  lines = done.stderr.splitlines()
  assert len(lines) == 1, done.stderr
  assert lines[0].startswith('error: ')
  assert all(word in lines[0] for word in words), lines[0]
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('fields', 'words'),
  [
    ({'gamma': -1}, ['gamma = -1', 'at least 0']),
    ({'rule': 'tokens'}, ["rule = 'tokens'", 'one of', 'token']),
    ({'drafter': 'eagle'}, ["drafter = 'eagle'", 'ngram, model']),
    ({'drafter': 'model'}, ["draft = ''", "'model' needs"]),
    ({'dtype': 'int8'}, ["dtype = 'int8'", 'one of']),
    ({'batch_size': 0}, ['batch_size = 0', 'at least 1']),
    ({'max_new_tokens': 0}, ['max_new_tokens = 0', 'at least 1']),
    ({'max_prompts': -1}, ['max_prompts = -1', 'at least 0']),
    ({'sampling__top_p': 1.5}, ['top_p = 1.5', 'in']),
    ({'sampling__top_p': 0.0}, ['top_p = 0.0', 'in']),
    ({'sampling__top_p': float('nan')}, ['top_p = nan', 'in']),
    ({'sampling__min_p': 1.0}, ['min_p = 1.0', 'in']),
    ({'sampling__temperature': -0.5}, ['temperature = -0.5']),
    ({'ngram__min_match': 9}, ['min_match = 9', 'max_match = 5']),
    ({'ngram__min_match': 0}, ['min_match = 0']),
    ({'target': 'smollm3'}, ["'smollm3'", 'give hf:', 'smollm2-135m']),
    ({'prompts': 'no.jsonl'}, ["prompts = 'no.jsonl'", 'JSON Lines']),
  ],
)
def test_a_bad_field_gets_past_the_start(tmp_path, fields, words):
  line = refusal(tmp_path, **fields)
  assert all(word in line for word in words), line


def test_a_broken_prompt_is_not_named_by_its_line(tmp_path):
  path = tmp_path / 'prompts.jsonl'
  good = json.dumps({'prompt': 'Hello'})
  path.write_text(f'{good}\n\n{{"prompt": \n{good}\n')
  assert f'{path}, line 3: ' in refusal(tmp_path, prompts=str(path))


def test_the_config_file_that_people_edit_has_a_field_that_is_not_read():
  fields = generate.Config.of(config(gamma=3, sampling__top_p=0.5))
  assert fields.decode.gamma == 3
  assert fields.decode.top_p == 0.5
