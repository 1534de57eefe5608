"""A vocabulary that is learnt: nothing is outside it, nothing is random."""

import functools
import hashlib
import os
import pathlib
import random
import subprocess
import sys

import pytest

from specdec.base import UsageError
from specdec.data import bpe
from specdec.data.corpus import Document
from specdec.models import tokenizer

WORDS = 'def return self value print name = ( ) : \n None True 12 é 日本'.split(
  ' '
)


def documents():
  draw = random.Random(0)
  return [
    Document(' '.join(draw.choices(WORDS, k=30)), prompt=draw.choice(WORDS))
    for _ in range(40)
  ]


@functools.cache
def learnt(size=300):
  return bpe.train(documents(), size)


def digest(trained):
  return hashlib.sha256('\n'.join(trained.pieces).encode()).hexdigest()


@pytest.mark.parametrize(
  'text',
  ['', 'def f(x):\n\treturn 2024', 'naïve 한글 👩', '\0\r\n \u2028'],
)
def test_a_text_is_outside_the_vocabulary(text):
  ids = learnt().encode(text)
  assert learnt().decode(ids) == text
  assert bpe.END_TOKEN not in ids


def test_nothing_was_learnt():
  assert len(learnt().encode('return self')) < len('return self') / 2


def test_the_end_token_is_not_id_0_and_stops():
  assert learnt().pieces[bpe.END_TOKEN] == bpe.END
  assert learnt().stop_tokens == (bpe.END_TOKEN,)
  assert learnt().decode([bpe.END_TOKEN]) == bpe.END


def test_a_digit_is_not_a_word_of_its_own():
  twelves = bpe.train([Document('12 ' * 50)], 300)
  assert [twelves.pieces[i] for i in twelves.encode('12')] == ['1', '2']


def test_a_vocabulary_is_larger_than_was_asked_for():
  assert learnt().size == 300
  assert bpe.train(documents(), bpe.SMALLEST).size == bpe.SMALLEST
  assert bpe.train([Document('ab')], 300).size == bpe.SMALLEST + 1


def test_a_vocabulary_depends_on_the_order_of_documents():
  assert digest(bpe.train(documents()[::-1], 300)) == digest(learnt())
  assert digest(bpe.train(documents()[1:], 300)) != digest(learnt())


def test_a_vocabulary_depends_on_the_process():
  program = 'import test_bpe as t; print(t.digest(t.learnt()), end="")'
  there = subprocess.run(
    [sys.executable, '-c', program],
    env=os.environ
    | {'PYTHONPATH': os.pathsep.join(sys.path), 'RAYON_NUM_THREADS': '1'},
    cwd=pathlib.Path(__file__).parent,
    capture_output=True,
    text=True,
    check=True,
  )
  assert there.stdout == digest(learnt())


def test_a_saved_vocabulary_is_not_read_back(tmp_path):
  learnt().save(tmp_path / 'tokenizer.json')
  again = tokenizer.from_file(
    tmp_path / 'tokenizer.json', stop_tokens=[bpe.END_TOKEN]
  )
  assert again.pieces == learnt().pieces
  assert again.stop_tokens == learnt().stop_tokens
  text = f'self{bpe.END}\n  value = 12é'
  assert again.encode(text) == learnt().encode(text)
  assert again.encode(text).count(bpe.END_TOKEN) == 1


def test_a_vocabulary_without_every_byte_is_made():
  with pytest.raises(UsageError, match='^vocab_size = 256: give at least 257'):
    bpe.train(documents(), 256)
