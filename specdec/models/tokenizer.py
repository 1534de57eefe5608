"""Text to token ids and back, with the checkpoint's chat template.

A thin face over the `tokenizers` library, so that the rest of the package
knows of no vocabulary format.
"""

from typing import NamedTuple

import tokenizers
from tokenizers.decoders import DecodeStream

from specdec.base import UsageError
from specdec.models.chat import ChatTemplate


class Difference(NamedTuple):
  """The first id at which two vocabularies disagree."""

  id: int
  first: str
  second: str


class Tokenizer:
  """A vocabulary, its chat template, and the tokens that end a reply.

  Attributes:
    size: number of real ids; later rows of an embedding are padding.
    pieces: the vocabulary's spelling of each id, '' for an id without one.
    stop_tokens: ids that end a reply, ascending.
    template: Jinja text of the chat template, None without one.
    special_tokens: {'bos_token': text, 'eos_token': text, ...}.
  """

  def __init__(
    self, backend, template=None, special_tokens=None, stop_tokens=()
  ):
    """Wraps a tokenizer.

    Args:
      backend: tokenizers.Tokenizer.
      template: Jinja text of the chat template, if there is one.
      special_tokens: {'bos_token': text, 'eos_token': text, ...}.
      stop_tokens: ids that the checkpoint declares; the token with which the
        template ends an assistant's turn is added.
    """
    self._backend = backend
    backend.no_padding()
    backend.no_truncation()
    vocab = backend.get_vocab(with_added_tokens=True)
    self.size = max(vocab.values()) + 1
    self.pieces = [''] * self.size
    for piece, token in vocab.items():
      self.pieces[token] = piece
    self.template = template
    self.special_tokens = dict(special_tokens or {})
    self._template = template and ChatTemplate(template, self.special_tokens)
    self.stop_tokens = tuple(sorted({*stop_tokens, *self._end_of_turn()}))

  @property
  def has_chat(self):
    """Is there a chat template?"""
    return self._template is not None

  def encode(self, text, begins=True):
    """Token ids of a text.

    Special tokens that are spelled out in the text become their ids.

    Args:
      text: a string.
      begins: does the text begin a document? If so, and if the vocabulary has
        special tokens for it, they come first.
    """
    return self._backend.encode(text, add_special_tokens=begins).ids

  def save(self, path):
    """Writes a tokenizer.json, which `from_file` reads."""
    self._backend.save(str(path))

  def decode(self, ids):
    """The text of token ids, special tokens spelled out."""
    return self._backend.decode(list(ids), skip_special_tokens=False)

  def decode_pieces(self, ids):
    """The text of each token; joined, they are `decode(ids)`.

    A token may end inside a character: its text is then empty, and the token
    that completes the character brings it whole.

    Args:
      ids: T token ids.

    Returns:
      T strings.
    """
    ids = list(ids)
    stream = DecodeStream(skip_special_tokens=False)
    pieces = [stream.step(self._backend, token) or '' for token in ids]
    if ids:  # a character that the last token left unfinished
      pieces[-1] += self.decode(ids)[sum(map(len, pieces)) :]
    return pieces

  def chat(self, messages, add_generation_prompt=True):
    """Token ids of a conversation.

    Args:
      messages: [{'role': 'user', 'content': text}, ...].
      add_generation_prompt: does an assistant's turn begin at the end?

    Raises:
      UsageError: there is no template, or it refuses the messages.
    """
    if self._template is None:
      raise UsageError(
        'messages: this checkpoint has no chat template; give plain prompts'
      )
    text = self._template.render(messages, add_generation_prompt)
    # The template spells out the tokens that begin a document.
    return self._backend.encode(text, add_special_tokens=False).ids

  def _end_of_turn(self):
    """The special token right after a reply, as a list of at most one."""
    if self._template is None:
      return []
    after = self._template.after_reply().strip()
    ids = self._backend.encode(after, add_special_tokens=False).ids
    added = self._backend.get_added_tokens_decoder()
    return [token for token in ids[:1] if token in added]


def from_file(path, template=None, special_tokens=None, stop_tokens=()):
  """Reads a tokenizer.json; the other arguments are Tokenizer's.

  Raises:
    UsageError: the file is no tokenizer.json.
  """
  try:
    backend = tokenizers.Tokenizer.from_file(str(path))
  except Exception as error:  # the library raises bare Exceptions
    raise UsageError(
      f'{path}: {error}; give a tokenizer.json as Hugging Face writes it'
    ) from error
  return Tokenizer(backend, template, special_tokens, stop_tokens)


def first_difference(first, second):
  """Where two tokenizers disagree about what an id means.

  Ids beyond the smaller vocabulary are no difference: they pad it.

  Returns:
    Difference, or None when one tokenizer's ids serve the other.
  """
  pairs = zip(first.pieces, second.pieces, strict=False)
  for token, (a, b) in enumerate(pairs):
    if a != b:
      return Difference(token, a, b)
  return None
