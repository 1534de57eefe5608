"""The figure of the batch sweep, from its summary.json."""

import json
import pathlib

from matplotlib import colors, ticker

from specdec.plots import style

MARKERS = 'os^DvP'  # by gamma


def draw(workdir):
  """Writes figures/batch_sweep.png: speedup by batch size.

  Points are measured, with 95 % intervals where there are several batches;
  lines are predicted with the costs of each batch size. A colour is a draft,
  and darker is a greater gamma. On the line of speedup 1 full diamonds mark
  where the measured speedup falls below it, hollow ones the predicted.
  """
  workdir = pathlib.Path(workdir)
  summary = json.loads((workdir / 'summary.json').read_text())
  sizes = summary['batch_sizes']
  with style.context():
    figure, (ax,) = style.panels(
      1, _title(summary), width_in=9.0, height_in=6.2
    )
    _frame(ax, sizes)
    handles, names = [], []
    looks = _looks(summary['crossings'])
    for number, found in enumerate(summary['crossings']):
      cells = [
        cell
        for cell in summary['cells']
        if all(cell[name] == found[name] for name in ('draft', 'gamma'))
      ]
      shift = 2 ** (0.06 * (number - (len(looks) - 1) / 2))
      handles.append(_series(ax, cells, looks[number], shift))
      _marks(ax, found, looks[number][0])
      names.append(
        f'{found["draft"]}, gamma {found["gamma"]}: pays'
        f' {limit(found["measured"], sizes)}; predicted:'
        f' {limit(found["predicted"], sizes)}'
      )
    figure.legend(
      handles, names, loc='outside lower left', fontsize=10.5,
      title='points: measured, 95 % intervals; lines: predicted with the costs'
      ' of each batch size', title_fontsize=10.5, alignment='left',
    )  # fmt: skip
    style.save(figure, workdir / 'figures' / 'batch_sweep.png')


def limit(crossing, sizes):
  """A crossing in words.

  Args:
    crossing: a dict with `batch_size` and `side`.
    sizes: batch sizes that were measured, ascending.
  """
  if crossing['side'] == 'above':
    return f'still at {sizes[-1]}'
  if crossing['side'] == 'below':
    return f'not even at {sizes[0]}'
  return f'up to {crossing["batch_size"]:.1f}'


def _title(summary):
  """The finding: the greatest batch at which some draft and gamma pays."""
  found = [crossing['measured'] for crossing in summary['crossings']]
  sizes = summary['batch_sizes']
  if any(crossing['side'] == 'above' for crossing in found):
    return f'Speculation still pays at a batch of {sizes[-1]}'
  limits = [x['batch_size'] for x in found if x['side'] is None]
  if limits:
    return f'Speculation pays up to a batch of {max(limits):.1f}'
  return f'Speculation does not pay at any batch from {sizes[0]} on'


def _frame(ax, sizes):
  ax.set_xscale('log', base=2)
  ax.xaxis.set_major_locator(ticker.FixedLocator(sizes))
  ax.xaxis.set_major_formatter(ticker.FormatStrFormatter('%d'))
  ax.xaxis.set_minor_locator(ticker.NullLocator())
  ax.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
  ax.set_xlabel('batch size, rows decoded together')
  ax.set_ylabel('speedup over the autoregressive loop')
  ax.grid(axis='y')
  ax.axhline(1, color=style.INK, linewidth=1)


def _looks(crossings):
  """Colour and marker of each series."""
  drafts = list(dict.fromkeys(x['draft'] for x in crossings))
  gammas = sorted({x['gamma'] for x in crossings})
  looks = []
  for found in crossings:
    hue = style.CYCLE[drafts.index(found['draft']) % len(style.CYCLE)]
    order = gammas.index(found['gamma'])
    pale = 0.8 * (1 - (order + 1) / len(gammas))
    colour = [(1 - pale) * part + pale for part in colors.to_rgb(hue)]
    looks.append((colour, MARKERS[order % len(MARKERS)]))
  return looks


def _series(ax, cells, look, shift):
  """The points and the line of one draft and gamma; what a legend shows."""
  colour, marker = look
  sizes = [cell['batch_size'] for cell in cells]
  curve = [cell['predicted']['measured_costs'] for cell in cells]
  ax.plot(sizes, curve, color=colour, linewidth=1.8)
  style.points(
    ax,
    [size * shift for size in sizes],
    [cell['speedup'] for cell in cells],
    colour,
    marker,
  )
  return ax.plot([], [], color=colour, marker=marker, linewidth=1.8)[0]


def _marks(ax, found, colour):
  """Diamonds where the speedups fall below 1."""
  for name, inside in (('predicted', 'white'), ('measured', colour)):
    size = found[name]['batch_size']
    if size is not None:
      ax.plot(
        size, 1, 'D', markersize=9, markerfacecolor=inside,
        markeredgecolor=colour, markeredgewidth=1.8, zorder=4,
      )  # fmt: skip
