r"""Byte-level byte-pair encoding, from a plain vocabulary and its merges.

Text is cut into words by regular expressions, words into bytes, and bytes are
merged in the order in which the merges were learnt (Sennrich et al.,
https://arxiv.org/abs/1508.07909; bytes: Radford et al., GPT-2, 2019). GGUF
files name the expressions; this is what the names mean.
"""

from typing import NamedTuple

from tokenizers import (
  AddedToken,
  Regex,
  Tokenizer,
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
)

from specdec.base import UsageError

_GPT2 = (
  r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
_LLAMA3 = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_QWEN2 = _LLAMA3.replace(r'\p{N}{1,3}', r'\p{N}')


class Words(NamedTuple):
  """How text is cut into words before the merges apply."""

  splits: tuple[str, ...]  # regular expressions, one after the other
  compose: bool = False  # is the text brought to Unicode's form NFC first?
  whole_words: bool = False  # is a word of the vocabulary kept unmerged?
  bos: bool = False  # does a document begin with a token, if not said?


WORDS = {
  'default': Words(
    (r'[\p{P}\$\+<=>\^~\|]+', _GPT2, r'\p{N}+', r'[0-9][0-9][0-9]')
  ),
  'gpt-2': Words((_GPT2,)),
  'smollm': Words((r'\p{N}', _GPT2)),
  'llama-bpe': Words((_LLAMA3,), whole_words=True, bos=True),
  'llama3': Words((_LLAMA3,), whole_words=True, bos=True),
  'qwen2': Words((_QWEN2,), compose=True),
  'deepseek-r1-qwen': Words((_QWEN2,), compose=True),
}


def build(pieces, merges, words, special=(), plain=(), bos=None):
  """A tokenizer.

  Args:
    pieces: {piece: id}, every one of the vocabulary.
    merges: pairs of pieces, the first learnt first.
    words: Words.
    special: pieces that are found whole in a text, and mark its structure.
    plain: pieces that are found whole, and are text.
    bos: the piece that begins a document, None for none.

  Returns:
    tokenizers.Tokenizer.

  Raises:
    UsageError: a merge names a piece that is not in the vocabulary.
  """
  try:
    model = models.BPE(pieces, merges, ignore_merges=words.whole_words)
  except Exception as error:  # the library raises bare Exceptions
    raise UsageError(
      f'tokenizer merges: {error}; give a file whose merges fit its vocabulary'
    ) from error
  tokenizer = Tokenizer(model)
  if words.compose:
    tokenizer.normalizer = normalizers.NFC()
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [
      *(pre_tokenizers.Split(Regex(s), 'isolated') for s in words.splits),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_special_tokens(
    [AddedToken(piece, normalized=False) for piece in special]
  )
  tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in plain])
  if bos is not None:
    tokenizer.post_processor = processors.TemplateProcessing(
      single=[bos, '$A'], special_tokens=[(bos, pieces[bos])]
    )
  return tokenizer
