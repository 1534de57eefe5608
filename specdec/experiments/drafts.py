"""Drafts by name: what a config's list of drafts may hold.

  ngram                   prompt lookup
  unigram:FOLDER          counts of the rollouts in a folder; bigram:FOLDER too
  MODEL                   hf:..., gguf:..., orbax:... or a known name
  MODEL@0,1,10-19,29      some layers of it

LABEL=NAME gives a draft the name that tables and figures show.
"""

import re
from typing import NamedTuple

from specdec.base import UsageError
from specdec.experiments import checks, drafting, setup

_LABEL = re.compile(r'([\w .+-]+)=(.+)')
_LAYERS = re.compile(r'(.+)@([\d,-]+)')


class Draft(NamedTuple):
  """Fields of setup.DecodeConfig, and how the draft is called."""

  label: str
  drafter: str
  draft: str
  layers: tuple[int, ...]

  def decode(self, **fields):
    """The DecodeConfig of this draft."""
    return setup.DecodeConfig(
      drafter=self.drafter,
      draft=self.draft,
      draft_layers=self.layers,
      **fields,
    )


def parse(text) -> Draft:
  """Reads one entry of a list of drafts.

  Raises:
    UsageError: it is none.
  """
  named = _LABEL.fullmatch(text)
  label, name = named.groups() if named else (text, text)
  kind, _, folder = name.partition(':')
  if name == 'ngram':
    return Draft(label, 'ngram', '', ())
  if kind in drafting.TABLES:
    return Draft(label, kind, folder, ())
  cut = _LAYERS.fullmatch(name)
  name, layers = cut.groups() if cut else (name, '')
  try:
    return Draft(label, 'model', name, _layers(layers))
  except ValueError as error:
    raise UsageError(
      f'drafts: {text!r} names no layers; write them as MODEL@0,1,10-19'
    ) from error


def parse_all(texts):
  """Reads a list of drafts.

  Returns:
    A list of Draft.

  Raises:
    UsageError: there is none, one is there twice or cannot be read, or two
      have one label.
  """
  checks.distinct('drafts', texts)
  found = [parse(text) for text in texts]
  if len({draft.label for draft in found}) < len(found):
    raise UsageError(f'drafts = {texts}: give each another label')
  return found


def _layers(text):
  """'0,3-5' as (0, 3, 4, 5)."""
  layers = []
  for part in filter(None, text.split(',')):
    first, _, last = part.partition('-')
    layers += range(int(first), int(last or first) + 1)
  return tuple(layers)
