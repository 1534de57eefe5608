"""What a sweep does around its loops: models are read, rows are written.

Rows are written as they are found, so that an interrupted run goes on where it
was.
"""

from rich import progress

from specdec import metrics
from specdec.data import prompts as prompts_lib
from specdec.experiments import setup


def load(console, configs, prompts, max_new_tokens):
  """Reads a target and its drafts, and prompts in their tokens.

  Args:
    console: rich.console.Console.
    configs: {drafts.Draft: setup.DecodeConfig}, of one target and dtype.
    prompts: list of prompts.Prompt.
    max_new_tokens: budget of each.

  Returns:
    setup.Target, {drafts.Draft: setup.Decoding}, and a list of token ids a
    prompt.

  Raises:
    UsageError: a model cannot be used, or a prompt is empty or too long.
  """
  first = next(iter(configs.values()))
  with console.status(f'reading {first.target} and its drafts'):
    target = setup.load_target(first)
    decodings = {
      draft: setup.load_decoding(config, target)
      for draft, config in configs.items()
    }
  ids = [prompts_lib.encode(target.checkpoint.tokenizer, p) for p in prompts]
  context = min(d.target.max_length for d in decodings.values())
  setup.check_lengths(ids, max_new_tokens, context)
  return target, decodings, ids


def run(console, workdir, config, ids, find, total, summary_lib, plot):
  """Runs what is left of a sweep, and sums it up.

  Args:
    console: rich.console.Console.
    workdir: pathlib.Path.
    config: dict of the experiment's fields.
    ids: of the prompts.
    find: rows of metrics.jsonl that are there -> an iterator over the others.
    total: prompts of a whole run, each as often as it is decoded.
    summary_lib: module with `line` of a row, `summarize` and `report`.
    plot: module with `draw` of a workdir.

  Returns:
    The summary, as in summary.json.
  """
  # The file behind a name may change between two runs.
  digest = {'prompts_digest': prompts_lib.digest(ids)}
  workdir, rows = metrics.resume(workdir, config | digest)
  with progress.Progress(
    console=console, transient=True, disable=not console.is_terminal
  ) as bar:
    task = bar.add_task('prompts', total=total)
    for row in find(tuple(rows)):
      metrics.append(workdir, row)
      rows.append(row)
      bar.update(task, completed=sum(r.get('count', 0) for r in rows))
      bar.console.print(summary_lib.line(row))
  summary = summary_lib.summarize(config, rows)
  metrics.summarize(workdir, summary)
  plot.draw(workdir)
  summary_lib.report(console, summary)
  console.print(f'\n{workdir / "summary.json"}')
  return summary
