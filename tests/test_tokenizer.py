"""Tokenizers: SmolLM2's against its real parts, and small built ones."""

import json
import pathlib
import random

import numpy as np
import pytest
import tokenizers
from tokenizers import pre_tokenizers

from specdec.base import UsageError
from specdec.models import byte_bpe, tokenizer
from specdec.models.tokenizer import Tokenizer

SMOLLM2 = np.load(pathlib.Path(__file__).parent / 'references' / 'smollm2.npz')
QUESTION = [{'role': 'user', 'content': 'What is the capital of France?'}]
FRAGMENTS = [
  *('a', 'The', ' fox', 'naïve', 'e\u0301', 'ß', 'ﬁ', '日本', '한글', 'ไทย'),
  *('1', '23', '3.14', '½', '²', '٣', 'Ⅷ', '1,000', 'x1', 'v2.0'),
  *(' ', '  ', '\n', '\n\n', '\t', '\r\n', '\u00a0', '\u200b', '\u2028', '\0'),
  *("'s", "'LL", "n't", '!', '?!', '...', '_', '$5', '#', '\ufffd'),
  *('😀', '👩‍👩‍👧', '<|im_end|>', '<|endoftext|>', '<file_sep>', '<|im'),
  *('def f(x):\n    return x + 1', 'https://a.b/c?d=1', '{"k": [1, 2]}'),
]


def texts(count=600):
  draw = random.Random(0)
  return [
    ''.join(draw.choices(FRAGMENTS, k=draw.randint(0, 12)))
    for _ in range(count)
  ]


def built(extra=(), words='gpt-2', bos=None, **arguments):
  """A tokenizer of every byte, one merge and a few special tokens."""
  alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
  special = ['<s>', '</s>', '<end>']
  pieces = {p: i for i, p in enumerate([*special, *alphabet, 'ab', *extra])}
  backend = byte_bpe.build(
    pieces, [('a', 'b')], byte_bpe.WORDS[words], special, bos=bos
  )
  return Tokenizer(backend, **arguments)


def test_smollm2_equals_its_published_pre_tokenizer(smollm2):
  # SmolLM2's tokenizer.json cuts text with these two; a GGUF file only says
  # 'smollm'.
  published = tokenizers.Tokenizer.from_str(smollm2.tokenizer._backend.to_str())
  published.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  for text in texts():
    ids = smollm2.tokenizer.encode(text)
    assert ids == published.encode(text).ids
    assert smollm2.tokenizer.decode(ids) == text


def test_smollm2_equals_transformers(smollm2):
  text = str(SMOLLM2['text'])
  assert smollm2.tokenizer.encode(text) == SMOLLM2['text_ids'].tolist()
  question = [{'role': 'user', 'content': str(SMOLLM2['question'])}]
  assert smollm2.tokenizer.chat(question) == SMOLLM2['chat_ids'].tolist()


def test_numbers_are_cut_as_each_family_cuts_them():
  def cut(words):
    pieces = [' ', '123', '12', '23', *'123']
    vocab = {('Ġ' if p == ' ' else p): i for i, p in enumerate(pieces)}
    merges = [('1', '2'), ('2', '3'), ('12', '3')]
    return built_from(vocab, merges, words).encode('1231')

  def built_from(vocab, merges, words):
    return Tokenizer(byte_bpe.build(vocab, merges, byte_bpe.WORDS[words]))

  one, two, three = 4, 5, 6
  assert cut('smollm') == [one, two, three, one]
  assert cut('qwen2') == [one, two, three, one]
  assert cut('gpt-2') == [1, one]
  assert cut('llama-bpe') == [1, one]


def test_decoded_pieces_join_to_the_whole_text(smollm2):
  draw = random.Random(1)
  for _ in range(300):
    count = draw.randint(0, 30)
    # Ids below 300 are single bytes, often inside no valid character.
    ids = draw.choices(range(300), k=count) + draw.choices(
      range(smollm2.tokenizer.size), k=count
    )
    draw.shuffle(ids)
    pieces = smollm2.tokenizer.decode_pieces(ids)
    assert len(pieces) == len(ids)
    assert ''.join(pieces) == smollm2.tokenizer.decode(ids)


def test_a_character_comes_whole_with_the_token_that_completes_it():
  small = built()
  ids = small.encode('a€b')
  assert small.decode_pieces(ids) == ['a', '', '', '€', 'b']
  assert small.decode_pieces(ids[:3]) == ['a', '', '\ufffd']


def test_bos_begins_a_text_and_is_not_doubled_in_a_chat():
  small = built(
    bos='<s>',
    template='{{ bos_token }}{{ messages[0].content }}',
    special_tokens={'bos_token': '<s>'},
  )
  assert small.encode('ab') == [0, small.pieces.index('ab')]
  message = [{'role': 'user', 'content': 'ab'}]
  assert small.chat(message) == [0, small.pieces.index('ab')]


def test_the_token_after_a_reply_is_a_stop_token():
  template = (
    '{% for m in messages %}{{ m.role }}:{{ m.content }}\n<end>\n{% endfor %}'
  )
  assert built(template=template, stop_tokens=[1]).stop_tokens == (1, 2)
  assert built(stop_tokens=[1]).stop_tokens == (1,)


def test_a_template_may_use_what_hugging_face_offers():
  template = (
    '{%- for m in messages %}\n'
    '  {%- if m.role == "tool" %}{% continue %}{% endif %}\n'
    '  {%- if m.role == "bad" %}{{ raise_exception("bad role") }}{% endif %}\n'
    '  {{- m | tojson }}\n'
    '{%- endfor %}\n'
    '{%- if add_generation_prompt %}{{ strftime_now("%Y")[:2] }}{% endif %}'
  )
  small = built(template=template)
  messages = [
    {'role': 'tool', 'content': 'x'},
    {'role': 'user', 'content': "<é'>"},
  ]
  text = small.decode(small.chat(messages))
  assert text == '{"role": "user", "content": "<é\'>"}20'
  assert (
    json.loads(small.decode(small.chat(messages, add_generation_prompt=False)))
    == messages[1]
  )
  with pytest.raises(UsageError, match=r"roles \['bad'\].*bad role"):
    small.chat([{'role': 'bad', 'content': ''}])


def test_a_template_cannot_reach_out_of_its_sandbox():
  small = built(template='{{ messages.__class__.__mro__ }}')
  with pytest.raises(UsageError, match='the chat template refuses'):
    small.chat(QUESTION)


def test_a_chat_without_a_template_is_one_line():
  with pytest.raises(UsageError, match='this checkpoint has no chat template'):
    built().chat(QUESTION)


def test_a_broken_template_or_file_is_one_line(tmp_path):
  with pytest.raises(UsageError, match='chat_template: '):
    built(template='{% if %}')
  path = tmp_path / 'tokenizer.json'
  path.write_text('{"version": "1.0"}')
  with pytest.raises(UsageError, match=r'tokenizer.json: .*; give a tokenizer'):
    tokenizer.from_file(path)


def test_a_saved_tokenizer_is_read_back(tmp_path):
  path = tmp_path / 'tokenizer.json'
  small = built(bos='<s>')
  small._backend.save(str(path))
  again = tokenizer.from_file(path, stop_tokens=[1])
  assert again.encode('ab€') == small.encode('ab€')
  assert again.stop_tokens == (1,)


def test_the_first_differing_id_is_named_and_padding_is_none():
  plain = built()
  assert tokenizer.first_difference(plain, built(extra=['pad', 'more'])) is None
  other = built(extra=['cd'])
  third = built(extra=['ef'])
  difference = tokenizer.first_difference(other, third)
  assert difference == (plain.size, 'cd', 'ef')
  assert plain.pieces[difference.id :] == []
