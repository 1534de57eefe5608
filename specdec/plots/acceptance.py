"""The figure of the acceptance experiment, from its summary.json."""

import json
import pathlib

from specdec.plots import style


def draw(workdir):
  """Writes figures/acceptance.png.

  On the left the overlap of each draft with its interval, a mark for each
  temperature; then a panel for each temperature: how often the i-th draft of
  a round is accepted, as measured (points) and as forecast from overlaps
  (lines).
  """
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  cells = summary['cells']
  temperatures = sorted({cell['temperature'] for cell in cells})
  labels = list(dict.fromkeys(cell['draft'] for cell in cells))
  colours = dict(zip(labels, style.CYCLE * len(labels), strict=False))
  with style.context():
    figure, axes = style.panels(
      1 + len(temperatures),
      'What the target accepts of each draft',
      width_in=4.5 * (1 + len(temperatures)),
    )
    _overlaps(axes[0], cells, labels, temperatures, colours)
    for ax, temperature in zip(axes[1:], temperatures, strict=True):
      here = [cell for cell in cells if cell['temperature'] == temperature]
      for cell in here:
        _positions(ax, cell, colours[cell['draft']])
      ax.set_title(f'accepted, temperature {temperature:g}')
      ax.set_xlabel('draft of a round')
      ax.set_xticks(range(1, summary['gamma'] + 1))
      ax.set_ylim(0, 1)
    style.save(figure, workdir / 'figures' / 'acceptance.png')


def _overlaps(ax, cells, labels, temperatures, colours):
  """A row a draft; the temperatures above each other, from light to full."""
  for cell in cells:
    order = temperatures.index(cell['temperature'])
    y = labels.index(cell['draft']) + 0.25 * (
      order - (len(temperatures) - 1) / 2
    )
    value, low, high = cell['overlap']
    colour = colours[cell['draft']]
    ax.hlines(y, low, high, color=colour, linewidth=2)
    filled = colour if order else 'white'
    ax.plot(value, y, 'o', color=colour, markerfacecolor=filled, markersize=6)
  ax.set_yticks(range(len(labels)), [short(label) for label in labels])
  ax.set_ylim(len(labels) - 0.5, -0.5)
  ax.set_xlim(0, 1)
  ax.set_title('overlap, 95 % intervals')
  marks = ', '.join(
    f'{"full" if order else "hollow"}: temperature {temperature:g}'
    for order, temperature in enumerate(temperatures)
  )
  ax.set_xlabel(marks)


def _positions(ax, cell, colour):
  for name, look in (
    ('forecast_accept_rate_by_position', {'linewidth': 1.5}),
    ('accept_rate_by_position', {'marker': 'o', 'linestyle': 'none'}),
  ):
    points = [(i, y) for i, y in enumerate(cell[name], 1) if y is not None]
    if points:
      ax.plot(*zip(*points, strict=True), color=colour, markersize=5, **look)


def short(label, most=22):
  """The end of a long name, which tells drafts apart."""
  return label if len(label) <= most else f'…{label[1 - most :]}'
