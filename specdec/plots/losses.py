"""The figure of the ablation of losses, from its summary.json."""

import json
import pathlib

from specdec.plots import style

COLOURS = {
  'text': style.MUTED,
  'teacher': style.BLUE,
  'student': style.VERMILLION,
  'mixture': style.GREEN,
}
UNTRAINED = 'none'


def draw(workdir):
  """Writes figures/losses.png: overlap by loss and source, a panel a T."""
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  cells = summary['cells']
  temperatures = sorted({cell['temperature'] for cell in cells})
  names = [name for name in _names(cells, 'loss') if name != UNTRAINED]
  sources = [name for name in COLOURS if name in _names(cells, 'prefixes')]
  with style.context():
    figure, axes = style.panels(
      len(temperatures),
      _title(cells),
      width_in=6.0 * len(temperatures),
      height_in=1.8 + 0.6 * len(names),
      sharey=True,
    )
    for ax, temperature in zip(axes, temperatures, strict=True):
      here = [cell for cell in cells if cell['temperature'] == temperature]
      _panel(ax, here, names, sources)
      ax.set_title(f'temperature {temperature:g}')
      ax.set_xlabel("overlap, on the target's replies")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    handles = [
      axes[-1].plot([], [], 'o', color=COLOURS[name])[0] for name in sources
    ]
    figure.legend(
      handles,
      [f'prefixes: {name}' for name in sources],
      loc='outside lower center',
      ncols=len(sources),
      fontsize=10,
    )
    style.save(figure, workdir / 'figures' / 'losses.png')


def _panel(ax, cells, names, sources):
  """A dot a cell, with its 95 % interval over seeds."""
  for cell in cells:
    value, low, high = cell['overlap']
    if cell['loss'] == UNTRAINED:
      ax.axvline(value, color=style.INK, linestyle=(0, (4, 2)), linewidth=1)
      ax.annotate(
        'before',
        (value, 1),
        (4, -2),
        xycoords=('data', 'axes fraction'),
        textcoords='offset points',
        va='top',
        fontsize=10,
      )
      continue
    shift = sources.index(cell['prefixes']) - (len(sources) - 1) / 2
    y = names.index(cell['loss']) + 0.17 * shift
    colour = COLOURS[cell['prefixes']]
    ax.hlines(y, low, high, color=colour, linewidth=1.5)
    ax.plot(value, y, 'o', color=colour, markersize=5)
  ax.grid(axis='x')


def _title(cells):
  """The cell with the greatest overlap at the highest temperature."""
  hottest = max(cell['temperature'] for cell in cells)
  best = max(
    (cell for cell in cells if cell['temperature'] == hottest),
    key=lambda cell: cell['overlap'][0],
  )
  return (
    f'{best["loss"]} on {best["prefixes"]} prefixes has the greatest mean'
    f' overlap at temperature {hottest:g}: {best["overlap"][0]:.3f}'
  )


def _names(cells, field):
  """The values of a field, in the order of the cells."""
  return list(dict.fromkeys(cell[field] for cell in cells))
