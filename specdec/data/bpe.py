"""A byte-level BPE vocabulary, learnt from documents.

Starting from the 256 bytes, the most frequent pair of neighbours becomes a
piece, again and again (Sennrich et al., https://arxiv.org/abs/1508.07909), so
that no text is outside the vocabulary and decode(encode(text)) = text. Text is
cut into words as SmolLM2 cuts it: each digit is a word of its own.
"""

from tokenizers import AddedToken, pre_tokenizers, trainers

from specdec.base import UsageError
from specdec.models import byte_bpe
from specdec.models.tokenizer import Tokenizer

END = '<|endoftext|>'  # stands between documents
END_TOKEN = 0  # its id
SMALLEST = 257  # every byte, and END


def train(documents, vocab_size):
  """Learns a vocabulary. The same documents give the same one, in any order.

  Args:
    documents: corpus.Documents; prompts are learnt from as well.
    vocab_size: number of ids, END's included. Short documents may hold fewer
      pieces than that: the tokenizer's `size` is what came of it.

  Returns:
    models.tokenizer.Tokenizer, with END as its stop token.

  Raises:
    UsageError: the vocabulary could not hold every byte.
  """
  if vocab_size < SMALLEST:
    raise UsageError(
      f'vocab_size = {vocab_size}: give at least {SMALLEST}, which holds every'
      ' byte and the end of a text'
    )
  backend = byte_bpe.build({}, [], byte_bpe.WORDS['smollm'])
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=[AddedToken(END, normalized=False)],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  texts = (part for d in documents for part in (d.prompt, d.text) if part)
  backend.train_from_iterator(texts, trainer)
  return Tokenizer(
    backend, special_tokens={'eos_token': END}, stop_tokens=[END_TOKEN]
  )
