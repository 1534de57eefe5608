"""Prompts: the built-in set, and JSON Lines files.

The built-in prompts were written for this project: chat, code, code editing,
summarising a given text, extraction, translation and arithmetic.
"""

import hashlib
import json
import pathlib
from typing import NamedTuple

import numpy as np

from specdec.base import UsageError
from specdec.data import corpus

SIDES = ('all', 'train', 'held_out')
BUILT_IN = pathlib.Path(__file__).with_name('prompts.jsonl')
KIND_FIELDS = ('kind', 'category')


class Prompt(NamedTuple):
  """What a model is asked."""

  kind: str
  messages: list[dict]  # [{'role': 'user', 'content': text}, ...]


def load(path=None, limit=None):
  """Reads prompts.

  Args:
    path: a JSON Lines file, or None for the built-in set. A line holds one
      object with `prompt` (a text), `turns` (texts, of which the first is
      asked) or `messages` (a conversation), and perhaps `kind` or `category`.
    limit: how many to keep, evenly over the file; None keeps all.

  Returns:
    A list of Prompt.

  Raises:
    UsageError: no such file, a broken line (named by number), or no prompt.
  """
  path = pathlib.Path(path or BUILT_IN)
  try:
    # A text may hold what `splitlines` takes for the end of a line.
    lines = path.read_text(encoding='utf-8-sig').split('\n')
  except (OSError, UnicodeDecodeError) as error:
    raise UsageError(
      f'prompts = {str(path)!r}: {error}; give a JSON Lines file'
    ) from error
  prompts = [
    _parse(f'{path}, line {number}', line)
    for number, line in enumerate(lines, 1)
    if line.strip()
  ]
  if not prompts:
    raise UsageError(f'prompts = {str(path)!r}: the file holds no prompt')
  return evenly(prompts, limit)


def gather(paths, side='all', held_out=0.1, limit=None):
  """Reads one side of several files.

  A prompt falls where `corpus.split` puts a document with that prompt. The
  same prompt in two files, or twice in one, is kept once.

  Args:
    paths: of `load`, '' for the built-in set.
    side: 'all', 'train' or 'held_out'.
    held_out: expected fraction that is held out, in (0, 1).
    limit: how many to keep of each file, evenly over that side of it; None
      keeps all.

  Returns:
    A list of Prompt.

  Raises:
    UsageError: see `load`; or a file has no prompt on that side.
  """
  if side not in SIDES:
    raise UsageError(f'side = {side!r}: it must be one of {", ".join(SIDES)}')
  if not 0 < held_out < 1:
    raise UsageError(f'held_out = {held_out}: give a fraction in (0, 1)')
  if not paths:
    raise UsageError("prompts = (): give JSON Lines files, '' for the built-in")
  chosen, seen = [], set()
  for path in paths:
    here = []
    for prompt in load(path):
      text = '\n\n'.join(m['content'] for m in prompt.messages)
      held = corpus.is_held_out(text, held_out)
      wanted = side == 'all' or held == (side == 'held_out')
      if wanted and text not in seen:
        seen.add(text)
        here.append(prompt)
    if not here:
      raise UsageError(
        f'prompts = {str(path)!r}: none is left on the side {side!r} of'
        f' held_out = {held_out}; give more prompts, or another fraction'
      )
    chosen += evenly(here, limit)
  return chosen


def encode(tokenizer, prompt):
  """Token ids of a prompt, through the chat template where there is one."""
  if tokenizer.has_chat:
    return tokenizer.chat(prompt.messages)
  return tokenizer.encode('\n\n'.join(m['content'] for m in prompt.messages))


def digest(ids):
  """What tells one list of prompts from another.

  Args:
    ids: lists of token ids.
  """
  found = hashlib.blake2b(digest_size=16)
  for prompt in ids:
    found.update(np.array([len(prompt), *prompt], '<i4'))
  return found.hexdigest()


def evenly(items, limit):
  """At most `limit` items of a list, evenly over it; None keeps all."""
  if limit is None or limit >= len(items):
    return items
  return [items[i * len(items) // limit] for i in range(limit)]


def _parse(where, line):
  try:
    row = json.loads(line)
  except json.JSONDecodeError as error:
    raise UsageError(f'{where}: no JSON ({error}); mend the line') from error
  if not isinstance(row, dict):
    raise UsageError(f'{where}: give an object with a field `prompt`')
  kind = next((str(row[f]) for f in KIND_FIELDS if f in row), 'all')
  if 'messages' in row:
    messages = row['messages']
  else:
    text = row.get('prompt')
    if text is None and isinstance(row.get('turns'), list) and row['turns']:
      text = row['turns'][0]
    messages = [{'role': 'user', 'content': text}]
  if not _is_conversation(messages):
    raise UsageError(
      f'{where}: give `prompt` (a text), `turns` (texts) or `messages`'
      ' (objects with the texts `role` and `content`), not empty'
    )
  try:
    ''.join(message['content'] for message in messages).encode()
  except UnicodeEncodeError as error:
    raise UsageError(
      f'{where}: no text ({error}); mend the line, half a surrogate pair is no'
      ' character'
    ) from error
  return Prompt(kind, messages)


def _is_conversation(messages):
  return (
    isinstance(messages, list)
    and bool(messages)
    and all(
      isinstance(message, dict)
      and isinstance(message.get('role'), str)
      and isinstance(message.get('content'), str)
      and message['content'].strip()
      for message in messages
    )
  )
