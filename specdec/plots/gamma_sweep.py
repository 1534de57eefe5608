"""The figure of the gamma sweep, from its summary.json."""

import json
import pathlib

from specdec.plots import style


def draw(workdir):
  """Writes figures/gamma_sweep.png: speedup by gamma, a panel a temperature.

  Points are measured, with 95 % intervals; lines are predicted: through with
  measured costs, dotted with one acceptance for all positions and no cost of
  longer calls. Rings mark the best gamma of each.
  """
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  cells = [c for c in summary['cells'] if c['policy'] == 'fixed']
  temperatures = sorted({cell['temperature'] for cell in cells})
  series = list(dict.fromkeys((c['draft'], c['rule']) for c in cells))
  colours = {
    key: style.CYCLE[number % len(style.CYCLE)]
    for number, key in enumerate(series)
  }
  with style.context():
    figure, axes = style.panels(
      len(temperatures),
      'Speedup by gamma: measured, and predicted from acceptance and costs',
      width_in=5.5 * max(len(temperatures), 1.5),
      sharey=True,
    )
    for ax, temperature in zip(axes, temperatures, strict=True):
      here = [c for c in cells if c['temperature'] == temperature]
      for number, key in enumerate(series):
        _series(
          ax,
          [c for c in here if (c['draft'], c['rule']) == key],
          colours[key],
          (number - (len(series) - 1) / 2) * 0.08,
        )
      ax.axhline(1, color=style.MUTED, linewidth=0.8)
      ax.set_title(f'temperature {temperature:g}')
      ax.set_xlabel('gamma, most drafts of a round')
      ax.set_xticks(sorted({cell['gamma'] for cell in here}))
      ax.grid(axis='y')
    axes[0].set_ylabel(f'speedup, batch {summary["batch_size"]}')
    rules = {rule for _, rule in series}
    handles = [
      axes[0].plot([], [], 'o-', color=colours[key])[0] for key in series
    ]
    names = [
      draft if len(rules) == 1 else f'{draft}, {rule}' for draft, rule in series
    ]
    handles += [
      axes[0].plot([], [], '-', color=style.MUTED)[0],
      axes[0].plot([], [], ':', color=style.MUTED)[0],
    ]
    names += ['predicted with costs', 'predicted from one alpha']
    figure.legend(
      handles, names, loc='outside lower center', ncols=4, fontsize=10
    )
    style.save(figure, workdir / 'figures' / 'gamma_sweep.png')


def _series(ax, cells, colour, shift):
  """The points of one draft and rule, and its curves."""
  cells = sorted(cells, key=lambda cell: cell['gamma'])
  gammas = [cell['gamma'] for cell in cells]
  value = [cell['speedup'][0] for cell in cells]
  places = [gamma + shift for gamma in gammas]
  style.points(ax, places, [cell['speedup'] for cell in cells], colour)
  best = max(range(len(cells)), key=value.__getitem__)
  _ring(ax, places[best], value[best], colour)
  if not all(cell['predicted'] for cell in cells):
    return
  for name, dashes in (('measured_costs', '-'), ('constant_alpha', ':')):
    curve = [cell['predicted'][name] for cell in cells]
    ax.plot(gammas, curve, dashes, color=colour, linewidth=1.5)
    if name == 'measured_costs':
      best = max(range(len(cells)), key=curve.__getitem__)
      _ring(ax, gammas[best], curve[best], colour, small=True)


def _ring(ax, x, y, colour, small=False):
  ax.plot(
    x, y, 'o', markersize=8 if small else 12, markerfacecolor='none',
    markeredgecolor=colour,
  )  # fmt: skip
