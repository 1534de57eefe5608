"""The rate of training, over that of a large matrix product in the same run.

With N weights in products, L layers, width D and rows of T tokens, a step costs
for each token

  6 N + 6 L D T  FLOP:

a product of a weight takes 2 forward and 4 backward, and a query meets T / 2
keys on average, twice. Embedding, norms and optimiser count as nothing.

The loop is watched as well: it is idle from the end of a step until the next
is dispatched, if that comes later.
"""

import concurrent.futures
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
from rich import console as rich_console
from rich import table as rich_table

from specdec import metrics, timing
from specdec.data import packing
from specdec.experiments import checks, setup, training
from specdec.models import functional
from specdec.train import loop, optimiser, pretrain, step

TARGET, SIZE, PRODUCT = 'target', 'size', 'product'
ROWS = 64  # of random text


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/throughput.py."""

  target: training.SizeConfig
  size: training.SizeConfig
  vocab_size: int
  batch_size: int
  row_tokens: int
  matrix: int
  repeats: int
  loop_steps: int
  dtype: str
  seed: int

  def __post_init__(self):
    checks.one_of('dtype', self.dtype, setup.DTYPES)
    for field, least in (
      ('vocab_size', 2),
      ('batch_size', 1),
      ('row_tokens', 2),
      ('matrix', 1),
      ('repeats', 1),
      ('loop_steps', 3),
      ('seed', 0),
    ):
      checks.at_least(field, getattr(self, field), least)

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    target, size = (
      training.SizeConfig(**fields.pop(name)) for name in (TARGET, SIZE)
    )
    return cls(target, size, **fields)


def run(config, workdir):
  """Runs the experiment; see configs/throughput.py.

  Args:
    config: of configs/throughput.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range.
  """
  config = Config.of(config)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  workdir = metrics.start(workdir, dataclasses.asdict(config))
  trainers = {
    name: Trainer(config, getattr(config, name)) for name in (TARGET, SIZE)
  }
  functions = {name: trainer.again() for name, trainer in trainers.items()}
  with console.status('timing steps and products in turn'):
    functions[PRODUCT] = _product(config)
    times = timing.interleaved(functions, config.repeats)
  for name, found in times.items():
    metrics.append(workdir, {'name': name, **found._asdict()})
  peak = 2 * config.matrix**3 / times[PRODUCT].median_s
  summary = {'device': jax.devices()[0].device_kind, 'product_flop_s': peak}
  for name, trainer in trainers.items():
    rate = trainer.step_flop / times[name].median_s
    folder = workdir / name
    folder.mkdir()
    summary[name] = {
      'parameters': functional.num_params(trainer.params),
      'flop_of_a_step': trainer.step_flop,
      'step_flop_s': rate,
      'step_over_product': rate / peak,
      'idle_share': trainer.watch(folder, console),
    }
  metrics.summarize(workdir, summary)
  _report(console, summary)
  console.print(f'\n{workdir / "summary.json"}')
  return summary


class Trainer:
  """A model of some sizes, its step, and random text."""

  def __init__(self, config, sizes):
    """Nothing is compiled yet.

    Args:
      config: Config.
      sizes: training.SizeConfig.
    """
    self._config = config
    model = sizes.model(config.vocab_size, config.row_tokens)
    self.params = functional.init(model, jax.random.key(config.seed))
    self.step_flop = flop(self.params, model, config.row_tokens) * (
      config.batch_size * config.row_tokens
    )
    forward = functional.forward(model, setup.compute_dtype(config.dtype))
    self._follow = optimiser.build(
      optimiser.OptimiserConfig(config.loop_steps, 1e-4)
    )
    self._step = step.build(pretrain.build(forward), self._follow)

  def again(self):
    """A function that runs a step after the last one."""
    box, batch = [self._state()], next(self._data())

    def run():
      box[0], figures = self._step(box[0], batch)
      return figures

    return run

  def watch(self, folder, console):
    """The share of time in which the loop has no step running.

    Args:
      folder: of the loop's files.
      console: of its progress bar.

    Returns:
      float, between the ends of the first and of the last step but one: what
      follows the last is a checkpoint.
    """
    begun, ended = [], []

    def wait(figures):
      jax.block_until_ready(figures)
      ended.append(time.perf_counter())

    with concurrent.futures.ThreadPoolExecutor(1) as watcher:

      def watched(state, batch):
        begun.append(time.perf_counter())
        state, figures = self._step(state, batch)
        watcher.submit(wait, figures)
        return state, figures

      steps = self._config.loop_steps
      loop.run(
        loop.LoopConfig(steps, steps),
        folder,
        watched,
        self._state(),
        self._data(),
        console=console,
      )
    return idle(begun[:-1], ended[:-1])

  def _state(self):
    key = jax.random.key(self._config.seed)
    return step.init(self.params, self._follow, key)

  def _data(self):
    config = self._config
    shape = ROWS, config.row_tokens + 1
    draws = np.random.default_rng(config.seed)
    tokens = draws.integers(config.vocab_size, size=shape).astype(np.int32)
    rows = packing.Batch(tokens, np.ones(shape, bool))
    return packing.Batches(rows, config.batch_size, config.seed)


def flop(params, model, row_tokens):
  """FLOP of a training step for each token; see the module.

  Args:
    params: of a transformer, whose head is its embedding.
    model: its ModelConfig.
    row_tokens: T.
  """
  leaves, _ = jax.tree.flatten_with_path(params)
  weights = sum(
    leaf.size
    for path, leaf in leaves
    if 'scale' not in jax.tree_util.keystr(path)
  )
  attended = model.num_layers * model.num_heads * model.head_dim * row_tokens
  return 6 * (weights + attended)


def idle(begun, ended):
  """The share of time in which no step runs.

  Args:
    begun: when each step was dispatched, seconds.
    ended: when each was done.

  Returns:
    float, of the time between the ends of the first and of the last.
  """
  gaps = np.subtract(begun[1:], ended[:-1])
  return float(np.maximum(gaps, 0).sum() / (ended[-1] - ended[0]))


def _product(config):
  """A function that multiplies two large matrices."""
  shape = config.matrix, config.matrix
  key = jax.random.key(config.seed)
  matrix = jax.random.normal(key, shape, setup.dtype_of(config.dtype))
  multiply = jax.jit(jnp.matmul)
  return lambda: multiply(matrix, matrix)


def _report(console, summary):
  shown = rich_table.Table(box=None, pad_edge=False)
  for number, name in enumerate(
    ('', 'weights', 'GFLOP/s', 'of the product', 'idle')
  ):
    shown.add_column(name, justify='right' if number else 'left')
  for name in (TARGET, SIZE):
    found = summary[name]
    shown.add_row(
      name,
      f'{found["parameters"]:,}',
      f'{found["step_flop_s"] / 1e9:.1f}',
      f'{found["step_over_product"]:.0%}',
      f'{found["idle_share"]:.1%}',
    )
  shown.add_row('product', '', f'{summary["product_flop_s"] / 1e9:.1f}')
  console.print(shown)
