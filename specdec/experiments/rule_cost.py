"""The time of each rule's `verify`, as a ratio to reading p and q once."""

import dataclasses

import jax
import jax.numpy as jnp
from rich import console as rich_console
from rich import table as rich_table

from specdec import metrics, rng, sampling, timing
from specdec.base import Proposal
from specdec.experiments import checks
from specdec.verify import RULES, lossy_rules


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/rule_cost.py."""

  batch_size: int
  gamma: int
  vocab_size: int
  sharpness: float
  mix: float
  repeats: int
  seed: int

  def __post_init__(self):
    checks.at_least('batch_size', self.batch_size, 1)
    checks.at_least('gamma', self.gamma, 1)
    checks.at_least('vocab_size', self.vocab_size, 2)
    checks.at_least('repeats', self.repeats, 1)
    checks.require('mix', self.mix, 0 <= self.mix <= 1, 'in [0, 1]')


def run(config, workdir):
  """Runs the experiment; see configs/rule_cost.py.

  Args:
    config: of configs/rule_cost.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range.
  """
  fields = config.to_dict()
  fields.pop('experiment')
  config = Config(**fields)
  workdir = metrics.start(workdir, dataclasses.asdict(config))
  console = rich_console.Console(highlight=False)
  proposal, target_probs = draw(config)
  keys = rng.sequence_keys(config.seed, config.batch_size)
  read = jax.jit(lambda p, q: (jnp.sum(p), jnp.sum(q)))
  functions = {'reading p and q': lambda: read(target_probs, proposal.probs)}
  for name, rule in (RULES | lossy_rules()).items():
    verify = jax.jit(jax.vmap(rule.verify, (0, None, 0, 0)))
    functions[name] = lambda verify=verify: verify(
      keys, 7, proposal, target_probs
    )
  with console.status('timing'):
    times = timing.interleaved(functions, config.repeats)
  base = times['reading p and q'].median_s
  rows = [
    {'name': name, **t._asdict(), 'ratio': t.median_s / base}
    for name, t in times.items()
  ]
  for row in rows:
    metrics.append(workdir, row)
  summary = {
    **dataclasses.asdict(config),
    'device': jax.devices()[0].device_kind,
    'ratios': {row['name']: row['ratio'] for row in rows},
    'rows': rows,
  }
  metrics.summarize(workdir, summary)
  table = rich_table.Table(box=None, pad_edge=False)
  for number, name in enumerate(('rule', 'ms', 'quartiles', 'ratio')):
    table.add_column(name, justify='right' if number else 'left')
  for row in rows:
    table.add_row(
      row['name'],
      f'{1e3 * row["median_s"]:.1f}',
      f'{1e3 * row["low_s"]:.1f}-{1e3 * row["high_s"]:.1f}',
      f'{row["ratio"]:.2f}',
    )
  console.print(table)
  return summary


def draw(config):
  """A proposal drawn from a q that shares a part with p.

  Args:
    config: Config.

  Returns:
    base.Proposal of B rows, and target_probs [B, G+1, V].
  """
  p_key, q_key, draft_key = jax.random.split(jax.random.key(config.seed), 3)
  shape = (config.batch_size, config.gamma + 1, config.vocab_size)

  def law(key):
    logits = config.sharpness * jax.random.normal(key, shape)
    return jax.nn.softmax(logits, -1)

  p = law(p_key)
  q = (config.mix * p + (1 - config.mix) * law(q_key))[:, :-1]
  keys = jax.random.split(draft_key, q.shape[:2])
  tokens = jax.vmap(jax.vmap(sampling.categorical))(keys, q)
  length = jnp.full(config.batch_size, config.gamma, jnp.int32)
  return Proposal(tokens, q, length), p
