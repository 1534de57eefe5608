"""From a config's words to a decoder: target, drafter, rule.

Everything that can be refused without a model is refused before one is read.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from specdec import sampling
from specdec.base import Drafter, Model, UsageError, Weights
from specdec.drafters import ngram
from specdec.drafters.policies import cost_aware
from specdec.experiments import checks, drafting
from specdec.models import functional, load, reduced, tokenizer
from specdec.models.weights import Checkpoint
from specdec.train import rollouts
from specdec.verify import RULES, lossy_rules

DTYPES = ('auto', 'float32', 'bfloat16')


@dataclasses.dataclass(frozen=True)
class DecodeConfig:
  """What decodes, and how.

  Attributes:
    target: name of the target model.
    drafter: one of drafting.DRAFTERS.
    draft: name of the draft model, for the drafter `model`; the folder of
      rollouts that are counted, for `unigram` and `bigram`.
    draft_layers: layers of that model which the draft keeps; () is all.
    max_match: longest suffix that the drafter `ngram` looks up, in tokens.
    min_match: shortest one.
    gamma: most drafts of a round, 0 is autoregressive.
    policy: how many drafts a round has, see drafters/policies; `cost_aware`
      measures this machine when the models are read.
    threshold: of the policy `confidence`.
    scale: of the policy `entropy`.
    bound: of the policy `entropy`.
    explore: of the policy `cost_aware`.
    forgiven: of the policy `cost_aware`.
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
  explore: float = cost_aware.EXPLORE
  forgiven: float = cost_aware.FORGIVEN
  rule: str = 'token'
  lossy: dict = dataclasses.field(default_factory=dict)
  temperature: float = 0.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  dtype: str = 'auto'
  batch_size: int = 1

  def __post_init__(self):
    checks.one_of('drafter', self.drafter, drafting.DRAFTERS)
    checks.one_of('stopping.policy', self.policy, drafting.POLICIES)
    checks.one_of('rule', self.rule, self.rules)
    checks.one_of('dtype', self.dtype, DTYPES)
    checks.at_least('gamma', self.gamma, 0)
    checks.at_least('batch_size', self.batch_size, 1)
    if self.drafter == 'model' and not self.draft:
      raise UsageError("draft = '': the drafter 'model' needs a model's name")
    if self.drafter != 'model' and self.draft_layers:
      raise UsageError(
        f'draft_layers = {self.draft_layers}: the drafter {self.drafter!r} has'
        " no layers; give drafter = 'model'"
      )
    if self.drafter in drafting.TABLES and not self.draft:
      raise UsageError(
        f"draft = '': the drafter {self.drafter!r} counts rollouts; give a"
        ' folder that configs/rollouts.py filled'
      )
    if self.drafter == 'ngram':
      ngram.build(self.gamma, self.max_match, self.min_match)
    drafting.check_policy(self)
    self.sampling(1)

  @property
  def rules(self):
    """Every verification rule, the lossy ones at their strengths."""
    return RULES | lossy_rules(**self.lossy)

  @property
  def greedy(self):
    """Does every row take the argmax?"""
    return bool(sampling.is_greedy(self.sampling(1))[0])

  def sampling(self, batch):
    """The SamplingParams of a batch."""
    return sampling.params(
      batch, self.temperature, self.top_k, self.top_p, self.min_p
    )


class Target(NamedTuple):
  """A target, read once and shared by several drafts."""

  checkpoint: Checkpoint
  model: Model
  params: Any  # laid out for this machine


class Decoding(NamedTuple):
  """Models and drafter, ready for `speculative.build`."""

  target: Model
  draft: Model | None  # None for a drafter without a model
  drafter: Drafter
  weights: Weights
  tokenizer: tokenizer.Tokenizer
  stop_tokens: tuple[int, ...]

  @property
  def num_params(self):
    """How many weights there are; 0 of a drafter without any."""
    return Weights(*map(functional.num_params, self.weights))


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


def load_target(config: DecodeConfig) -> Target:
  """Reads the target of a config.

  Raises:
    UsageError: it cannot be read, or brings no tokenizer.
  """
  checkpoint = load.load(config.target, dtype_of(config.dtype))
  size = min(vocabulary_of(checkpoint).size, checkpoint.config.vocab_size)
  return Target(checkpoint, *model_of(checkpoint, size))


def load_decoding(config: DecodeConfig, target: Target | None = None):
  """Reads the models of a config.

  Args:
    config: DecodeConfig.
    target: what `load_target` made of a config with the same target and dtype;
      None reads it.

  Returns:
    Decoding.

  Raises:
    UsageError: a model cannot be read, or target and draft do not share a
      vocabulary.
  """
  checkpoint, model, params = target or load_target(config)
  draft = draft_params = None
  if config.drafter in drafting.TABLES:
    rows = rollouts.read(config.draft)
    replies = [row.tokens[row.mask] for row in rows]
    draft_params = drafting.TABLES[config.drafter](replies, model.vocab_size)
  elif config.drafter == 'model':
    draft, draft_params = model, params
    if config.draft != config.target or config.draft_layers:
      found = _read_draft(config, checkpoint)
      size = min(model.vocab_size, found.config.vocab_size)
      draft, draft_params = model_of(found, size)
      if size < model.vocab_size:
        model, params = model_of(checkpoint, size)
    context = min(model.max_length, draft.max_length)
    model = model._replace(max_length=context)
  weights = Weights(params, draft_params)
  policy = drafting.policy_of(config, model, draft, weights)
  return Decoding(
    model,
    draft,
    drafting.drafter_of(config, draft, model.vocab_size, policy),
    weights,
    checkpoint.tokenizer,
    tuple(checkpoint.stop_tokens),
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


def model_of(checkpoint, vocab_size) -> tuple[Model, Any]:
  """A checkpoint as a model and its params, laid out for this machine.

  Args:
    checkpoint: see models.load.
    vocab_size: real ids.
  """
  params, config = checkpoint.params, checkpoint.config
  dtype = jax.tree.leaves(params)[0].dtype
  is_reduced = isinstance(params, reduced.Reduced)
  on_cpu = jax.default_backend() == 'cpu'
  if on_cpu and is_reduced:
    weights = functional.unstack(reduced.untied(config), params.weights)
    params = params._replace(weights=weights)
  elif on_cpu:
    params = functional.unstack(config, params)
  kind = reduced if is_reduced else functional
  model = kind.build(config, dtype, vocab_size, unstacked=on_cpu)
  return model, params


def _read_draft(config, target):
  """The checkpoint of a draft that is a model of its own."""
  draft = target
  if config.draft != config.target:
    draft = load.load(config.draft, dtype_of(config.dtype))
    check_vocabulary(target, draft)
  if not config.draft_layers:
    return draft
  params = draft.params
  whole = params.weights if isinstance(params, reduced.Reduced) else params
  whole, smaller = reduced.cut_layers(whole, draft.config, config.draft_layers)
  if isinstance(params, reduced.Reduced):
    whole = params._replace(weights=whole)
  return draft._replace(params=whole, config=smaller)


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
