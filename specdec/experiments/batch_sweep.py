"""Batch size by gamma by drafter: where speculation stops paying.

At each batch size the autoregressive loop and every gamma decode the same
batches in turn. Beside what is measured stands a prediction from replayed
rounds and from what the parts of a round cost at that batch size, since both
change with it: a call goes on for the longest proposal of all rows, and the
more rows there are, the more another token of each costs.
"""

import dataclasses

from rich import console as rich_console

from specdec import sampling
from specdec.data import prompts as prompts_lib
from specdec.experiments import batch_sweep_summary as summary_lib
from specdec.experiments import (
  checks,
  drafts,
  replay,
  sweep_run,
  sweeping,
  timed,
)
from specdec.plots import batch_sweep as plot
from specdec.verify import RULES

RULE = 'token'


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/batch_sweep.py."""

  target: str
  drafts: tuple[str, ...]
  batch_sizes: tuple[int, ...]
  gammas: tuple[int, ...]
  temperature: float
  prompts: str
  rows: int
  timed_batches: int
  max_new_tokens: int
  repeats: int
  seed: int
  dtype: str

  def __post_init__(self):
    for field, least in (
      ('rows', 1),
      ('timed_batches', 1),
      ('max_new_tokens', 2),
      ('repeats', 1),
      ('seed', 0),
    ):
      checks.at_least(field, getattr(self, field), least)
    for field in ('batch_sizes', 'gammas'):
      checks.distinct(field, getattr(self, field))
      checks.at_least(f'{field}: the least', min(getattr(self, field)), 1)
    for size in self.batch_sizes:
      # A filler would cost what a row costs, and say nothing.
      checks.require(
        'rows', self.rows, self.rows % size == 0,
        f'a multiple of each of batch_sizes, {size} too',
      )  # fmt: skip
    sampling.params(1, self.temperature)
    for draft in self.parsed:
      self.decode(draft, 1)

  @property
  def parsed(self):
    """The drafts, a list of drafts.Draft."""
    return drafts.parse_all(self.drafts)

  @property
  def loops(self):
    """What is compared with the autoregressive loop, a list of Loop."""
    return [sweeping.Loop(gamma, 'fixed') for gamma in self.gammas]

  def decode(self, draft, batch_size):
    """The DecodeConfig of a draft's longest rounds."""
    return draft.decode(
      target=self.target,
      rule=RULE,
      gamma=max(self.gammas),
      dtype=self.dtype,
      batch_size=batch_size,
    )

  def batches(self, ids, batch_size):
    """The batches of a size that are timed, evenly over all.

    Args:
      ids: of the rows.
      batch_size: B.
    """
    return prompts_lib.evenly(
      timed.batches(ids, batch_size, self.max_new_tokens), self.timed_batches
    )


def run(config, workdir):
  """Runs the sweep, or the rest of it; see configs/batch_sweep.py.

  Args:
    config: of configs/batch_sweep.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or a model cannot be used.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  prompts = prompts_lib.load(config.prompts, config.rows)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  _, decodings, ids = sweep_run.load(
    console,
    {draft: config.decode(draft, 1) for draft in config.parsed},
    prompts,
    config.max_new_tokens,
  )
  ids = repeated(ids, config.rows)

  def find(rows):
    for draft, decoding in decodings.items():
      yield from sweep(config, draft, decoding, ids, rows)

  timed_rows = sum(
    size * len(config.batches(ids, size)) for size in config.batch_sizes
  )
  return sweep_run.run(
    console,
    workdir,
    dataclasses.asdict(config),
    ids,
    find,
    len(decodings) * timed_rows,
    summary_lib,
    plot,
  )


def repeated(ids, rows):
  """So many prompts: in order, and from the first again.

  Args:
    ids: prompts, lists of token ids.
    rows: how many.
  """
  return [ids[row % len(ids)] for row in range(rows)]


def sweep(config, draft, decoding, ids, done):
  """Measures what is left to measure of one draft.

  Args:
    config: Config.
    draft: drafts.Draft.
    decoding: setup.Decoding, of that draft.
    ids: of the rows.
    done: rows of metrics.jsonl that are there already.

  Yields:
    Rows: for each batch size one with the costs, then one a batch.
  """
  max_len = max(map(len, ids)) + config.max_new_tokens
  # What is read of a text does not depend on the rows beside it: few at a time
  # take less memory, and all sizes share a compilation.
  least = config.decode(draft, min(config.batch_sizes))
  read = replay.reader(least, decoding, config.max_new_tokens)
  decoders = {
    sweeping.PLAIN: sweeping.plain_decoder(decoding.target, RULES[RULE])
  }
  for loop in config.loops:
    decoders[loop] = sweeping.decoder_of(least, loop, decoding)
  for size in config.batch_sizes:
    cell = {'draft': draft.label, 'batch_size': size}
    decode = config.decode(draft, size)
    batches = config.batches(ids, size)
    here = [row for row in done if cell.items() <= row.items()]
    if not any('costs' in row for row in here):
      yield cell | sweeping.prices(
        decode,
        decoding,
        (config.temperature,),
        sweeping.cached_tokens(batches, config.max_new_tokens),
        config.repeats,
      )
    for _, row in sweeping.measure(
      decode,
      decoding,
      decoders,
      read,
      sweeping.left(batches, here, cell),
      config.temperature,
      config.seed,
      max_len,
    ):
      yield cell | row
