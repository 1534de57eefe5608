"""From the cells of the ablation of losses to its figures and its table.

A cell is measured once a seed. Cells are compared seed by seed, since those of
one seed begin with the same draft and read the same data in the same order.
"""

from rich import table as rich_table

from specdec.experiments import intervals

# What each loss, and each source of prefixes, is compared with.
LOSS, SOURCE = 'forward_kl', 'text'
# Cells for reference: the draft before, and more of what it has learnt from.
UNTRAINED, LABELS = ('none', 'none'), ('cross_entropy', 'text')
FIGURES = ('overlap', 'block_efficiency')


def summarize(config, rows):
  """What summary.json holds.

  Args:
    config: dict of the experiment's fields.
    rows: of metrics.jsonl, the first of which tells of the corpus.

  Returns:
    A dict; `cells` has one entry for each loss, source and temperature. A
    figure is an intervals.Interval over seeds. FIGURE_above_loss is the paired
    difference to LOSS on the same prefixes, FIGURE_above_source that to SOURCE
    under the same loss; None where there is no such pair.
  """
  by_cell = {}  # (loss, source, temperature) -> figures, one dict a seed
  for row in rows[1:]:
    _, *names = row['cell']
    for figures in row['figures']:
      key = (*names, figures['temperature'])
      by_cell.setdefault(key, []).append(figures)
  cells = []
  for (loss, source, temperature), runs in by_cell.items():
    cell = {'loss': loss, 'prefixes': source, 'temperature': temperature}
    pairs = {
      'above_loss': (LOSS, source, temperature),
      'above_source': (loss, SOURCE, temperature),
    }
    for name in FIGURES:
      cell[name] = intervals.mean([run[name] for run in runs])
      for label, key in pairs.items():
        above = None
        if key in by_cell and by_cell[key] is not runs:
          both = zip(runs, by_cell[key], strict=True)
          above = intervals.mean([a[name] - b[name] for a, b in both])
        cell[f'{name}_{label}'] = above
    cells.append(cell)
  return {
    'seeds': config['seeds'],
    'gamma': config['gamma'],
    'distill_steps': config['distill_steps'],
    'mixture': config['source']['mixture'],
    'prompts': min(config['prompts'], rows[0]['held_out_documents']),
    **rows[0],
    'cells': cells,
    'seconds': sum(row['seconds'] for row in rows[1:]),
  }


def line(row):
  """One row, while the run goes on."""
  seed, loss, source = row['cell']
  figures = '  '.join(
    f'T {one["temperature"]:g}: {one["overlap"]:.3f},'
    f' {one["block_efficiency"]:.2f} tokens'
    for one in row['figures']
  )
  return f'seed {seed}  {loss} on {source}  {figures}  {row["seconds"]:.0f} s'


def report(console, summary):
  """Prints the table."""
  table = rich_table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
  for number, name in enumerate((
    'loss', 'prefixes', 'T', 'overlap', 'block\neff.', f'above\n{LOSS}',
    f'above\n{SOURCE}',
  )):  # fmt: skip
    table.add_column(name, justify='right' if number > 1 else 'left')
  for cell in summary['cells']:
    table.add_row(
      cell['loss'],
      cell['prefixes'],
      f'{cell["temperature"]:g}',
      _figure(cell['overlap'], '.3f'),
      f'{cell["block_efficiency"].value:.2f}',
      _figure(cell['overlap_above_loss'], '+.3f'),
      _figure(cell['overlap_above_source'], '+.3f'),
    )
  console.print(table)
  console.print(
    f"on the target's replies to {summary['prompts']} held-out prompts; block"
    f' efficiency at gamma {summary["gamma"]},\nas overlaps forecast it;'
    f' differences are of overlap; ± is 95 % over {summary["seeds"]} seeds'
  )


def _figure(interval, digits):
  """A mean and half of its interval."""
  if interval is None:
    return ''
  value, _, high = interval
  return f'{value:{digits}} ±{high - value:{digits.lstrip("+")}}'
