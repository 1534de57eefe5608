"""The figure of the simulated experiment, from its summary.json."""

import json
import pathlib

import numpy as np

from specdec import theory
from specdec.plots import style


def draw(workdir):
  """Writes figures/simulated.png: speedup by gamma, a panel a pair of sizes.

  Lines are predicted from the overlap and the measured c and v, which are
  interpolated between the measured gammas; points are measured, with the
  quartiles of the times.
  """
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  cells = summary['cells']
  pairs = list(dict.fromkeys((c['target'], c['draft']) for c in cells))
  overlaps = sorted({cell['overlap'] for cell in cells})
  colours = dict(zip(overlaps, style.shades(len(overlaps)), strict=True))
  ratio = summary['measured_over_predicted']['median']
  with style.context():
    figure, axes = style.panels(
      len(pairs),
      f'Known overlap, real cost: {ratio:.0%} of the predicted speed',
      width_in=6 * max(len(pairs), 1.5),
      sharey=True,
    )
    for ax, (target, draft) in zip(axes, pairs, strict=True):
      here = [c for c in cells if (c['target'], c['draft']) == (target, draft)]
      for overlap in overlaps:
        _series(ax, [c for c in here if c['overlap'] == overlap], colours)
      c = np.median([cell['c'] for cell in here])
      ax.set_title(f'target {target}, draft {draft}: c = {c:.2f}')
      ax.axhline(1, color=style.MUTED, linewidth=0.8)
      ax.set_xlabel('gamma, drafts of a round')
      ax.set_xticks(sorted({cell['gamma'] for cell in here}))
      ax.grid(axis='y')
    axes[0].set_ylabel(
      f'speedup, batch {summary["batch_size"]}; lines: predicted'
    )
    style.save(figure, workdir / 'figures' / 'simulated.png')


def _series(ax, cells, colours):
  """The points of one overlap on their curve, which bears its name."""
  cells = sorted(cells, key=lambda cell: cell['gamma'])
  gammas = [cell['gamma'] for cell in cells]
  overlap = cells[0]['overlap']
  colour = colours[overlap]
  smooth = np.arange(gammas[0], gammas[-1] + 1)
  c, v = (
    np.interp(smooth, gammas, [cell[name] for cell in cells]) for name in 'cv'
  )
  curve = np.asarray(theory.speedup(overlap, smooth, c, v))
  ax.plot(smooth, curve, color=colour, linewidth=1.5)
  ax.plot(gammas, [x['speedup'] for x in cells], 'o', color=colour)
  low, high = zip(*(x['speedup_quartiles'] for x in cells), strict=True)
  ax.vlines(gammas, low, high, color=colour, linewidth=2)
  ax.annotate(
    f'overlap {overlap:g}',
    (smooth[-1], curve[-1]),
    (8, 0),
    textcoords='offset points',
    va='center',
    color=colour,
    annotation_clip=False,
  )
