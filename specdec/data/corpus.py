"""Documents from files, and the split into training and held-out ones.

A source is one string: `stdlib` (the running interpreter's standard library),
a file, a folder, a glob, or JSON Lines. The side of a document is a function
of its content alone:
  blake2(content) / 2^64 < held_out.
So the same content falls on the same side in whatever file it is found, and
new files never move an old document.
"""

import glob
import hashlib
import json
import pathlib
import re
import sysconfig
from typing import NamedTuple

from specdec.base import UsageError

STDLIB = 'stdlib'
_SITE = {'site-packages', 'dist-packages'}
_TESTS = re.compile(r'(\w+_)?tests?')
# Modules that tell of one machine or of its packager.
_LOCAL = re.compile(r'_sysconfigdata.*|(site|user)customize\.py')
_SURROGATE = re.compile('[\ud800-\udfff]')  # JSON spells it, UTF-8 cannot


class Document(NamedTuple):
  """A text to learn from."""

  text: str  # what is learnt
  prompt: str = ''  # what is given before it, '' for plain text


class Reading(NamedTuple):
  """What a source holds."""

  documents: list[Document]
  undecodable: list[str]  # paths of files that are not UTF-8, skipped


class Split(NamedTuple):
  """Documents on two sides. No content is on both, none is there twice."""

  train: list[Document]
  held_out: list[Document]
  repeated: int  # documents dropped, because their content was seen before


def read(source, fields=('text',)):
  """Reads documents, in the order of their paths.

  A `.jsonl` file holds one document a line, any other file is one document.
  What is blank is no document. Names that begin with a dot are passed over in
  a folder. `stdlib` leaves test folders and installed packages out.

  Args:
    source: 'stdlib', or the path of a file or a folder, or a glob.
    fields: the fields of a JSON Lines object that make a document. The last
      is the text; those before it, if any, make the prompt.

  Returns:
    Reading.

  Raises:
    UsageError: nothing is there, a line is broken, or there is no document.
  """
  documents, undecodable = [], []
  for path in _paths(source):
    try:
      text = path.read_text(encoding='utf-8-sig')
    except UnicodeDecodeError:
      undecodable.append(str(path))
      continue
    except OSError as error:
      raise UsageError(
        f'source = {source!r}: {error}; give readable files'
      ) from error
    if path.suffix == '.jsonl':
      documents.extend(_parse_lines(path, text, fields))
    else:
      documents.append(Document(text))
  documents = [document for document in documents if document.text.strip()]
  if not documents:
    raise UsageError(
      f'source = {source!r}: it holds no document ({len(undecodable)} files'
      ' are not UTF-8); give text files or JSON Lines'
    )
  return Reading(documents, undecodable)


def split(documents, held_out=0.05):
  """Drops repeated documents and holds some out.

  Contents that differ in white space alone are the same. A document with a
  prompt falls where its prompt falls: no prompt is on both sides either.

  Args:
    documents: Documents.
    held_out: expected fraction to hold out, in [0, 1); 0 holds none out.

  Returns:
    Split.

  Raises:
    UsageError: the fraction is out of range, or a side would be empty.
  """
  if not 0 <= held_out < 1:
    raise UsageError(f'held_out = {held_out}: give a fraction in [0, 1)')
  seen, train, held = set(), [], []
  repeated = 0
  for document in documents:
    content = (_digest(document.prompt), _digest(document.text))
    if content in seen:
      repeated += 1
      continue
    seen.add(content)
    is_held = is_held_out(document.prompt or document.text, held_out)
    (held if is_held else train).append(document)
  if not train or (held_out and not held):
    raise UsageError(
      f'held_out = {held_out}: {len(held)} documents are held out and'
      f' {len(train)} are left; give more documents, or another fraction'
    )
  return Split(train, held, repeated)


def is_held_out(text, held_out):
  """The side of a content: a function of its words alone, see above."""
  return _digest(text) / 2**64 < held_out


def _paths(source):
  """The files of a source, in an order that no machine changes."""
  if source == STDLIB:
    root = pathlib.Path(sysconfig.get_path('stdlib'))
    paths = [p for p in root.rglob('*.py') if _is_library(p.relative_to(root))]
    return sorted(paths, key=pathlib.Path.as_posix)
  path = pathlib.Path(source).expanduser()
  if path.is_dir():
    paths = [p for p in path.rglob('*') if _is_visible(p.relative_to(path))]
  elif path.exists():
    return [path]
  else:
    found = glob.glob(str(path), recursive=True)
    if not found:
      raise UsageError(
        f'source = {source!r}: no such file; give {STDLIB!r}, a file, a folder'
        ' or a glob'
      )
    paths = map(pathlib.Path, found)
  return sorted((p for p in paths if p.is_file()), key=pathlib.Path.as_posix)


def _is_library(path):
  """Is this relative path the standard library's own, and no test?"""
  folders = path.parts[:-1]
  return not (
    _SITE.intersection(folders)
    or any(_TESTS.fullmatch(f) or f.startswith('config-') for f in folders)
    or _LOCAL.fullmatch(path.name)
  )


def _is_visible(path):
  return '__pycache__' not in path.parts and not any(
    part.startswith('.') for part in path.parts
  )


def _parse_lines(path, text, fields):
  # A text may hold what `splitlines` takes for the end of a line.
  for number, line in enumerate(text.split('\n'), 1):
    if line.strip():
      yield _parse(f'{path}:{number}', line, fields)


def _parse(where, line, fields):
  try:
    row = json.loads(line)
  except (ValueError, RecursionError) as error:
    raise UsageError(f'{where}: no JSON ({error}); mend the line') from error
  if not isinstance(row, dict):
    raise UsageError(f'{where}: no object; give one with {_names(fields)}')
  for field in fields:
    if not _is_text(row.get(field)):
      raise UsageError(
        f'{where}: no text in {field!r}; give {_names(fields)}, or set `fields`'
        f' to some of {_names(row)}'
      )
  *prompt, text = (row[field] for field in fields)
  return Document(text, '\n\n'.join(prompt))


def _is_text(value):
  return isinstance(value, str) and not _SURROGATE.search(value)


def _names(fields):
  return ', '.join(map(repr, fields))


def _digest(text):
  """A number below 2^64 that depends on the words of a text."""
  words = ' '.join(text.split()).encode()
  return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest())
