"""The five figures of the article experiment.

Reads curves.npz and config.json of the workdir; writes figures/1_*.png to
figures/5_*.png.
"""

import json
import pathlib

import numpy as np

from specdec.plots import style

ACCEPTED, REJECTED, REPLACED = style.BLUE, style.VERMILLION, style.GREEN
ENVELOPES = ('uniform', 'normal')
DRAFTS = 10_000  # the unit of the fourth figure
BAR, SIDE = 0.4, 0.22  # a bar's width, and its distance from the token's middle


def draw(workdir):
  """Draws all five into workdir/figures."""
  workdir = pathlib.Path(workdir)
  config = json.loads((workdir / 'config.json').read_text())
  with np.load(workdir / 'curves.npz') as file:
    curves = dict(file)
  with style.context():
    for name, figure in (
      ('1_envelopes', _envelopes(config, curves)),
      ('2_candidates', _candidates(config, curves)),
      ('3_histograms', _histograms(config, curves)),
      ('4_residual', _residual(config, curves)),
      ('5_speedup', _speedup(config, curves)),
    ):
      style.save(figure, workdir / 'figures' / f'{name}.png')


def _envelopes(config, curves):
  title = 'The area between envelope and target is rejected'
  figure, axes = _density_panels(config, curves, title)
  x, target = curves['x'], curves['target']
  for name, ax in zip(ENVELOPES, axes, strict=True):
    envelope = curves[f'{name}_envelope']
    ax.fill_between(x, target, color=ACCEPTED, alpha=0.22, lw=0)
    ax.fill_between(x, target, envelope, color=REJECTED, alpha=0.16, lw=0)
    ax.plot(x, _positive(envelope), color=REJECTED)
    ax.plot(x, _positive(target), color=ACCEPTED)
    kept = curves['normaliser'] / config[f'{name}_constant']
    _note(ax, 0, 0.55, f'accepted\n{kept:.2%}', ACCEPTED, weight='bold')
    _note(ax, 2.25, 2.6, f'rejected\n{1 - kept:.2%}', REJECTED, weight='bold')
  lift = curves['uniform_envelope'].max()
  _note(axes[0], -3, lift + 0.2, 'envelope C g', REJECTED, ha='left')
  _beside(axes[0], x, target, -1.15, 'target f', ACCEPTED)
  _beside(axes[1], x, envelope, -0.85, 'envelope C g', REJECTED)
  return figure


def _candidates(config, curves):
  title = 'Candidates fill the envelope evenly; those under f are kept'
  figure, axes = _density_panels(config, curves, title)
  x, target = curves['x'], curves['target']
  for name, ax in zip(ENVELOPES, axes, strict=True):
    kept = curves[f'{name}_accepted']
    for chosen, colour in ((~kept, REJECTED), (kept, ACCEPTED)):
      ax.plot(
        curves[f'{name}_x'][chosen],
        curves[f'{name}_height'][chosen],
        'o',
        color=colour,
        ms=2.6,
        alpha=0.55,
        mew=0,
      )
    ax.plot(x, _positive(target), color=style.INK, lw=1.6)
    candidates = f'{kept.size:,} candidates, {kept.mean():.1%} accepted'
    ax.set_title(f'{name.capitalize()} proposal: {candidates}')
  _note(axes[1], 2.25, 2.75, 'rejected', REJECTED, weight='bold')
  _note(axes[1], 2.25, 2.45, 'accepted', ACCEPTED, weight='bold')
  _note(axes[1], 2.25, 2.15, 'target f', style.INK, weight='bold')
  return figure


def _histograms(config, curves):
  title = 'What is kept follows the target, whichever proposal it came from'
  figure, axes = _density_panels(config, curves, title)
  x, target = curves['x'], curves['target'] / curves['normaliser']
  for name, ax in zip(ENVELOPES, axes, strict=True):
    counts, edges = curves[f'{name}_counts'], curves[f'{name}_edges']
    heights = counts / counts.sum() / np.diff(edges)
    ax.stairs(heights, edges, fill=True, color=ACCEPTED, alpha=0.4)
    ax.plot(x, _positive(target), color=style.INK, lw=1.6)
    ax.set_title(
      f'{name.capitalize()} proposal: {counts.sum():,}'
      f' of {config["proposals"]:,} accepted'
    )
    _beside(ax, x, target, -0.6, 'target f / Z', style.INK)
    _note(ax, 0, 0.09, 'accepted', ACCEPTED, weight='bold')
  axes[0].set_ylim(0, 1.1 * target.max())
  axes[0].set_ylabel('density')
  return figure


def _residual(config, curves):
  rounds = config['rounds']
  p, q = curves['target_probs'], curves['draft_probs']
  kept = np.minimum(p, q)
  figure, axes = style.panels(
    2, 'Accepted and replaced mass add up to the target', sharey=True
  )
  scale = DRAFTS / rounds
  _mass_bars(axes[0], curves, DRAFTS * q, DRAFTS * kept, DRAFTS * (p - kept))
  _mass_bars(
    axes[1],
    curves,
    scale * curves['drafted'],
    scale * curves['accepted'],
    scale * curves['replaced'],
  )
  for ax, heading in (
    (axes[0], f'Expected of {DRAFTS:,} drafts'),
    (axes[1], f'Simulated: {rounds:,} drafts, scaled to {DRAFTS:,}'),
  ):
    ax.set_title(heading)
    ax.yaxis.set_major_formatter('{x:,.0f}')
    _note(ax, 0.06, 4_500, 'rejected', REJECTED, ha='left')
    _note(ax, 1 + SIDE, 4_200, 'target', style.INK)
    _note(ax, 1.5, 3_500, 'replaced', REPLACED, ha='left')
    _note(ax, 0.98, 3_200, 'accepted', ACCEPTED, ha='right')
  axes[0].set_ylabel('tokens')
  return figure


def _mass_bars(ax, curves, drafted, accepted, replaced):
  """Two stacked bars a token: what was drafted, and what came out."""
  for i, target in enumerate(DRAFTS * curves['target_probs']):
    left, right = i - SIDE, i + SIDE
    for where, bottom, height, colour in (
      (left, 0, accepted[i], ACCEPTED),
      (left, accepted[i], drafted[i] - accepted[i], REJECTED),
      (right, 0, accepted[i], ACCEPTED),
      (right, accepted[i], replaced[i], REPLACED),
    ):
      if height > 0:
        ax.bar(where, height, BAR, bottom, color=colour, ec='white')
        _note(ax, where, bottom + height / 2, f'{height:,.0f}', 'white')
    ax.hlines(target, right - 0.6 * BAR, right + 0.6 * BAR, style.INK)
  names = curves['tokens']
  ax.set_xticks(
    [i + side for i in range(len(names)) for side in (-SIDE, SIDE)],
    ['draft', 'output'] * len(names),
  )
  ax.tick_params('x', length=0)
  for i, name in enumerate(names):
    ax.annotate(
      name,
      (i, 0),
      (0, -36),
      xycoords='data',
      textcoords='offset points',
      ha='center',
      va='center',
      weight='bold',
    )


def _speedup(config, curves):
  figure, (ax,) = style.panels(
    1, f'The best gamma grows with the overlap (c = {config["c"]:g})'
  )
  gammas = curves['gammas']
  ax.axhline(1, color=style.MUTED, lw=0.8)
  for alpha, speedups, best, colour in zip(
    config['alphas'],
    curves['speedups'],
    curves['best_gammas'],
    style.shades(len(config['alphas'])),
    strict=True,
  ):
    ax.plot(gammas, speedups, color=colour)
    ax.plot(
      best,
      speedups[best],
      'o',
      color=colour,
      ms=9,
      mec='white',
      mew=1.5,
      clip_on=False,
    )
    ax.annotate(
      f'overlap {alpha:g}: {speedups[best]:.2f} at gamma {best}',
      (gammas[-1], speedups[-1]),
      (8, 0),
      textcoords='offset points',
      va='center',
    )
  ax.set_xlim(-0.3, gammas[-1])
  ax.set_xlabel('gamma, drafts a round')
  ax.set_ylabel('speedup over plain decoding')
  return figure


def _density_panels(config, curves, title):
  """A panel for each envelope, over the same x and up to the same height."""
  figure, axes = style.panels(2, title, sharey=True)
  for name, ax in zip(ENVELOPES, axes, strict=True):
    ax.set_title(
      f'{name.capitalize()} proposal, C = {config[f"{name}_constant"]:g}'
    )
    ax.set_xlim(curves['x'][0], curves['x'][-1])
    ax.set_xlabel('x')
  top = max(curves[f'{name}_envelope'].max() for name in ENVELOPES)
  axes[0].set_ylim(0, 1.05 * top)
  axes[0].set_ylabel('height, not normalised')
  return figure, axes


def _positive(curve):
  """A curve without the stretches where it is zero."""
  return np.where(curve > 0, curve, np.nan)


def _note(ax, x, y, text, colour, ha='center', weight='normal'):
  ax.text(x, y, text, color=colour, ha=ha, va='center', weight=weight)


def _beside(ax, x, curve, at, text, colour):
  """Names a curve to the left of its point at `at`."""
  ax.annotate(
    text,
    (at, np.interp(at, x, curve)),
    (-9, 5),
    textcoords='offset points',
    ha='right',
    color=colour,
  )
