"""The figure of the pipeline experiment, from its summary.json."""

import json
import pathlib

from specdec.plots import style

MARKERS = {'held_out': 'o', 'report': 's'}
COLOURS = {'held_out': style.BLUE, 'report': style.VERMILLION}


def draw(workdir):
  """Writes figures/pipeline.png.

  On the left the learning curve under the mass of the head; then what each
  draft commits, and what that gains in time. Hollow marks are temperature 0.
  """
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  points = summary['curve']
  with style.context():
    figure, (curve, blocks, speeds) = style.panels(
      3,
      f'Distilling on its own rollouts: overlap {points[0][1]:.2f} to'
      f' {points[-1][1]:.2f}',
      width_in=15.0,
    )
    _curve(curve, points, summary['limits']['held_out'].get('head'))
    _by_draft(blocks, summary['measured'], 'block_efficiency')
    blocks.set_title('block efficiency, 95 % intervals')
    blocks.set_xlabel('tokens a target call')
    _by_draft(speeds, summary['measured'], 'speedup')
    speeds.axvline(1, color=style.MUTED, linewidth=1)
    speeds.set_title('measured speedup')
    speeds.set_xlabel('over the autoregressive loop')
    handles = [
      speeds.plot([], [], MARKERS[name], color=COLOURS[name])[0]
      for name in summary['measured']
    ]
    figure.legend(
      handles,
      [f'{name.replace("_", " ")} prompts' for name in summary['measured']],
      loc='outside lower right', ncols=2, fontsize=10,
      title='hollow: temperature 0, full: 1', title_fontsize=10,
    )  # fmt: skip
    style.save(figure, workdir / 'figures' / 'pipeline.png')


def _curve(ax, points, head):
  tokens, overlaps = zip(*points, strict=True)
  ax.plot(tokens, overlaps, marker='o', markersize=4, color=style.BLUE)
  if head is not None:
    ax.axhline(head[0], color=style.MUTED, linestyle=(0, (4, 2)), linewidth=1)
    ax.annotate(
      'mass of the head', (0, head[0]), (4, -14), textcoords='offset points',
      color=style.MUTED,
    )  # fmt: skip
  ax.set_ylim(0, 1)
  ax.grid(axis='y')
  ax.set_title('overlap on held-out replies')
  ax.set_xlabel('tokens seen')


def _by_draft(ax, measured, figure):
  """A row a draft; a mark for each set of prompts and temperature."""
  labels = list(dict.fromkeys(c['draft'] for x in measured.values() for c in x))
  for shift, (name, cells) in zip((-0.15, 0.15), measured.items(), strict=True):
    for cell in cells:
      if cell[figure] is None:
        continue
      found = cell[figure]
      value, *span = found if isinstance(found, list) else [found]
      warm = cell['temperature'] > 0
      y = labels.index(cell['draft']) + shift + (0.06 if warm else -0.06)
      colour = COLOURS[name]
      if span:
        ax.hlines(y, *span, color=colour, linewidth=1)
      ax.plot(
        value, y, MARKERS[name], color=colour, markersize=6,
        markerfacecolor=colour if warm else 'white',
      )  # fmt: skip
  ax.set_yticks(range(len(labels)), labels)
  ax.set_ylim(len(labels) - 0.5, -0.5)
