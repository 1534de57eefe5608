"""Prefixes by author: the same prompts and mask; a cut changes no bit."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import phases
import pytest
from numpy.testing import assert_array_equal

from specdec import checkpoint
from specdec.base import UsageError
from specdec.data import packing
from specdec.train import loop, prefixes, rollouts

FOLDER = pathlib.Path(__file__).parent


@pytest.fixture(scope='module')
def straight(tmp_path_factory):
  """The workdir of a run without a cut, and its state."""
  workdir = tmp_path_factory.mktemp('straight')
  return workdir, phases.train(workdir)


def killed(*arguments):
  """Runs phases.py, which must die."""
  path = os.pathsep.join([str(FOLDER.parent), os.environ.get('PYTHONPATH', '')])
  done = subprocess.run(
    [sys.executable, FOLDER / 'phases.py', *map(str, arguments)],
    env={**os.environ, 'PYTHONPATH': path},
    capture_output=True,
    text=True,
  )
  assert done.returncode == -signal.SIGKILL, done.stderr


def contents(workdir):
  return {
    path.relative_to(workdir): path.read_bytes()
    for author in ('student', 'teacher')
    for path in (workdir / author).rglob('*.*')
  }


def bits(state):
  key = jax.random.key_data(state.key)
  return jax.device_get(jax.tree.leaves(state._replace(key=key)))


def assert_same(found, wanted):
  for a, b in zip(found, wanted, strict=True):
    assert_array_equal(a, b)


def refusal(act):
  with pytest.raises(UsageError) as caught:
    act()
  assert '\n' not in str(caught.value)
  return str(caught.value)


def test_a_run_killed_in_a_phase_and_in_a_collection_is_another_run(
  tmp_path, straight
):
  workdir, state = straight
  # Before step 7 of the second phase, whose pool was made at step 4.
  killed(tmp_path, 'step', 7)
  assert checkpoint.steps(tmp_path / loop.CHECKPOINTS)[-1] == 6
  # It goes on in that phase, and dies when half of the third pool is written:
  # the teacher's batch and the first of the student's two.
  killed(tmp_path, 'writing', 3)
  assert checkpoint.steps(tmp_path / loop.CHECKPOINTS)[-1] == 8
  assert len([*(tmp_path / 'student' / '000002').glob('*.npz')]) == 1
  assert_same(bits(phases.train(tmp_path)), bits(state))
  assert contents(tmp_path) == contents(workdir)


def test_a_phase_compiles_its_step_or_its_decoder_anew(straight):
  advance, writer = phases.compiled()
  assert len(phases.traces) == advance._cache_size() == 1
  assert writer.decoder.generate._cache_size() == 1


def test_a_pool_is_written_by_a_student_of_another_step(straight):
  workdir, state = straight
  first, last = (
    rollouts.read_manifest(workdir / 'student' / f'{i:06d}')['target']
    for i in (0, 2)
  )
  saved = checkpoint.restore(workdir / loop.CHECKPOINTS, state, 8).state
  assert last == f'student {prefixes.digest(saved.params)}' != first


@pytest.fixture
def cut(straight, tmp_path):
  """A copy of the run that was cut after step 9, in its third phase."""
  workdir = pathlib.Path(shutil.copytree(straight[0], tmp_path / 'run'))
  shutil.rmtree(workdir / loop.CHECKPOINTS / '10')
  return workdir


def test_a_lost_pool_is_made_anew_with_other_weights(cut, straight):
  assert checkpoint.steps(cut / loop.CHECKPOINTS)[-1] == 9
  shutil.rmtree(cut / 'student' / '000002')
  line = refusal(lambda: phases.train(cut))
  assert 'student/000002: these rollouts are lost or broken' in line
  # The teacher's can be made again.
  shutil.copytree(straight[0] / 'student', cut / 'student', dirs_exist_ok=True)
  shutil.rmtree(cut / 'teacher')
  assert_same(bits(phases.train(cut)), bits(straight[1]))


def test_a_pool_of_another_phase_is_trained_on(cut):
  shutil.rmtree(cut / 'student' / '000002')
  shutil.copytree(cut / 'student' / '000001', cut / 'student' / '000002')
  line = refusal(lambda: phases.train(cut))
  assert line.startswith('the pool of phase 2 is not the one that the run has')


def pool(folder, source, params=phases.TEACHER):
  return phases.pools(folder, {source: 1.0}).rows(1, params)


def test_a_student_that_is_its_teacher_writes_something_else(tmp_path):
  a, b = (pool(tmp_path, source) for source in ('teacher', 'student'))
  assert_same(a, b)
  other = pool(tmp_path / 'other', 'student', params=phases.TEACHER[::-1])
  assert np.any(a.tokens != other.tokens)


def test_authors_continue_other_prompts_or_prompts_count(tmp_path):
  texts = pool(tmp_path, 'text')
  starts = texts.mask.argmax(1)
  assert np.all(starts == phases.PROMPT)
  place = np.arange(texts.tokens.shape[1])
  for source in ('teacher', 'student'):
    found = pool(tmp_path, source)
    for row in range(phases.ROWS):
      tokens, counts = found.tokens[row], found.mask[row]
      asked = place < phases.PROMPT
      assert_array_equal(tokens[asked], texts.tokens[row][asked])
      # One span from there on, that ends in a stop token or with the budget.
      end = place[counts][-1] + 1
      assert_array_equal(counts, ~asked & (place < end))
      stopped = np.isin(tokens[:end], phases.STOPS)
      assert_array_equal(stopped[:-1], False)
      assert stopped[-1] or counts.sum() == phases.NEW


def test_a_mixture_is_drawn_instead_of_counted(tmp_path):
  mixed = phases.pools(tmp_path).rows(1, phases.TEACHER[::-1])
  texts, teacher = (pool(tmp_path / 'pure', s) for s in ('text', 'teacher'))
  same = [(mixed.tokens == x.tokens).all(1) for x in (texts, teacher)]
  assert same[0].sum() == 2 and np.all(same[0][:2])
  prompt = slice(0, phases.PROMPT)
  assert_array_equal(mixed.tokens[:, prompt], texts.tokens[:, prompt])


@pytest.mark.parametrize(
  'shares, rows, counts',
  (
    ({'student': 0.5, 'text': 0.25, 'teacher': 0.25}, 8, (2, 2, 4)),
    ({'text': 1.0}, 5, (5, 0, 0)),
    ({'teacher': 0.5, 'student': 0.5}, 3, (0, 2, 1)),
    ({'text': 1 / 3, 'teacher': 1 / 3, 'student': 1 / 3}, 10, (3, 4, 3)),
    ({'text': 0.999, 'student': 0.001}, 10, (10, 0, 0)),
  ),
)
def test_the_counts_of_a_mixture(shares, rows, counts):
  prefixes.check_shares(shares)
  found = prefixes.blocks(shares, rows)
  sizes = [found.get(name, slice(0, 0)) for name in prefixes.AUTHORS]
  assert tuple(span.stop - span.start for span in sizes) == counts
  covered = [i for span in found.values() for i in range(span.start, span.stop)]
  assert covered == [*range(rows)]


@pytest.mark.parametrize(
  'shares',
  ({}, {'text': 0.5}, {'text': 1.5, 'student': -0.5}, {'me': 1.0}),
)
def test_shares_that_are_no_mixture(shares):
  line = refusal(lambda: prefixes.check_shares(shares))
  assert line.startswith(f'mixture = {shares}: give text, teacher, student')


def test_a_token_of_a_document_is_in_no_window_or_in_two():
  # Each token is another one.
  documents, at = [], 0
  for size in (2, 3, 4, 9, 10, 40):
    tokens = np.arange(at, at + size)
    documents.append(packing.Row(tokens, np.ones(size, bool)))
    at += size
  found = prefixes.windows(documents, 3, 6)
  assert found.tokens.shape[1] == 9
  learnt = [token for d in documents for token in d.tokens[3:]]
  assert_array_equal(np.sort(found.tokens[found.mask]), learnt)


def test_a_document_is_not_continued_where_its_own_prompt_ends():
  tokens = np.arange(1, 10)
  row = packing.Row(tokens, tokens > 5)
  found = prefixes.windows([row], 3, 2)
  assert_array_equal(found.tokens, [[3, 4, 5, 6, 7], [5, 6, 7, 8, 9]])
  assert_array_equal(found.mask, [[0, 0, 0, 1, 1]] * 2)
  # All of a prompt that is shorter.
  found = prefixes.windows([row], 7, 2)
  assert_array_equal(found.tokens[0], [*range(1, 8), 0, 0])
  assert_array_equal(found.mask[0], [0] * 5 + [1, 1, 0, 0])


def test_documents_that_are_all_prompt():
  row = packing.Row(np.arange(3), np.ones(3, bool))
  line = refusal(lambda: prefixes.windows([row], 3, 2))
  assert line == 'prompt_tokens = 3: no document is longer; give fewer'
