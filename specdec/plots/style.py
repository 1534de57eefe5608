"""One look for every figure: palette, type, frame, and how it is saved.

The colours are those of Okabe and Ito, https://jfly.uni-koeln.de/color/, which
stay apart under every common colour blindness. A series is named beside its
line rather than in a legend; a title says what the reader should see.
"""

import pathlib

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

INK = '#1B2530'
MUTED = '#6B7783'
FAINT = '#D9DEE3'
BLUE = '#0072B2'
VERMILLION = '#D55E00'
GREEN = '#009E73'
ORANGE = '#E69F00'
SKY = '#56B4E9'
PURPLE = '#CC79A7'
# For series without an order; `shades` is for those with one.
CYCLE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY)

_SHADES = LinearSegmentedColormap.from_list(
  'shades', ['#7DBBDD', BLUE, '#062B45']
)
_RC = {
  'axes.axisbelow': True,
  'axes.edgecolor': MUTED,
  'axes.labelcolor': INK,
  'axes.labelpad': 7,
  'axes.labelsize': 12,
  'axes.linewidth': 0.8,
  'axes.prop_cycle': matplotlib.cycler(color=CYCLE),
  'axes.spines.right': False,
  'axes.spines.top': False,
  'axes.titlelocation': 'left',
  'axes.titlepad': 12,
  'axes.titlesize': 13,
  'figure.constrained_layout.h_pad': 0.12,
  'figure.constrained_layout.use': True,
  'figure.constrained_layout.w_pad': 0.14,
  'figure.dpi': 160,
  'figure.facecolor': 'white',
  'figure.titlesize': 16,
  'figure.titleweight': 'bold',
  'font.family': 'DejaVu Sans',
  'font.size': 12,
  'grid.color': FAINT,
  'grid.linewidth': 0.8,
  'legend.frameon': False,
  'lines.linewidth': 2,
  'lines.solid_capstyle': 'round',
  'text.color': INK,
  'xtick.color': MUTED,
  'xtick.labelcolor': INK,
  'xtick.labelsize': 11,
  'ytick.color': MUTED,
  'ytick.labelcolor': INK,
  'ytick.labelsize': 11,
}


def context():
  """The style's scope: figures are made and saved within it."""
  return matplotlib.rc_context(_RC)


def panels(columns, title, width_in=11.0, height_in=5.0, **kwargs):
  """A titled figure of panels in one row.

  Args:
    columns: number of panels.
    title: one line, the figure's finding.
    width_in: inches.
    height_in: inches.
    **kwargs: of `Figure.subplots`.

  Returns:
    The figure, and a list of its axes.
  """
  figure = Figure(figsize=(width_in, height_in))
  FigureCanvasAgg(figure)
  figure.suptitle(title, x=0.012, ha='left')
  axes = figure.subplots(1, columns, squeeze=False, **kwargs)
  return figure, list(axes[0])


def points(ax, places, found, colour, marker='o'):
  """Figures as marks, with the interval of each that has one.

  Args:
    ax: of a figure.
    places: of each on the x axis.
    found: (value, low, high) of each; low and high may be None.
    colour: of all.
    marker: of all.
  """
  values = [value for value, _, _ in found]
  ax.plot(places, values, marker, color=colour, markersize=5)
  for place, (_, low, high) in zip(places, found, strict=True):
    if low is not None:
      ax.vlines(place, low, high, color=colour, linewidth=1.5)


def save(figure, path):
  """Writes a PNG, and makes its folder."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path)


def shades(num):
  """`num` colours from light to dark, for series in an order."""
  steps = [i / max(num - 1, 1) for i in range(num)]
  return [matplotlib.colors.to_hex(_SHADES(step)) for step in steps]
