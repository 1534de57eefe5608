"""What a decoding step costs on this machine, as ratios within one run.

The forward pass alone is a loop of model calls on fixed tokens; the decode
loops do the same calls and everything else. What a round costs beyond its
forwards is the difference; where the quartiles overlap, it is too small for
this machine to tell, and may come out negative.
"""

import dataclasses

import jax
import jax.numpy as jnp
from rich import console as rich_console
from rich import table as rich_table

from specdec import metrics, timing
from specdec.base import Weights
from specdec.decode import autoregressive, speculative
from specdec.drafters import model as model_drafter
from specdec.experiments import calls, checks, setup
from specdec.models import load
from specdec.verify import RULES

PROMPT_TOKENS = 100
SAMPLINGS = {
  'greedy': {'temperature': 0.0},
  'temperature': {'temperature': 1.0},
  'top-p': {'temperature': 1.0, 'top_p': 0.9},
}


@dataclasses.dataclass(frozen=True)
class Config:
  """The experiment's fields, checked.

  Attributes:
    target: name of the model; it also drafts for itself.
    gamma: drafts of a round where the overhead is measured.
    feeds: tokens a row whose forward is timed, 1 among them.
    batch_size: the batch that is compared with batch 1.
    rows: sizes of the buffers that are compared, in tokens.
    steps: model calls in one timed run.
    repeats: timed runs of everything.
    dtype: of the weights.
  """

  target: str
  gamma: int
  feeds: tuple[int, ...]
  batch_size: int
  rows: tuple[int, int]
  steps: int
  repeats: int
  dtype: str

  def __post_init__(self):
    checks.one_of('dtype', self.dtype, setup.DTYPES)
    for field in ('gamma', 'batch_size', 'steps', 'repeats'):
      checks.at_least(field, getattr(self, field), 1)
    checks.require(
      'feeds',
      self.feeds,
      1 in self.feeds and min(self.feeds) > 0,
      'positive, 1 among them',
    )
    needed = PROMPT_TOKENS + self.steps * (self.gamma + 1)
    checks.at_least('rows (for steps and gamma)', min(self.rows), needed)


def run(config, workdir):
  """Runs the experiment; see configs/speed.py."""
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.target}'):
    checkpoint = load.load(config.target, setup.dtype_of(config.dtype))
  workdir = metrics.start(workdir, dataclasses.asdict(config))
  functions = _functions(config, checkpoint)
  done, total = [0], len(functions) * (config.repeats + 1)
  with console.status('') as status:

    def progress():
      done[0] += 1
      status.update(f'timed {done[0]} of {total} runs')

    times = timing.interleaved(functions, config.repeats, progress)
  for name, value in times.items():
    metrics.append(workdir, {'name': name, **value._asdict()})
  summary = _summarize(config, checkpoint, times)
  metrics.summarize(workdir, summary)
  _show(console, summary)
  console.print(f'\n{workdir / "summary.json"}')


def _functions(config, checkpoint):
  """Everything that is timed, by name; each runs `steps` model calls."""
  vocab_size = checkpoint.config.vocab_size
  both = setup.model_of(checkpoint, vocab_size)
  short, long = config.rows
  read = jax.jit(lambda tree: [jnp.sum(leaf) for leaf in jax.tree.leaves(tree)])
  functions = {'read': lambda: read(checkpoint.params)}
  for feed in config.feeds:
    functions[f'forward {feed}'] = _forwards(config, *both, (feed,), short)
  functions['step'] = _steps(config, *both, 1, short)
  functions['step, long buffer'] = _steps(config, *both, 1, long)
  functions['step, batch'] = _steps(config, *both, config.batch_size, short)
  # A model that drafts for itself: its first draft feeds two tokens, the next
  # ones one each, and the verification all.
  feeds = (2, *(1,) * (config.gamma - 1), config.gamma + 1)
  functions['round, forwards'] = _forwards(config, *both, feeds, short)
  for name, fields in SAMPLINGS.items():
    functions[f'round, {name}'] = _rounds(config, *both, fields, short)
  return functions


def _forwards(config, model, params, feeds, rows):
  """`steps` times the model calls of `feeds`, and no more."""
  each = [calls.Call(0, feed) for feed in feeds]
  place = calls.Place(1, PROMPT_TOKENS, config.steps)
  return calls.forwards([(model, params)], each, place, rows)


def _steps(config, model, params, batch, rows):
  """`steps` greedy autoregressive steps."""
  decoder = autoregressive.build(model)
  place = calls.Place(batch, PROMPT_TOKENS, config.steps)
  weights = Weights(params, None)
  return calls.rounds(decoder, weights, place, rows, **SAMPLINGS['greedy'])


def _rounds(config, model, params, fields, rows):
  """`steps` rounds of a model that drafts for itself."""
  drafter = model_drafter.build(model, config.gamma)
  decoder = speculative.build(model, drafter, RULES['token'])
  place = calls.Place(1, PROMPT_TOKENS, config.steps)
  return calls.rounds(decoder, Weights(params, params), place, rows, **fields)


def _summarize(config, checkpoint, times):
  """What summary.json holds; milliseconds of one call, and ratios."""
  steps = {name: 1 if name == 'read' else config.steps for name in times}
  quartiles_ms = {
    name: [1e3 * t / steps[name] for t in (value.low_s, value.high_s)]
    for name, value in times.items()
  }
  ms = {
    name: 1e3 * value.median_s / steps[name] for name, value in times.items()
  }
  leaves = jax.tree.leaves(checkpoint.params)
  forwards = ms['round, forwards']
  return {
    'target': config.target,
    'device': jax.devices()[0].device_kind,
    'dtype': str(leaves[0].dtype),
    'weights_bytes': sum(leaf.nbytes for leaf in leaves),
    'ms': ms,
    'quartiles_ms': quartiles_ms,
    'step_over_read': ms['step'] / ms['read'],
    'long_buffer_over_short': ms['step, long buffer'] / ms['step'],
    'batch_throughput_over_single': (
      config.batch_size * ms['step'] / ms['step, batch']
    ),
    'forward_over_single': {
      str(feed): ms[f'forward {feed}'] / ms['forward 1']
      for feed in config.feeds
    },
    'round_overhead': {
      name: 1 - forwards / ms[f'round, {name}'] for name in SAMPLINGS
    },
  }


def _show(console, summary):
  """Prints the ratios, each with what it compares."""
  ms, quartiles = summary['ms'], summary['quartiles_ms']
  table = rich_table.Table(box=None, pad_edge=False)
  table.add_column('what')
  table.add_column('ms', justify='right')
  table.add_column('quartiles', justify='right')
  table.add_column('ratio', justify='right')

  def line(what, name, ratio=''):
    low, high = quartiles[name]
    spread = f'{low:.1f}-{high:.1f}'
    table.add_row(what, f'{ms[name]:.1f}', spread, ratio)

  line('reading the weights once', 'read')
  line(
    'autoregressive step / reading', 'step', f'{summary["step_over_read"]:.2f}'
  )
  line(
    'step, long buffer / short',
    'step, long buffer',
    f'{summary["long_buffer_over_short"]:.2f}',
  )
  line(
    'batched step; tokens per second / single',
    'step, batch',
    f'{summary["batch_throughput_over_single"]:.2f}',
  )
  for feed, ratio in summary['forward_over_single'].items():
    line(f'forward of {feed} tokens / of 1', f'forward {feed}', f'{ratio:.2f}')
  for name, share in summary['round_overhead'].items():
    line(
      f'round, {name}: share outside forwards',
      f'round, {name}',
      f'{share:.1%}',
    )
  console.print(table)
