"""The figures of a comparison, from its summary.json."""

import json
import pathlib

from specdec.plots import style

# The quantities that have a figure, where runs share them by gamma.
QUANTITIES = {
  'block_efficiency': 'block efficiency, tokens a target call',
  'tokens_per_round': 'tokens a round',
  'speedup': 'speedup over the autoregressive loop',
  'speculative_tokens_per_s': 'tokens per second',
}
MOST_PANELS = 4


def draw(folder):
  """Writes figures/NAME_by_gamma.png for each of QUANTITIES that is shared.

  A panel for each kind of cell, up to MOST_PANELS, evenly over all of them; in
  it a line for each run.

  Args:
    folder: of summary.json.

  Returns:
    The paths; none where the runs share no two gammas of a kind of cell.
  """
  folder = pathlib.Path(folder)
  summary = json.loads((folder / 'summary.json').read_text())
  paths = []
  for name, label in QUANTITIES.items():
    kinds = {}
    for line in summary['lines']:
      if line['figure'] == name and 'gamma' in line['cell']:
        rest = {k: v for k, v in line['cell'].items() if k != 'gamma'}
        kinds.setdefault(tuple(rest.items()), []).append(line)
    kinds = {kind: lines for kind, lines in kinds.items() if len(lines) > 1}
    if kinds:
      path = folder / 'figures' / f'{name}_by_gamma.png'
      _draw(path, summary['runs'], kinds, label)
      paths.append(path)
  return paths


def _draw(path, runs, kinds, label):
  num = min(len(kinds), MOST_PANELS)
  chosen = [list(kinds)[i * len(kinds) // num] for i in range(num)]
  with style.context():
    figure, axes = style.panels(
      num,
      ' and '.join(runs) if len(runs) == 2 else f'{len(runs)} runs',
      width_in=max(4.5 * num, 7),
      sharey=True,
    )
    for ax, kind in zip(axes, chosen, strict=True):
      lines = sorted(kinds[kind], key=lambda line: line['cell']['gamma'])
      _lines(ax, lines, len(runs))
      ax.set_title(
        ', '.join(v if isinstance(v, str) else f'{k} {v:g}' for k, v in kind)
      )
      ax.set_xlabel('gamma, drafts of a round')
      ax.set_xticks([line['cell']['gamma'] for line in lines])
      ax.grid(axis='y')
    axes[0].set_ylabel(label)
    figure.legend(
      axes[0].get_lines(), runs, loc='outside lower center', ncols=len(runs)
    )
    style.save(figure, path)


def _lines(ax, lines, num_runs):
  """A line a run, with intervals where there are some."""
  for run in range(num_runs):
    colour = style.CYCLE[run % len(style.CYCLE)]
    x = [line['cell']['gamma'] + 0.06 * run for line in lines]
    values = [line['values'][run] for line in lines]
    y = [value[0] if isinstance(value, list) else value for value in values]
    ax.plot(x, y, color=colour, marker='o', markersize=4)
    for at, value in zip(x, values, strict=True):
      if isinstance(value, list):
        ax.vlines(at, *value[1:], color=colour, linewidth=1)
