"""Hugging Face checkpoints: parity with transformers, and refusals."""

import dataclasses
import json
import pathlib

import huggingface_hub
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tiny_models
from safetensors.numpy import save_file

from specdec.base import UsageError
from specdec.models import functional, hf
from specdec.models.config import Rope

REFERENCES = np.load(pathlib.Path(__file__).parent / 'references' / 'tiny.npz')
TOLERANCE = 2e-4  # max |a - b| / max |b|; measured: 1.4e-6
PLAIN = 'Llama-untied-kv2-none'
NORM = 'model.norm.weight'
QUERY = 'model.layers.1.self_attn.q_proj.weight'


def logits(checkpoint):
  model = functional.build(checkpoint.config)
  tokens = jnp.array([tiny_models.TOKENS])
  # Compiling 50 models would take a minute; single operations are shared.
  with jax.disable_jit():
    cache = model.init_cache(1, tokens.shape[1])
    return model.apply(checkpoint.params, tokens, cache).logits[0]


def error(found, expected):
  return np.max(np.abs(found - expected)) / np.max(np.abs(expected))


def saved(folder, change=None, **fields):
  """The plain model with some tensors changed (None removes), fields set."""
  config = {**tiny_models.CASES[PLAIN], **fields}
  arrays = {**tiny_models.tensors(tiny_models.CASES[PLAIN]), **(change or {})}
  arrays = {k: v for k, v in arrays.items() if v is not None}
  return tiny_models.write_checkpoint(folder, config, arrays)


def refusal(folder):
  with pytest.raises(UsageError) as caught:
    hf.load(folder)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def equal_trees(a, b):
  return jax.tree.all(jax.tree.map(lambda x, y: bool((x == y).all()), a, b))


@pytest.mark.parametrize('name', tiny_models.CASES)
def test_logits_equal_transformers(name, tmp_path):
  checkpoint = hf.load(tiny_models.write(tmp_path, name))
  assert error(logits(checkpoint), REFERENCES[name]) < TOLERANCE


@pytest.mark.parametrize('rope', ['linear', 'llama3', 'yarn'])
def test_a_rope_scaling_that_is_lost_is_noticed(rope, tmp_path):
  # The negative control of the test above.
  name = next(name for name in tiny_models.CASES if name.endswith(rope))
  checkpoint = hf.load(tiny_models.write(tmp_path, name))
  lost = Rope(checkpoint.config.rope.theta)
  checkpoint = checkpoint._replace(
    config=dataclasses.replace(checkpoint.config, rope=lost)
  )
  assert error(logits(checkpoint), REFERENCES[name]) > 10 * TOLERANCE


def test_shards_hold_what_one_file_holds(tmp_path):
  config = tiny_models.CASES[PLAIN]
  arrays = tiny_models.tensors(config)
  one = tiny_models.write_checkpoint(tmp_path / 'one', config, arrays)
  three = tiny_models.write_checkpoint(
    tmp_path / 'three', config, arrays, shards=3
  )
  assert equal_trees(hf.load(one).params, hf.load(three).params)


@pytest.mark.parametrize('dtype', [ml_dtypes.bfloat16, np.float16])
def test_half_precision_files_load_exactly(dtype, tmp_path):
  config = tiny_models.CASES[PLAIN]
  arrays = tiny_models.tensors(config)
  half = tiny_models.write_checkpoint(tmp_path / 'half', config, arrays, dtype)
  rounded = {k: v.astype(dtype).astype(np.float32) for k, v in arrays.items()}
  full = tiny_models.write_checkpoint(tmp_path / 'full', config, rounded)
  params = hf.load(half).params
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
  assert equal_trees(params, hf.load(full).params)


def test_params_come_in_the_dtype_asked_for(tmp_path):
  folder = tiny_models.write(tmp_path, PLAIN)
  params = hf.load(folder, 'bfloat16').params
  assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(params))


def test_a_copy_of_the_embedding_as_head_stays_tied(tmp_path):
  embedding = tiny_models.tensors(tiny_models.CASES[PLAIN])[
    'model.embed_tokens.weight'
  ]
  folder = saved(
    tmp_path, {'lm_head.weight': embedding}, tie_word_embeddings=True
  )
  checkpoint = hf.load(folder)
  assert checkpoint.config.tie_embeddings
  assert 'head' not in checkpoint.params


def test_an_untied_model_without_head_is_refused(tmp_path):
  message = refusal(saved(tmp_path, {'lm_head.weight': None}))
  assert 'missing tensors: lm_head.weight' in message


def test_missing_unexpected_and_misshapen_tensors_are_named_at_once(tmp_path):
  folder = saved(
    tmp_path,
    {
      NORM: None,
      'model.norm.wieght': np.ones(tiny_models.WIDTH, np.float32),
      'model.layers.2.mlp.up_proj.weight': np.ones((40, 32), np.float32),
      QUERY: np.ones((32, 48), np.float32),
    },
  )
  message = refusal(folder)
  assert f'missing tensors: {NORM};' in message
  assert 'model.norm.wieght' in message
  assert 'model.layers.2.mlp.up_proj.weight' in message
  assert f'{QUERY} [32, 48] instead of [48, 32]' in message


def test_frequencies_of_old_checkpoints_are_no_unexpected_tensors(tmp_path):
  name = 'model.layers.0.self_attn.rotary_emb.inv_freq'
  hf.load(saved(tmp_path, {name: np.ones(6, np.float32)}))


def test_integer_weights_are_refused(tmp_path):
  folder = saved(tmp_path)
  save_file({NORM: np.ones(32, np.int8)}, folder / 'model.safetensors')
  message = refusal(folder)
  assert f'tensor {NORM} is I8' in message


def test_a_truncated_file_is_one_line(tmp_path):
  folder = saved(tmp_path)
  weights = folder / 'model.safetensors'
  weights.write_bytes(weights.read_bytes()[:-100])
  assert 'not a whole safetensors file' in refusal(folder)


def test_a_missing_shard_is_named(tmp_path):
  config = tiny_models.CASES[PLAIN]
  folder = tiny_models.write_checkpoint(
    tmp_path, config, tiny_models.tensors(config), shards=2
  )
  (folder / 'model-00002-of-00002.safetensors').unlink()
  assert 'missing files: model-00002-of-00002.safetensors' in refusal(folder)


def test_a_folder_without_weights_or_config_is_one_line(tmp_path):
  assert 'config.json: no such file' in refusal(tmp_path)
  (tmp_path / 'config.json').write_text(json.dumps(tiny_models.CASES[PLAIN]))
  assert 'missing files: model.safetensors' in refusal(tmp_path)
  (tmp_path / 'config.json').write_text('{"archi')
  assert 'not valid JSON' in refusal(tmp_path)


@pytest.mark.parametrize(
  'fields, line',
  [
    ({'architectures': ['GPT2LMHeadModel']}, "['GPT2LMHeadModel']; it must be"),
    ({'architectures': None}, 'architectures = None; it must be one of Llama'),
    ({'hidden_act': 'gelu'}, "hidden_act = 'gelu'; only silu"),
    ({'mlp_bias': True}, 'mlp_bias = True; only False'),
    ({'quantization_config': {'bits': 4}}, 'quantization_config = '),
    ({'hidden_size': '32'}, "hidden_size = '32'; it must be of type int"),
    ({'num_key_value_heads': 3}, 'num_kv_heads = 3: it must divide'),
    ({'partial_rotary_factor': 0.5}, 'partial_rotary_factor = 0.5; only 1'),
    ({'rope_scaling': {'type': 'dynamic', 'factor': 2.0}}, "'dynamic'; it"),
    (
      {'rope_scaling': {'type': 'linear'}},
      'config.json lacks factor; it must be of type float',
    ),
    (
      {'rope_parameters': {'full_attention': {'rope_theta': 1.0}}},
      'one flat set',
    ),
    (
      {
        'architectures': ['Qwen2ForCausalLM'],
        'use_sliding_window': True,
        'sliding_window': 8,
        'max_window_layers': 1,
      },
      "layer_types = ['full_attention', 'sliding_attention']; every layer",
    ),
  ],
)
def test_what_is_not_computed_is_refused_by_name(fields, line, tmp_path):
  assert line in refusal(saved(tmp_path, **fields))


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch):
  def fail(*_, **__):
    raise OSError('no\nroute')

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', fail)
  message = refusal('someone/some-model')
  assert 'the hub did not give it (no route)' in message


def test_a_repo_id_is_downloaded_without_other_formats(monkeypatch, tmp_path):
  folder = tiny_models.write(tmp_path, PLAIN)
  asked = {}

  def download(repo_id, allow_patterns):
    asked[repo_id] = allow_patterns
    return str(folder)

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  hf.load('someone/some-model')
  assert not any(
    pathlib.PurePath('consolidated.safetensors').match(pattern)
    or pathlib.PurePath('pytorch_model.bin').match(pattern)
    for pattern in asked['someone/some-model']
  )


def test_stop_tokens_join_both_configs(tmp_path):
  folder = saved(tmp_path, eos_token_id=2)
  (folder / 'generation_config.json').write_text('{"eos_token_id": [7, 2]}')
  checkpoint = hf.load(folder)
  assert checkpoint.tokenizer is None
  assert checkpoint.stop_tokens == (2, 7)
