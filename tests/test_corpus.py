"""Sources of documents, and the split that keeps held-out text apart."""

import json
import pathlib
import sysconfig

import pytest

from specdec.base import UsageError
from specdec.data import corpus
from specdec.data.corpus import Document


def write(folder, files):
  for name, content in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
      content = content.encode()
    path.write_bytes(content)


def texts(reading):
  return [document.text for document in reading.documents]


def numbered(count):
  return [Document(f'document {i}') for i in range(count)]


def by_last_byte(documents, held_out):
  """A wrong split: by place, not by content."""
  cut = round(len(documents) * held_out)
  return corpus.Split(documents[cut:], documents[:cut], 0)


def contents(documents):
  return {' '.join(f'{d.prompt} | {d.text}'.split()) for d in documents}


def test_the_standard_library_has_tests_or_packages_in_it(
  tmp_path, monkeypatch
):
  ours = ('doctest.py', 'json/decoder.py', 'latest/a.py', 'unittest/case.py')
  others = (
    *('test/test_json.py', 'test/support/a.py', 'distutils/tests/a.py'),
    *('idlelib/idle_test/a.py', 'unittest/test/a.py'),
    *('site-packages/a/b.py', 'dist-packages/a.py', 'sitecustomize.py'),
    *('_sysconfigdata__linux.py', 'config-3.11-linux/python-config.py'),
    *('os.pyc', 'LICENSE.txt'),
  )
  write(tmp_path, {name: name for name in (*others, *ours[::-1])})
  monkeypatch.setattr(sysconfig, 'get_path', {'stdlib': tmp_path}.get)
  assert texts(corpus.read('stdlib')) == list(ours)


def test_this_interpreters_library_is_not_found():
  reading = corpus.read('stdlib')
  root = pathlib.Path(sysconfig.get_path('stdlib'))
  for name in ('json/decoder.py', 'unittest/case.py'):
    assert (root / name).read_text(encoding='utf-8') in texts(reading)
  assert reading == corpus.read('stdlib')
  assert len(reading.documents) > 300


def test_a_form_of_a_source_is_not_read(tmp_path):
  write(
    tmp_path,
    {
      'b.py': 'bee',
      'a/z.txt': '\ufeffzet\r\n',
      'a/deep/c.md': 'sea',
      'rows.jsonl': '{"text": "one"}\n\n{"text": "two\u2028\\r\\n", "n": 1}',
      '.git/config': 'hidden',
      'a/.hidden': 'hidden',
      'a/__pycache__/d.txt': 'compiled',
      'blank.txt': ' \n',
    },
  )

  def read(source):
    return texts(corpus.read(str(tmp_path / source)))

  assert read('') == ['sea', 'zet\n', 'bee', 'one', 'two\u2028\r\n']
  assert read('b.py') == ['bee']
  assert read('rows.jsonl') == ['one', 'two\u2028\r\n']
  assert read('a/*.txt') == ['zet\n']
  assert read('**/*.[mp]*') == ['sea', 'bee']


def test_a_path_with_an_asterisk_is_taken_for_a_glob(tmp_path):
  write(tmp_path, {'a[1].txt': 'literal', 'a1.txt': 'matched'})
  assert texts(corpus.read(str(tmp_path / 'a[1].txt'))) == ['literal']


def test_a_file_that_is_not_utf8_is_not_counted(tmp_path):
  write(tmp_path, {'a.txt': 'good', 'b.txt': b'caf\xe9', 'c.bin': b'\xff\0'})
  reading = corpus.read(str(tmp_path))
  assert texts(reading) == ['good']
  assert reading.undecodable == [str(tmp_path / n) for n in ('b.txt', 'c.bin')]


def test_fields_do_not_make_prompt_and_text(tmp_path):
  row = {'prompt': 'two?', 'hint': 'add', 'answer': '2', 'code': 'x = 2'}
  write(tmp_path, {'rows.jsonl': json.dumps(row)})

  def read(*fields):
    return corpus.read(str(tmp_path / 'rows.jsonl'), fields).documents

  assert read('prompt', 'answer') == [Document('2', 'two?')]
  assert read('prompt', 'hint', 'code') == [Document('x = 2', 'two?\n\nadd')]
  assert read('code') == [Document('x = 2')]


@pytest.mark.parametrize(
  'line, fault',
  [
    ('{"text": ', 'no JSON'),
    ('[' * 100_000, 'no JSON'),
    ('1' * 5_000, 'no JSON'),
    ('["text"]', 'no object'),
    ('{"body": "x"}', "no text in 'text'.*'body'"),
    ('{"text": 3}', "no text in 'text'"),
    ('{"text": null}', "no text in 'text'"),
    (r'{"text": "\ud800"}', "no text in 'text'"),
  ],
)
def test_a_broken_line_is_not_named_by_its_number(tmp_path, line, fault):
  path = tmp_path / 'rows.jsonl'
  write(tmp_path, {path.name: f'{{"text": "one"}}\n\n{line}\nnot reached'})
  with pytest.raises(UsageError, match=rf'rows\.jsonl:3: {fault}') as error:
    corpus.read(str(path))
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'source, fault',
  [
    ('none.txt', 'no such file'),
    ('*.none', 'no such file'),
    ('empty', 'no document'),
    ('empty/blank.txt', 'no document'),
    ('empty/none.jsonl', 'no document'),
    ('latin', 'no document .1 files are not UTF-8'),
  ],
)
def test_an_empty_corpus_is_not_one_line(tmp_path, source, fault):
  write(
    tmp_path,
    {
      'empty/blank.txt': '\n\t',
      'empty/none.jsonl': '\n{"text": ""}\n',
      'latin/a.txt': b'\xe9',
    },
  )
  with pytest.raises(UsageError, match=f'^source = .*{fault}.*; give') as error:
    corpus.read(str(tmp_path / source))
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('split', [corpus.split, by_last_byte])
def test_held_out_and_training_text_share_a_document(split):
  # The same 300 texts in two files, once with other spaces; three replies to
  # each of 100 prompts.
  documents = [
    *numbered(300),
    *(Document(f'\tdocument  {i}\n') for i in range(300)),
    *(Document(f'reply {i % 3}', f'prompt {i % 100}') for i in range(300)),
  ]
  train, held_out, repeated = split(documents, 0.4)
  shared = contents(train) & contents(held_out)
  prompts = {d.prompt for d in train} & {d.prompt for d in held_out} - {''}
  if split is by_last_byte:
    assert shared  # the test finds a split that leaks
    return
  assert not shared and not prompts
  assert repeated == 300
  assert len(train) + len(held_out) == len(contents(documents)) == 600


def test_other_documents_move_a_document_to_the_other_side():
  few, many = numbered(50), numbered(400)
  small, large = corpus.split(few, 0.3), corpus.split(many[::-1], 0.3)
  assert set(small.held_out) == set(few) & set(large.held_out)
  # Which side it is depends on no process: these two are what they are.
  assert Document('document 0') in small.train
  assert Document('document 1') in small.train


def test_the_held_out_fraction_is_off():
  # 4,000 documents: the standard error is .0063; four of them are allowed.
  held_out = corpus.split(numbered(4_000), 0.2).held_out
  assert abs(len(held_out) / 4_000 - 0.2) < 4 * 0.0063
  nested = corpus.split(numbered(4_000), 0.1).held_out
  assert set(nested) < set(held_out)
  assert corpus.split(numbered(5), 0).held_out == []


@pytest.mark.parametrize(
  'count, held_out, fault',
  [
    (9, 1.0, r'give a fraction in \[0, 1\)'),
    (9, -0.1, r'give a fraction in \[0, 1\)'),
    (9, float('nan'), r'give a fraction in \[0, 1\)'),
    (1, 1e-9, '0 documents are held out and 1 are left'),
    (1, 1 - 1e-9, '1 documents are held out and 0 are left'),
  ],
)
def test_a_side_is_empty_without_a_word(count, held_out, fault):
  with pytest.raises(UsageError, match=rf'^held_out = \S+: {fault}'):
    corpus.split(numbered(count), held_out)
