"""Rollouts: what a target says to prompts, stored so that drafts learn from it.

A draft is asked at prefixes that the target wrote, so it is trained on such
prefixes (DistillSpec, https://arxiv.org/abs/2310.08461). Row r of a run is a
function of its prompt and of key r alone: neither the batch it ran in nor an
interruption changes it, up to the rounding of products of another shape.

A folder holds shards, each an .npz of neighbouring rows, and manifest.json,
which says what made them. Every file is whole or absent, and each shard's
digest is in the manifest: what is lost or broken is noticed, and made anew.
"""

import dataclasses
import hashlib
import io
import json
import os
import pathlib

import numpy as np
from rich import console as rich_console
from rich import progress

from specdec import metrics, pytree, rng, sampling
from specdec.base import UsageError
from specdec.data import prompts as prompts_lib
from specdec.data.packing import Row
from specdec.decode import stats

MANIFEST = 'manifest.json'
# Of the manifest, beside the setting.
_FIELDS = ('rows', 'tokens', 'shards')
_SHARD = ('file', 'start', 'rows', 'tokens', 'digest')


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
  """What makes rollouts, beside the prompts.

  Attributes:
    target: the model's name.
    temperature: 0 is greedy.
    max_new_tokens: budget of each row.
    seed: of every draw.
    decoder: name of the loop; loops of one law draw different texts.
  """

  target: str
  temperature: float
  max_new_tokens: int
  seed: int
  decoder: str = 'autoregressive'

  def __post_init__(self):
    if self.max_new_tokens < 1:
      raise UsageError(
        f'max_new_tokens = {self.max_new_tokens}: it must be at least 1'
      )
    sampling.params(1, self.temperature)


def collect(
  folder,
  config,
  decoder,
  weights,
  prompts,
  batch_size,
  stops=(),
  console=None,
  max_len=None,
  enough=None,
):
  """Decodes what the folder lacks, a batch and a shard at a time.

  Run again with the same arguments after an interruption, it goes on at the
  first row that is missing; the batch size may be another one.

  Args:
    folder: made when absent.
    config: RolloutConfig.
    decoder: decode.decoder.Decoder.
    weights: base.Weights.
    prompts: R lists of token ids, none empty. A prompt that is there twice is
      answered twice, with two keys.
    batch_size: rows decoded together.
    stops: token ids that end a row.
    console: rich.console.Console of the progress bar; None is stdout.
    max_len: tokens that every row has room for; None is just enough. Other
      prompts in the same room share what is compiled.
    enough: new tokens after which no further batch is decoded; None decodes
      every row.

  Returns:
    The manifest, a dict: the setting, `rows` (R), `tokens` (new ones in all)
    and `shards`.

  Raises:
    UsageError: the folder holds rollouts of another setting, or cannot be
      written, or a prompt does not fit. Nothing is overwritten.
  """
  if batch_size < 1:
    raise UsageError(f'batch_size = {batch_size}: it must be at least 1')
  if not prompts or not all(map(len, prompts)):
    raise UsageError('prompts: give at least one, and none without tokens')
  folder = pathlib.Path(folder).resolve()
  manifest = _open(folder, _setting(config, prompts, stops), len(prompts))
  missing = _missing(manifest['shards'], len(prompts), batch_size)
  params = sampling.params(batch_size, config.temperature)
  max_len = max_len or max(map(len, prompts)) + config.max_new_tokens
  console = console or rich_console.Console()
  with _progress(console) as bar:
    unit = 'rows' if enough is None else 'tokens'
    done = sum(shard[unit] for shard in manifest['shards'])
    whole = enough or len(prompts)
    task = bar.add_task('rollouts', total=whole, completed=done)
    for start, count in missing:
      if enough is not None and manifest['tokens'] >= enough:
        break
      part = prompts[start : start + count]
      fillers = batch_size - count
      state = decoder.init(
        weights,
        [*part, *[part[0]] * fillers],
        rng.sequence_keys(config.seed, batch_size, start),
        params,
        [config.max_new_tokens] * count + [0] * fillers,
        stops,
        max_len,
      )
      outputs = stats.outputs(decoder.generate(weights, state))[:count]
      shard = _write(folder, start, part, [row['tokens'] for row in outputs])
      _record(folder, manifest, [*manifest['shards'], shard])
      bar.update(
        task,
        advance=shard[unit],
        description=f'rollouts · {manifest["tokens"]:,} tokens',
      )
  return manifest


def read(folder):
  """Reads all rows that a folder holds, in the order of their prompts.

  A collection that was interrupted, or had enough tokens, holds fewer than its
  manifest's `rows`.

  Args:
    folder: that `collect` filled.

  Returns:
    A list of packing.Row: prompt and reply; the mask is on the reply.

  Raises:
    UsageError: there are no rollouts, or a shard is lost or broken.
  """
  folder = pathlib.Path(folder).resolve()
  rows = []
  for shard in read_manifest(folder)['shards']:
    data = _read(folder, shard)
    if data is None:
      raise UsageError(
        f'{folder / shard["file"]}: the shard is lost or broken; run the'
        ' collection again, which makes it anew'
      )
    with np.load(io.BytesIO(data)) as arrays:
      ends = np.cumsum(arrays['length'])[:-1]
      texts = np.split(arrays['tokens'], ends)
      for text, given in zip(texts, arrays['prompt_length'], strict=True):
        rows.append(Row(text, np.arange(text.size) >= given))
  return rows


def read_manifest(folder):
  """What made the rollouts of a folder, and which they are.

  Returns:
    A dict; see `collect`.

  Raises:
    UsageError: there is none, or it is foreign.
  """
  path = pathlib.Path(folder) / MANIFEST
  try:
    manifest = json.loads(path.read_text())
    good = all(field in manifest for field in _FIELDS) and all(
      field in shard for shard in manifest['shards'] for field in _SHARD
    )
  except OSError as error:
    raise UsageError(
      f'{path}: {error.strerror}; give a folder that configs/rollouts.py filled'
    ) from error
  except (ValueError, TypeError):
    good = False
  if not good:
    raise UsageError(
      f'{path}: not the manifest of rollouts; give a folder that'
      ' configs/rollouts.py filled'
    )
  return manifest


def _setting(config, prompts, stops):
  """All that the rows depend on, as JSON gives it back."""
  return {
    **dataclasses.asdict(config),
    'stops': sorted(map(int, stops)),
    'prompts': prompts_lib.digest(prompts),
  }


def _open(folder, setting, rows):
  """The manifest to go on with, which lists whole shards alone."""
  if (folder / MANIFEST).exists():
    manifest = read_manifest(folder)
    for field, value in setting.items():
      if manifest.get(field) != value:
        raise UsageError(
          f'{field} = {value!r}: the rollouts in {folder} were made with'
          f' {manifest.get(field)!r}; give that, or another folder'
        )
    whole = [s for s in manifest['shards'] if _read(folder, s) is not None]
    return {**manifest, 'shards': whole}
  try:
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
      raise UsageError(
        f'{folder}: it holds files, but no {MANIFEST}; give a folder that is'
        ' new or empty'
      )
  except OSError as error:
    raise pytree.unwritten(folder, error) from error
  manifest = {**setting, 'rows': rows}
  _record(folder, manifest, [])
  return manifest


def _missing(shards, rows, batch_size):
  """Batches of rows that no shard holds, as (start, count)."""
  batches, at = [], 0
  for end, size in [*((s['start'], s['rows']) for s in shards), (rows, 0)]:
    for start in range(at, end, batch_size):
      batches.append((start, min(batch_size, end - start)))
    at = end + size
  return batches


def _write(folder, start, prompts, replies):
  """Writes a shard that is whole or absent; returns its entry."""
  texts = [[*a, *b] for a, b in zip(prompts, replies, strict=True)]
  buffer = io.BytesIO()
  np.savez(
    buffer,
    tokens=np.concatenate(texts).astype(np.int32),
    prompt_length=np.array([len(ids) for ids in prompts], np.int32),
    length=np.array([len(ids) for ids in texts], np.int32),
  )
  name = f'rows-{start:08d}.npz'
  part = folder / f'{name}.part'
  try:
    part.write_bytes(buffer.getvalue())
    os.replace(part, folder / name)
  except OSError as error:
    raise pytree.unwritten(folder / name, error) from error
  return {
    'file': name,
    'start': start,
    'rows': len(texts),
    'tokens': sum(map(len, replies)),
    'digest': _digest(buffer.getvalue()),
  }


def _record(folder, manifest, shards):
  """Writes the manifest with these shards."""
  shards = sorted(shards, key=lambda shard: shard['start'])
  manifest['tokens'] = sum(shard['tokens'] for shard in shards)
  manifest['shards'] = shards
  try:
    metrics.write_json(folder / MANIFEST, manifest)
  except OSError as error:
    raise pytree.unwritten(folder / MANIFEST, error) from error


def _read(folder, shard):
  """The bytes of a shard, or None if it is not what was written."""
  try:
    data = (folder / shard['file']).read_bytes()
  except OSError:
    return None
  return data if _digest(data) == shard['digest'] else None


def _digest(data):
  return hashlib.blake2b(data, digest_size=16).hexdigest()


def _progress(console):
  return progress.Progress(
    progress.TextColumn('{task.description}'),
    progress.BarColumn(),
    progress.MofNCompleteColumn(),
    progress.TimeRemainingColumn(),
    console=console,
    transient=True,
    disable=not console.is_terminal,
  )
