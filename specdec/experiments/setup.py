"""From a config's words to a decoder: target, drafter, rule.

Everything that can be refused without a model is refused before one is read.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specdec import sampling
from specdec.base import Drafter, Model, UsageError, Weights
from specdec.drafters import model as model_drafter
from specdec.drafters import ngram, stopping
from specdec.experiments import checks
from specdec.models import functional, load, reduced, tokenizer
from specdec.verify import RULES, lossy_rules

DRAFTERS = ('ngram', 'model')
POLICIES = ('fixed', 'confidence', 'entropy')
DTYPES = ('auto', 'float32', 'bfloat16')


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
  """What decodes, and how.

  Attributes:
    target: name of the target model.
    drafter: one of DRAFTERS.
    draft: name of the draft model, for the drafter `model`.
    draft_layers: layers of that model which the draft keeps; () is all.
    max_match: longest suffix that the drafter `ngram` looks up, in tokens.
    min_match: shortest one.
    gamma: most drafts of a round, 0 is autoregressive.
    policy: when a draft of the drafter `model` stops early.
    threshold: of the policy `confidence`.
    scale: of the policy `entropy`.
    bound: of the policy `entropy`.
    rule: name of the verification rule.
    lossy: strengths of the lossy rules, see verify.lossy_rules.
    temperature: 0 is greedy.
    top_k: tokens kept, 0 keeps all.
    top_p: mass kept, 1 keeps all.
    min_p: least relative probability kept, 0 keeps all.
    dtype: of the weights; 'auto' is float32 on CPU, bfloat16 elsewhere.
    batch_size: sequences decoded together.
  """

  target: str
  drafter: str
  draft: str = ''
  draft_layers: tuple[int, ...] = ()
  max_match: int = 5
  min_match: int = 3
  gamma: int = 4
  policy: str = 'fixed'
  threshold: float = 0.3
  scale: float = 0.3
  bound: float = 0.5
  rule: str = 'token'
  lossy: dict = dataclasses.field(default_factory=dict)
  temperature: float = 0.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  dtype: str = 'auto'
  batch_size: int = 1

  def __post_init__(self):
    checks.one_of('drafter', self.drafter, DRAFTERS)
    checks.one_of('stopping.policy', self.policy, POLICIES)
    checks.one_of('rule', self.rule, self.rules)
    checks.one_of('dtype', self.dtype, DTYPES)
    checks.at_least('gamma', self.gamma, 0)
    checks.at_least('batch_size', self.batch_size, 1)
    if self.drafter == 'model' and not self.draft:
      raise UsageError("draft = '': the drafter 'model' needs a model's name")
    if self.drafter == 'ngram':
      ngram.build(self.gamma, self.max_match, self.min_match)
    self.stopping()
    self.sampling(1)

  @property
  def rules(self):
    """Every verification rule, the lossy ones at their strengths."""
    return RULES | lossy_rules(**self.lossy)

  def stopping(self):
    """The policy of early stops."""
    if self.policy == 'confidence':
      return stopping.confidence(self.threshold)
    if self.policy == 'entropy':
      return stopping.entropy(self.scale, self.bound)
    return stopping.fixed()

  @property
  def greedy(self):
    """Does every row take the argmax?"""
    return bool(sampling.is_greedy(self.sampling(1))[0])

  def sampling(self, batch):
    """The SamplingParams of a batch."""
    return sampling.params(
      batch, self.temperature, self.top_k, self.top_p, self.min_p
    )


class Decoding(NamedTuple):
  """Models and drafter, ready for `speculative.build`."""

  target: Model
  draft: Model | None  # None for a drafter without a model
  drafter: Drafter
  weights: Weights
  tokenizer: tokenizer.Tokenizer
  stop_tokens: tuple[int, ...]


def dtype_of(name):
  """The dtype of weights; 'auto' is float32 on CPU, bfloat16 elsewhere."""
  if name == 'auto':
    return 'float32' if jax.default_backend() == 'cpu' else 'bfloat16'
  return name


def compute_dtype(name):
  """The dtype inside of a model in training; None is that of its weights."""
  name = dtype_of(name)
  return None if name == 'float32' else jnp.dtype(name)


def vocabulary_of(checkpoint):
  """The Tokenizer of a model; one without is refused."""
  if checkpoint.tokenizer is None:
    raise UsageError(f'model {checkpoint.name!r}: it brings no tokenizer')
  return checkpoint.tokenizer


def load_decoding(config: DecodeConfig) -> Decoding:
  """Reads the models of a config.

  Raises:
    UsageError: a model cannot be read, or target and draft do not share a
      vocabulary.
  """
  dtype = dtype_of(config.dtype)
  target = load.load(config.target, dtype)
  vocabulary = vocabulary_of(target)
  size = min(vocabulary.size, target.config.vocab_size)
  draft = None
  if config.drafter == 'model':
    draft = target
    if config.draft != config.target:
      draft = load.load(config.draft, dtype)
      check_vocabulary(target, draft)
      size = min(size, draft.config.vocab_size)
    if config.draft_layers:
      params, smaller = reduced.cut_layers(
        draft.params, draft.config, config.draft_layers
      )
      draft = draft._replace(params=params, config=smaller)
  target_model, target_params = model_of(target, size, config.batch_size)
  model = None
  if draft is None:
    drafter = ngram.build(config.gamma, config.max_match, config.min_match)
    weights = Weights(target_params, None)
  else:
    same = draft is target
    model, params = (
      (target_model, target_params)
      if same
      else model_of(draft, size, config.batch_size)
    )
    drafter = model_drafter.build(
      model,
      config.gamma,
      config.stopping(),
      config.rules[config.rule].shares_noise,
    )
    context = min(target_model.max_length, model.max_length)
    target_model = target_model._replace(max_length=context)
    weights = Weights(target_params, params)
  return Decoding(
    target_model, model, drafter, weights, vocabulary, tuple(target.stop_tokens)
  )


def check_lengths(ids, max_new_tokens, context):
  """Refuses a prompt that is empty or too long, before anything is compiled.

  Args:
    ids: prompts, lists of token ids.
    max_new_tokens: budget of each.
    context: the models' longest sequence, in tokens.

  Raises:
    UsageError: it names the prompt.
  """
  for row, prompt in enumerate(ids, 1):
    if not prompt:
      raise UsageError(
        f"prompt {row} has 0 tokens: the target's tokenizer knows nothing in"
        ' it; change or remove it'
      )
    if len(prompt) + max_new_tokens > context:
      raise UsageError(
        f'prompt {row} has {len(prompt)} tokens; with max_new_tokens ='
        f" {max_new_tokens} it exceeds the models' context of {context}"
        ' tokens: shorten the prompt or lower max_new_tokens'
      )


def model_of(checkpoint, vocab_size, batch_size) -> tuple[Model, Any]:
  """A checkpoint as a model and its params, laid out for this machine.

  Args:
    checkpoint: see models.load.
    vocab_size: real ids.
    batch_size: sequences decoded together.
  """
  # A second copy of the weights for few rows pays on CPU alone.
  rows = jax.default_backend() == 'cpu' and batch_size == 1
  params = checkpoint.params
  if rows:
    params = functional.with_row_kernels(params)
  dtype = jax.tree.leaves(params)[0].dtype
  model = functional.build(
    checkpoint.config, dtype, vocab_size, row_kernels=rows
  )
  return model, params


def check_vocabulary(target, draft):
  """Refuses a draft whose ids mean other tokens than the target's."""
  if draft.tokenizer is None:
    raise UsageError(f'draft {draft.name!r}: it brings no tokenizer')
  found = tokenizer.first_difference(target.tokenizer, draft.tokenizer)
  if found is not None:
    raise UsageError(
      f'draft {draft.name!r}: its vocabulary is not the target'
      f" {target.name!r}'s: id {found.id} is {found.second!r}, not"
      f' {found.first!r}; choose a draft of the same tokenizer'
    )
