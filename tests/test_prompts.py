"""Prompt files: the forms they may have, and what breaks them."""

import json

import pytest

from specdec.base import UsageError
from specdec.data import corpus, prompts


def write(folder, *rows):
  path = folder / 'prompts.jsonl'
  lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
  path.write_text('\n'.join(lines), encoding='utf-8')
  return path


def asked(text):
  return [{'role': 'user', 'content': text}]


def test_a_form_of_a_prompt_is_not_read(tmp_path):
  talk = [*asked('a'), {'role': 'assistant', 'content': 'b'}, *asked('c')]
  path = write(
    tmp_path,
    {'prompt': 'one'},
    '',
    {'turns': ['two', 'later'], 'category': 'math'},
    {'messages': talk, 'kind': 'chat', 'category': 'other'},
    {'prompt': 'naïve ‹日本›', 'question_id': 3},
  )
  assert prompts.load(path) == [
    ('all', asked('one')),
    ('math', asked('two')),
    ('chat', talk),
    ('all', asked('naïve ‹日本›')),
  ]


@pytest.mark.parametrize(
  'line',
  [
    '{"prompt": ',
    'plain text',
    '[1, 2]',
    '"text"',
    'null',
    '{}',
    '{"prompt": ""}',
    '{"prompt": "  "}',
    '{"prompt": "\\ud800 hello"}',
    '{"prompt": 3}',
    '{"prompt": null, "turns": []}',
    '{"turns": "text"}',
    '{"turns": [3]}',
    '{"messages": []}',
    '{"messages": "text"}',
    '{"messages": ["text"]}',
    '{"messages": [{"role": "user"}]}',
    '{"messages": [{"content": "text"}]}',
    '{"messages": [{"role": "user", "content": ""}]}',
  ],
)
def test_a_broken_line_is_not_named_by_its_number(tmp_path, line):
  path = write(tmp_path, {'prompt': 'one'}, '', line, {'prompt': 'two'})
  with pytest.raises(UsageError) as error:
    prompts.load(path)
  assert str(error.value).startswith(f'{path}, line 3: ')


def test_a_separator_inside_a_text_breaks_its_line(tmp_path):
  # JSON allows these raw inside a text; JSON Lines are cut at \n alone.
  text = 'a\u2028b\u0085c\u2029d'
  row = json.dumps({'prompt': text}, ensure_ascii=False)
  path = write(tmp_path, row, {'prompt': 'two'})
  assert [p.messages for p in prompts.load(path)] == [asked(text), asked('two')]


def test_a_byte_order_mark_breaks_the_first_line(tmp_path):
  path = tmp_path / 'prompts.jsonl'
  path.write_text('{"prompt": "one"}\r\n', encoding='utf-8-sig')
  assert prompts.load(path) == [('all', asked('one'))]


@pytest.mark.parametrize('content', [b'', b'\n \n', b'\xff\xfe'])
def test_a_file_without_prompts_is_taken(tmp_path, content):
  path = tmp_path / 'prompts.jsonl'
  path.write_bytes(content)
  for bad in (path, tmp_path, tmp_path / 'absent'):
    with pytest.raises(UsageError) as error:
      prompts.load(bad)
    assert f'prompts = {str(bad)!r}' in str(error.value)


def test_a_limit_keeps_the_head_alone(tmp_path):
  path = write(tmp_path, *({'prompt': str(i)} for i in range(6)))

  def kept(limit):
    loaded = prompts.load(path, limit)
    return [int(prompt.messages[0]['content']) for prompt in loaded]

  assert kept(3) == [0, 2, 4]
  assert kept(1) == [0]
  assert kept(None) == kept(6) == kept(7) == [*range(6)]


def test_a_kind_is_missing_from_the_built_in_set():
  built_in = prompts.load()
  kinds = {prompt.kind for prompt in built_in}
  assert 'all' not in kinds
  assert len(kinds) >= 7
  texts = [prompt.messages[-1]['content'] for prompt in built_in]
  assert len(set(texts)) == len(texts)


def texts(found):
  return [prompt.messages[0]['content'] for prompt in found]


def test_a_prompt_is_on_both_sides_or_on_another_than_its_document(tmp_path):
  words = [f'question {i}' for i in range(200)]
  path = write(tmp_path, *({'prompt': word} for word in words))
  sides = {
    side: texts(prompts.gather([path], side, held_out=0.3))
    for side in prompts.SIDES
  }
  assert sides['all'] == words
  split = corpus.split([corpus.Document('a', word) for word in words], 0.3)
  assert sides['train'] == [d.prompt for d in split.train]
  assert sides['held_out'] == [d.prompt for d in split.held_out]
  # The limit keeps prompts of that side, evenly.
  few = texts(prompts.gather([path], 'held_out', 0.3, limit=3))
  held = sides['held_out']
  assert few == [held[i * len(held) // 3] for i in range(3)]


def test_a_prompt_of_two_files_is_asked_twice(tmp_path):
  (tmp_path / 'a').mkdir()
  paths = [
    write(tmp_path / 'a', {'prompt': 'one'}, {'prompt': 'two'}),
    write(tmp_path, {'prompt': 'two'}, {'turns': ['three']}),
  ]
  assert texts(prompts.gather(paths)) == ['one', 'two', 'three']
  assert texts(prompts.gather(paths, limit=1)) == ['one', 'three']


@pytest.mark.parametrize(
  'arguments, line',
  (
    ((['x.jsonl'], 'left'), "side = 'left': it must be one of all, train"),
    (([''], 'train', 0.0), 'held_out = 0.0: give a fraction in'),
    (([''], 'train', 1.0), 'held_out = 1.0: give a fraction in'),
    (([],), 'prompts = (): give JSON Lines'),
    (([''], 'held_out', 1e-9), "none is left on the side 'held_out'"),
  ),
)
def test_a_side_that_is_none_or_empty_is_taken(arguments, line):
  with pytest.raises(UsageError) as error:
    prompts.gather(*arguments)
  assert line in str(error.value)
