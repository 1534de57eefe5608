"""The figure of the quickstart experiment, from its summary.json."""

import json
import pathlib

import numpy as np

from specdec import theory
from specdec.plots import style

DISTILLED = 'draft, distilled'
COLOURS = {'draft': style.VERMILLION, DISTILLED: style.BLUE}


def draw(workdir):
  """Writes figures/quickstart.png: overlaps, and what they commit."""
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  gain = 100 * summary['gain']['draft'][0]
  with style.context():
    figure, (left, right) = style.panels(
      2, f'Distillation raises the overlap by {gain:.0f} %', width_in=12.0
    )
    _overlaps(left, summary['overlap'])
    _efficiencies(right, summary)
    style.save(figure, workdir / 'figures' / 'quickstart.png')


def _overlaps(ax, overlaps):
  """A dot a draft, with its 95 % interval."""
  for place, (name, (value, low, high)) in enumerate(overlaps.items()):
    colour = COLOURS.get(name, style.MUTED)
    ax.hlines(place, low, high, color=colour, linewidth=2)
    ax.plot(value, place, 'o', color=colour)
    ax.annotate(
      f'{value:.2f}',
      (value, place),
      (0, 9),
      textcoords='offset points',
      ha='center',
      color=colour,
    )
  ax.set_yticks(range(len(overlaps)), list(overlaps))
  ax.set_ylim(-0.5, len(overlaps) - 0.4)
  ax.set_xlim(0, 1)
  ax.grid(axis='x')
  ax.set_xlabel('overlap with the target, held-out documents')
  ax.set_title('teacher-forced, temperature 1, with 95 % intervals')


def _efficiencies(ax, summary):
  """Block efficiency by gamma at temperature 1; dashed, what theory says."""
  for name, colour in COLOURS.items():
    cells = sorted(
      (
        cell
        for cell in summary['cells']
        if (cell['draft'], cell['temperature']) == (name, 1)
      ),
      key=lambda cell: cell['gamma'],
    )
    gammas = [cell['gamma'] for cell in cells]
    value, low, high = zip(
      *(cell['block_efficiency'] for cell in cells), strict=True
    )
    ax.plot(gammas, value, color=colour, marker='o', markersize=4)
    ax.vlines(gammas, low, high, color=colour, linewidth=1)
    ax.annotate(
      name.replace(', ', ',\n'),
      (gammas[-1], value[-1]),
      (8, 0),
      textcoords='offset points',
      va='center',
      color=colour,
    )
    smooth = np.arange(1, gammas[-1] + 1)
    expected = theory.expected_tokens(summary['overlap'][name][0], smooth)
    ax.plot(smooth, expected, color=colour, linestyle=(0, (4, 2)), linewidth=1)
  ax.set_xticks(gammas)
  ax.set_xlim(right=1.2 * gammas[-1])  # room for the names
  ax.grid(axis='y')
  ax.set_xlabel('gamma, drafts of a round')
  ax.set_ylabel('block efficiency, tokens a target call')
  ax.set_title('decoding at temperature 1; dashed: theory')
