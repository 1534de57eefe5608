"""The introduction in five figures and a table.

Classical rejection sampling of a density with two envelopes; the residual
picture, through the token rule itself; speedup against gamma. Simulated
figures stand beside the article's, with their distance in standard errors.
"""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from specdec import metrics, rejection, rng, sampling, theory
from specdec.base import Proposal
from specdec.experiments import checks
from specdec.plots import article as plots
from specdec.verify import token

# The article's figures: acceptance in percent by envelope and its constant,
# and counts of 10,000 drafts.
ARTICLE_PERCENT = {('uniform', 25.0): 22.95, ('normal', 11.0): 52.16}
ARTICLE_DRAFTS = 10_000
ARTICLE_ACCEPTED = (3_000, 3_000, 1_000)
ARTICLE_REPLACED = (0, 1_000, 2_000)

TOKENS = ('cat', 'dog', 'fox')
TARGET_PROBS = (0.3, 0.4, 0.3)
DRAFT_PROBS = (0.6, 0.3, 0.1)

HISTOGRAM_BINS = 120


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of configs/article.py."""

  experiment: str
  seed: int
  proposals: int
  uniform_constant: float
  normal_constant: float
  shown: int
  rounds: int
  alphas: tuple[float, ...]
  c: float
  max_gamma: int

  def __post_init__(self):
    checks.at_least('proposals', self.proposals, 100)
    checks.at_least('rounds', self.rounds, 1)
    checks.at_least('max_gamma', self.max_gamma, 1)
    checks.require(
      'shown',
      self.shown,
      1 <= self.shown <= self.proposals,
      f'in 1..{self.proposals}, the number of proposals',
    )
    checks.require(
      'alphas',
      self.alphas,
      self.alphas and all(0 <= alpha <= 1 for alpha in self.alphas),
      'one or more values in [0, 1]',
    )
    checks.require('c', self.c, self.c > 0, 'above 0')


def density(x):
  """exp(-x^2 / 2) (sin^2(6 + x) + 3 cos^2(x) sin^2(4 x) + 1)."""
  waves = jnp.sin(6 + x) ** 2 + 3 * jnp.cos(x) ** 2 * jnp.sin(4 * x) ** 2
  return jnp.exp(-(x**2) / 2) * (waves + 1)


TARGET = rejection.Target(density, low=-3.0, high=3.0)


def run(config, workdir):
  """Writes the five figures and the table.

  Args:
    config: of configs/article.py.
    workdir: pathlib.Path.

  Returns:
    The summary, as in summary.json.

  Raises:
    UsageError: a field is out of its range, or an envelope is none.
  """
  config = Config(**config)
  start_s = time.perf_counter()
  envelopes = {
    'uniform': rejection.uniform(
      TARGET.low, TARGET.high, config.uniform_constant
    ),
    'normal': rejection.normal(config.normal_constant),
  }
  samplers = {
    name: rejection.build(TARGET, envelope, field=f'{name}_constant')
    for name, envelope in envelopes.items()
  }
  workdir = metrics.start(workdir, dataclasses.asdict(config))

  keys = rng.sequence_keys(config.seed, config.rounds + 2)
  candidates = {
    name: jax.jit(sampler, static_argnums=1)(key, config.proposals)
    for (name, sampler), key in zip(samplers.items(), keys[:2], strict=True)
  }
  drafted, accepted, replaced = simulate_rounds(keys[2:])
  with jax.enable_x64(True):
    normaliser = float(rejection.integrate(TARGET)[1][-1])

  rows = [
    *_acceptance_rows(envelopes, candidates, normaliser),
    *_residual_rows(accepted, replaced, config.rounds),
  ]
  for row in rows:
    metrics.append(workdir, row)
  np.savez_compressed(
    workdir / 'curves.npz',
    **_density_curves(config, envelopes, candidates, normaliser),
    **_speedup_curves(config),
    tokens=TOKENS,
    target_probs=TARGET_PROBS,
    draft_probs=DRAFT_PROBS,
    drafted=drafted,
    accepted=accepted,
    replaced=replaced,
  )
  plots.draw(workdir)

  deviations = [abs(row['deviation']) for row in rows]
  summary = {
    'compared': len(rows),
    'within_3_standard_errors': sum(d <= 3 for d in deviations),
    'largest_deviation': max(deviations),
    'normaliser': normaliser,
    'wall_s': time.perf_counter() - start_s,
    'figures': {row['name']: row for row in rows},
  }
  metrics.summarize(workdir, summary)
  _print_table(rows, summary, workdir / 'figures')
  return summary


def simulate_rounds(keys):
  """Rounds of one draft, each through the token rule.

  Args:
    keys: typed keys [N], one a sequence.

  Returns:
    drafted, int [V], what the draft proposed; accepted, int [V], what was kept
    of it; replaced, int [V], what the residual gave in place of the others.
    The first makes N, and so do the other two together.
  """
  drafts, kept, next_tokens = _rounds(keys)
  return tuple(
    np.bincount(drawn, minlength=len(TOKENS))
    for drawn in (drafts, drafts[kept], next_tokens[~kept])
  )


@jax.jit
@jax.vmap
def _rounds(key):
  """One round: the draft, whether it was kept, and what else was drawn."""
  p, q = jnp.asarray(TARGET_PROBS), jnp.asarray(DRAFT_PROBS)
  draft = sampling.categorical(rng.draw_key(key, 0, rng.DRAFT, 0), q)
  proposal = Proposal(draft[None], q[None], jnp.int32(1))
  verdict = token.verify(key, 0, proposal, jnp.stack([p, p]))
  return draft, verdict.num_accepted == 1, verdict.next_token


def compare(name, hits, trials, scale, exact, article=None):
  """A simulated proportion beside its exact value and the article's figure.

  Args:
    name: of the row, unit included.
    hits: int, out of `trials`.
    trials: int.
    scale: what a proportion of 1 is in the row's unit.
    exact: float, in the row's unit; it also gives the standard error.
    article: the printed figure, if there is one for this setting.

  Returns:
    A row. `deviation` is ours less the article's figure (the exact value
    where none was printed), in standard errors of our simulation.
  """
  ours = scale * hits / trials
  chance = exact / scale
  standard_error = scale * np.sqrt(chance * (1 - chance) / trials)
  reference = exact if article is None else article
  off = ours - reference
  # What cannot happen has no spread: any occurrence is infinitely far.
  deviation = off / standard_error if standard_error > 0 else off and np.inf
  return {
    'name': name,
    'article': article,
    'exact': exact,
    'ours': float(ours),
    'standard_error': float(standard_error),
    'deviation': float(deviation),
  }


def _acceptance_rows(envelopes, candidates, normaliser):
  for name, envelope in envelopes.items():
    accepted = candidates[name].accepted
    yield compare(
      f'accepted under the {name}, %',
      int(accepted.sum()),
      accepted.size,
      scale=100,
      exact=100 * normaliser / envelope.constant,
      article=ARTICLE_PERCENT.get((name, envelope.constant)),
    )


def _residual_rows(accepted, replaced, rounds):
  p, q = np.asarray(TARGET_PROBS), np.asarray(DRAFT_PROBS)
  article = np.asarray([ARTICLE_ACCEPTED, ARTICLE_REPLACED])
  parts = [
    ('accepted', accepted, np.minimum(p, q), article[0]),
    ('replaced', replaced, np.maximum(p - q, 0), article[1]),
    ('in all', accepted + replaced, p, article.sum(0)),
  ]
  for part, hits, chances, printed in parts:
    for i, name in enumerate(TOKENS):
      yield compare(
        f'{name} {part}, of {ARTICLE_DRAFTS:,}',
        int(hits[i]),
        rounds,
        scale=ARTICLE_DRAFTS,
        exact=float(ARTICLE_DRAFTS * chances[i]),
        article=int(printed[i]),
      )


def _density_curves(config, envelopes, candidates, normaliser):
  x = jnp.linspace(-4, 4, 1_201)
  curves = {
    'x': x,
    'target': rejection.evaluate(TARGET, x),
    'normaliser': normaliser,
  }
  for name, envelope in envelopes.items():
    drawn = candidates[name]
    kept = np.asarray(drawn.x)[np.asarray(drawn.accepted)]
    support = (TARGET.low, TARGET.high)
    counts, edges = np.histogram(kept, HISTOGRAM_BINS, support)
    curves |= {
      f'{name}_envelope': envelope.constant * envelope.density(x),
      f'{name}_x': drawn.x[: config.shown],
      f'{name}_height': drawn.height[: config.shown],
      f'{name}_accepted': drawn.accepted[: config.shown],
      f'{name}_counts': counts,
      f'{name}_edges': edges,
    }
  return curves


def _speedup_curves(config):
  alphas = np.asarray(config.alphas)[:, None]
  gammas = np.arange(config.max_gamma + 1)[None]
  return {
    'gammas': gammas[0],
    'speedups': theory.speedup(alphas, gammas, config.c),
    'best_gammas': theory.best_gamma(
      alphas[:, 0], config.c, max_gamma=config.max_gamma
    ),
  }


def _print_table(rows, summary, figures):
  table = Table(title='Rejection sampling: the article and ours')
  table.add_column('figure')
  for heading in ('article', 'ours', 'std. error', 'deviation'):
    table.add_column(heading, justify='right')
  for row in rows:
    printed = row['article']
    colour = 'green' if abs(row['deviation']) <= 3 else 'red'
    table.add_row(
      row['name'],
      '-' if printed is None else f'{printed:,}',
      f'{row["ours"]:,.2f}',
      f'{row["standard_error"]:.2f}',
      f'[{colour}]{row["deviation"]:+.2f}[/]',
    )
  console = Console()
  console.print(table)
  within, compared = summary['within_3_standard_errors'], summary['compared']
  console.print(
    f'{within} of {compared} within 3 standard errors;'
    f' {summary["wall_s"]:.1f} s; pictures in {figures}',
    highlight=False,
    soft_wrap=True,
  )
