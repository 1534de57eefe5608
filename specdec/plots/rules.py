"""The figure of the rules experiment, from its summary.json."""

import json
import pathlib

from specdec.plots import style

# Lossless rules are drawn through, lossy ones dashed.
DASHES = {True: '-', False: (0, (4, 2))}


def draw(workdir):
  """Writes figures/rules.png: block efficiency by gamma, a panel a T."""
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  cells = summary['cells']
  temperatures = sorted({cell['temperature'] for cell in cells})
  names = list(dict.fromkeys(cell['rule'] for cell in cells))
  colours = dict(zip(names, style.CYCLE * 2, strict=False))
  colours[names[0]] = style.INK
  with style.context():
    figure, axes = style.panels(
      len(temperatures),
      'What each rule accepts of the same drafts',
      width_in=5.5 * len(temperatures),
      sharey=True,
    )
    for ax, temperature in zip(axes, temperatures, strict=True):
      here = [cell for cell in cells if cell['temperature'] == temperature]
      for number, name in enumerate(names):
        _line(
          ax,
          [cell for cell in here if cell['rule'] == name],
          colours[name],
          (number - len(names) / 2) * 0.04,
        )
      ax.set_title(f'temperature {temperature:g}')
      ax.set_xlabel('gamma, drafts of a round')
      ax.set_xticks(sorted({cell['gamma'] for cell in here}))
    axes[0].set_ylabel('block efficiency, tokens a target call')
    handles = axes[-1].get_lines()
    figure.legend(
      handles, names, loc='outside lower center', ncols=4, fontsize=10
    )
    style.save(figure, workdir / 'figures' / 'rules.png')


def _line(ax, cells, colour, shift):
  """One rule's points by gamma, with 95 % intervals."""
  cells = sorted(cells, key=lambda cell: cell['gamma'])
  x = [cell['gamma'] + shift for cell in cells]
  value, low, high = zip(
    *(cell['law_block_efficiency'] for cell in cells), strict=True
  )
  ax.plot(
    x,
    value,
    color=colour,
    linestyle=DASHES[cells[0]['lossless']],
    marker='o',
    markersize=4,
  )
  ax.vlines(x, low, high, color=colour, linewidth=1)
