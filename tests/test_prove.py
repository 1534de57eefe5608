"""The proof as an experiment: what it shows, and what it refuses."""

import json

import jax.numpy as jnp
import pytest
from test_run import config

from specdec.base import UsageError
from specdec.drafters.policies import fixed
from specdec.experiments import proofs, prove
from specdec.verify import token

SMALL = {
  'vocabs': (2,),
  'gammas': (1, 2),
  'repeats': 1,
  'rounds': 0,
  'texts': 0,
}


@pytest.fixture(scope='module')
def summary(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('prove')
  prove.run(config('prove', **SMALL), workdir)
  return json.loads((workdir / 'summary.json').read_text())


def test_lossless_rules_are_proven_and_controls_found_out(summary):
  assert summary['lossless_deviation'] < 1e-12
  assert summary['as_expected'] == summary['checks']
  controls = [row for row in summary['rows'] if row['kind'] == 'control']
  assert len(controls) == 3
  assert min(row['deviation'] for row in controls) > 1e-3


def test_a_lossy_rule_shows_its_total_variation(summary):
  lossy = [row for row in summary['rows'] if row['kind'] == 'lossy']
  assert len(lossy) == 3
  assert all(0 < row['mean_total_variation'] < 1 for row in lossy)


def test_a_rule_that_bends_the_law_is_refuted():
  options = prove.Config(**_fields())
  row = {'part': 'exact', 'kind': 'lossless', 'deviation': 1e-9}
  assert not prove.as_expected(row, options)
  assert prove.verdict({**row, 'as_expected': False}) == 'REFUTED'
  row = {'part': 'loop', 'kind': 'control', 'p_value': 0.2}
  assert not prove.as_expected(row, options)
  assert prove.verdict({**row, 'as_expected': False}) == 'NOT FOUND OUT'


def test_a_law_that_is_no_number_is_called_lossless():
  def law(proposal, target_probs):
    found = token.law(proposal, target_probs)
    # For some pairs, not the first: Python's max forgets a later NaN.
    return jnp.where(jnp.any(proposal.probs == 1), jnp.nan, found)

  options = prove.Config(**_fields() | SMALL)
  figures = proofs.enumerate_rule(
    token.RULE._replace(law=law), fixed.build(2), proofs.draw_groups(options)
  )
  row = {'part': 'exact', 'kind': 'lossless', **figures}
  assert not prove.as_expected(row, options)


def test_a_refuted_proof_ends_like_a_proven_one(tmp_path, monkeypatch):
  monkeypatch.setattr(
    proofs, 'enumerate_rule', lambda *_, **__: dict.fromkeys(
      ('deviation', 'mean_total_variation', 'total_variation',
       'mean_accepted'), 0.5,
    ) | {'cases': 1},
  )  # fmt: skip
  with pytest.raises(SystemExit) as end:
    prove.run(config('prove', **SMALL), tmp_path / 'run')
  assert end.value.code == prove.REFUTED
  assert (tmp_path / 'run' / 'summary.json').exists()


@pytest.mark.parametrize(
  'changes, words',
  (
    ({'vocabs': (7,)}, 'vocabs = 7: it must be in 2..5'),
    ({'gammas': (5,)}, 'gammas = 5: it must be in 0..4'),
    ({'gammas': (0,)}, 'gammas = (0,): it must be one at least above 0'),
    ({'vocabs': ()}, 'vocabs = (): it must be not empty'),
    ({'seed': -1}, 'seed = -1'),
    ({'texts': 1000}, 'texts = 1000: it must be a multiple of 100000'),
    ({'lossy__lenience': 0.0}, 'lossy.lenience = 0.0'),
    ({'stopping__bound': 2.0}, 'stopping.bound = 2.0'),
  ),
)
def test_a_field_out_of_range_is_refused_before_any_work(
  tmp_path, changes, words
):
  with pytest.raises(UsageError) as error:
    prove.run(config('prove', **SMALL | changes), tmp_path / 'run')
  assert words in str(error.value)
  assert not (tmp_path / 'run').exists()


def _fields():
  fields = config('prove').to_dict()
  fields.pop('experiment')
  return fields
