"""From a config's words to drafts of every kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_acceptance
from numpy.testing import assert_allclose, assert_array_equal

from specdec.base import UsageError, Weights
from specdec.decode import autoregressive
from specdec.drafters import table
from specdec.experiments import drafting, setup
from specdec.models import markov, reduced, store
from specdec.train import rollouts

IDS = np.arange(3, 257, 3)


@pytest.fixture(scope='module')
def names(tmp_path_factory):
  """A stored target, a draft with a reduced head, and rollouts."""
  folder = tmp_path_factory.mktemp('models')
  whole = test_acceptance.checkpoint()
  small = reduced.cut_head(whole.params, whole.config, IDS)
  store.save(whole, folder / 'target')
  store.save(whole._replace(params=small), folder / 'reduced')
  # Any model of the vocabulary may have written them.
  rollouts.collect(
    folder / 'rollouts',
    rollouts.RolloutConfig('chain', 1.0, max_new_tokens=9, seed=0),
    autoregressive.build(markov.build(257)),
    Weights(jax.random.normal(jax.random.key(0), (257, 257)), None),
    [[5, 6, 7], [8]],
    batch_size=2,
  )
  return {
    'target': f'orbax:{folder / "target"}',
    'reduced': f'orbax:{folder / "reduced"}',
    'rollouts': str(folder / 'rollouts'),
  }


def load(names, drafter, draft, target=None, **fields):
  config = setup.DecodeConfig(names['target'], drafter, draft, **fields)
  return setup.load_decoding(config, target)


def logits(model, params, tokens):
  return model.apply(params, tokens, model.init_cache(*tokens.shape)).logits


@pytest.mark.parametrize('batch_size, layers', ((1, ()), (2, (1,))))
def test_a_reduced_draft_says_what_it_cannot(names, batch_size, layers):
  decoding = load(
    names,
    'model',
    names['reduced'],
    batch_size=batch_size,
    draft_layers=layers,
  )
  # With the target's weights it says what the target says of its ids.
  same = load(
    names,
    'model',
    names['target'],
    batch_size=batch_size,
    draft_layers=layers,
  )
  tokens = jnp.array([[4, 8, 1]] * batch_size)
  found = logits(decoding.draft, decoding.weights.draft, tokens)
  want = logits(same.draft, same.weights.draft, tokens)
  assert found.shape == want.shape == (batch_size, 3, 257)
  assert_allclose(found[..., IDS], want[..., IDS], atol=1e-5)
  assert np.isneginf(np.delete(found, IDS, -1)).all()
  is_target = same.weights.draft is same.weights.target
  assert is_target == (not layers)


@pytest.mark.parametrize('kind', ('unigram', 'bigram'))
def test_a_table_counts_prompts_or_another_folder(names, kind):
  decoding = load(names, kind, names['rollouts'], gamma=2)
  rows = rollouts.read(names['rollouts'])
  replies = [row.tokens[row.mask] for row in rows]
  assert [reply.size for reply in replies] == [9, 9]
  want = drafting.TABLES[kind](replies, 257)
  jax.tree.map(assert_array_equal, decoding.weights.draft, want)
  assert isinstance(decoding.weights.draft, table.Table)
  assert decoding.drafter.gamma == 2 and decoding.draft is None


def test_several_drafts_read_the_target_again_and_again(names, monkeypatch):
  config = setup.DecodeConfig(names['target'], 'ngram')
  target = setup.load_target(config)
  monkeypatch.setattr(setup, 'load_target', None)
  for drafter, draft in (
    ('ngram', ''),
    ('unigram', names['rollouts']),
    ('model', names['reduced']),
    ('model', names['target']),
  ):
    decoding = load(names, drafter, draft, target)
    assert decoding.weights.target is target.params


def test_a_folder_without_rollouts_is_counted(names, tmp_path):
  with pytest.raises(UsageError, match='filled'):
    load(names, 'bigram', str(tmp_path))
  with pytest.raises(UsageError, match="drafter 'unigram' counts rollouts"):
    load(names, 'unigram', '')
