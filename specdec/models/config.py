"""What a decoder-only transformer is made of, as frozen data.

One description covers Llama 2 and 3, SmolLM2, Mistral, Qwen2 and Qwen3.
"""

import dataclasses

from specdec.base import UsageError

ROPE_KINDS = ('none', 'linear', 'llama3', 'yarn', 'divided')


@dataclasses.dataclass(frozen=True)
class Rope:
  """Rotary position embedding, and how it is stretched.

  Attributes:
    theta: base of the geometric series of wavelengths.
    kind: 'none', 'linear' (positions divided by `factor`), 'llama3' (long
      wavelengths divided, short ones kept), 'yarn' (a ramp between the two,
      https://arxiv.org/abs/2309.00071) or 'divided' (by `divisors`).
    factor: by how much the context grows.
    original_length: tokens of the context before it grew.
    low_freq_factor: llama3, bounds of the smooth part in wavelengths.
    high_freq_factor: llama3.
    beta_fast: yarn, rotations at which the ramp starts.
    beta_slow: yarn, rotations at which it ends.
    attention_factor: yarn, scale of queries and keys; None computes it.
    truncate: yarn, round the ends of the ramp to whole dimensions.
    divisors: divided, what each pair's frequency is divided by, one a pair.
  """

  theta: float = 10_000.0
  kind: str = 'none'
  factor: float = 1.0
  original_length: int = 0
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  attention_factor: float | None = None
  truncate: bool = True
  divisors: tuple[float, ...] = ()

  def __post_init__(self):
    if self.kind not in ROPE_KINDS:
      raise UsageError(
        f'rope kind {self.kind!r}: it must be one of {", ".join(ROPE_KINDS)}'
      )


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """Sizes and switches of one transformer.

  Attributes:
    vocab_size: rows of the embedding, padding ids included.
    num_layers: L.
    width: D.
    hidden: inner width of the gated MLP.
    num_heads: H.
    num_kv_heads: K; it divides H.
    head_dim: width of one head; H * head_dim need not be D.
    max_length: tokens of the context.
    rope: rotary embedding.
    norm_eps: epsilon of the RMS norms.
    tie_embeddings: is the head the embedding?
    qkv_bias: biases on queries, keys and values (Qwen2).
    out_bias: a bias on the attention's output.
    qk_norm: RMS norm of each query and key head (Qwen3).
    sliding_window: tokens that a query sees, itself included; None is all.
  """

  vocab_size: int
  num_layers: int
  width: int
  hidden: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  max_length: int
  rope: Rope = Rope()
  norm_eps: float = 1e-5
  tie_embeddings: bool = False
  qkv_bias: bool = False
  out_bias: bool = False
  qk_norm: bool = False
  sliding_window: int | None = None

  def __post_init__(self):
    if self.num_heads % self.num_kv_heads:
      raise UsageError(
        f'num_kv_heads = {self.num_kv_heads}: it must divide'
        f' num_heads = {self.num_heads}'
      )
    if self.head_dim % 2:
      raise UsageError(f'head_dim = {self.head_dim}: it must be even')


TINY = ModelConfig(
  vocab_size=64,
  num_layers=2,
  width=32,
  hidden=64,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  max_length=1024,
)
