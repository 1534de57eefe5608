"""Decodes prompts twice, autoregressively and speculatively, and compares.

Both loops run on the same prompts, batch by batch in turn, so that drift of
the machine hits both alike. Tokens per second are those of the decode loops;
prefill, which both share, is timed apart, and compilation is left out.
"""

import dataclasses

import jax
import numpy as np
from rich import console as rich_console
from rich import progress

from specdec import metrics, sampling
from specdec.data import prompts as prompts_lib
from specdec.decode import autoregressive, speculative, stats
from specdec.experiments import checks, report, setup, timed

# Two tokens whose log-probabilities differ by less are a tie: products of
# other shapes round otherwise.
TIE = 1e-3


@dataclasses.dataclass(frozen=True)
class Config:
  """The experiment's fields, checked.

  Attributes:
    decode: models, drafter, rule, sampling.
    prompts: JSON Lines file; '' is the built-in set.
    max_prompts: how many prompts, 0 is all.
    max_new_tokens: budget of each prompt.
    seed: of every draw.
    baseline: run the autoregressive loop too?
  """

  decode: setup.DecodeConfig
  prompts: str
  max_prompts: int
  max_new_tokens: int
  seed: int
  baseline: bool

  def __post_init__(self):
    checks.at_least('max_prompts', self.max_prompts, 0)
    checks.at_least('max_new_tokens', self.max_new_tokens, 1)

  @property
  def comparable(self):
    """Should both loops emit the same tokens?"""
    rule = self.decode.rules[self.decode.rule]
    return self.decode.greedy or rule.shares_noise

  @classmethod
  def of(cls, config):
    """Reads an ml_collections config."""
    fields = config.to_dict()
    fields.pop('experiment')
    own = {
      field.name: fields.pop(field.name)
      for field in dataclasses.fields(cls)
      if field.name != 'decode'
    }
    fields |= (
      fields.pop('sampling') | fields.pop('ngram') | fields.pop('stopping')
    )
    return cls(setup.DecodeConfig(**fields), **own)


def run(config, workdir):
  """Runs the experiment; see configs/generate.py."""
  config = Config.of(config)
  prompts = prompts_lib.load(config.prompts, config.max_prompts or None)
  console = rich_console.Console(highlight=False, soft_wrap=True)
  with console.status(f'reading {config.decode.target}'):
    decoding = setup.load_decoding(config.decode)
  ids = [prompts_lib.encode(decoding.tokenizer, p) for p in prompts]
  setup.check_lengths(ids, config.max_new_tokens, decoding.target.max_length)
  workdir = metrics.start(workdir, dataclasses.asdict(config))

  loops = _loops(config, decoding, max(map(len, ids)) + config.max_new_tokens)
  batches = timed.batches(ids, config.decode.batch_size, config.max_new_tokens)
  with console.status('compiling'):
    compile_s = sum(timed.compile_s(run, batches[0]) for run in loops.values())
  rows, results = [], []
  with _progress(console) as bar:
    task = bar.add_task('decoding', total=len(ids))
    for batch in batches:
      result = {name: run(batch) for name, run in loops.items()}
      results.append(result)
      for offset in range(batch.count):
        row = _describe(config, decoding, prompts, batch, offset, result)
        metrics.append(workdir, row)
        report.show_text(bar.console, row)
        rows.append(row)
        bar.advance(task)
  summary = _summarize(config, rows, results, compile_s)
  summary |= {'num_params': decoding.num_params._asdict()}
  metrics.summarize(workdir, summary)
  report.show_tables(console, rows, summary)
  console.print(f'\n{workdir / "summary.json"}')


def _loops(config, decoding, max_len):
  """The loops to compare, by name."""
  rule = config.decode.rules[config.decode.rule]
  decoders = {}
  if config.baseline:
    # With shared noise the two loops agree token for token.
    draw = sampling.race if rule.shares_noise else sampling.categorical
    decoders['autoregressive'] = autoregressive.build(decoding.target, draw)
  decoders['speculative'] = speculative.build(
    decoding.target, decoding.drafter, rule
  )
  return {
    name: timed.loop(
      decoder,
      decoding.weights,
      config.decode.sampling(config.decode.batch_size),
      config.seed,
      decoding.stop_tokens,
      max_len,
    )
    for name, decoder in decoders.items()
  }


def _describe(config, decoding, prompts, batch, offset, result):
  """One row of metrics.jsonl."""
  ours = result['speculative']
  output = ours.outputs[offset]
  row = {
    'row': batch.start + offset,
    'kind': prompts[batch.start + offset].kind,
    'prompt': prompts[batch.start + offset].messages[-1]['content'],
    'prompt_tokens': len(batch.ids[offset]),
    'tokens': len(output['tokens']),
    'finish_reason': output['finish_reason'],
    **{
      name: int(getattr(ours.counters, name)[offset])
      for name in ('rounds', 'drafted', 'accepted', 'committed')
    },
    'token_ids': output['tokens'],
    'pieces': decoding.tokenizer.decode_pieces(output['tokens']),
    'from_draft': output['drafted'],
    'logprobs': output['logprobs'],
  }
  if len(batch.ids) == 1:
    row['speculative_s'] = ours.decode_s
  if 'autoregressive' in result:
    plain = result['autoregressive']
    if len(batch.ids) == 1:
      row['autoregressive_s'] = plain.decode_s
    row['autoregressive_tokens'] = len(plain.outputs[offset]['tokens'])
    if config.comparable:
      row['differs'], row['tie'] = compare(plain.outputs[offset], output)
  return row


def compare(plain, ours):
  """Does an output differ, and is a tie the reason?

  Args:
    plain: the autoregressive output, see stats.outputs.
    ours: the speculative one.

  Returns:
    Whether their tokens differ, and whether the first difference is between
    two tokens that the target likes equally, up to rounding.
  """
  pairs = zip(plain['tokens'], ours['tokens'], strict=False)
  for at, (expected, token) in enumerate(pairs):
    if expected != token:
      gap = abs(plain['logprobs'][at] - ours['logprobs'][at])
      return True, gap < TIE
  return len(plain['tokens']) != len(ours['tokens']), False


def _summarize(config, rows, results, compile_s):
  """What summary.json holds."""
  ours = [result['speculative'] for result in results]
  total = stats.totals([result.counters for result in ours])
  decode_s = sum(result.decode_s for result in ours)
  calls = np.sum([result.calls for result in ours], 0)
  summary = {
    'target': config.decode.target,
    'drafter': config.decode.drafter,
    'draft': config.decode.draft if config.decode.drafter != 'ngram' else None,
    'rule': config.decode.rule,
    'lossless': config.decode.rules[config.decode.rule].lossless,
    'gamma': config.decode.gamma,
    'temperature': config.decode.temperature,
    'top_k': config.decode.top_k,
    'top_p': config.decode.top_p,
    'min_p': config.decode.min_p,
    'batch_size': config.decode.batch_size,
    'rows': len(rows),
    'tokens': total['committed'],
    **total,
    'target_calls_by_tokens_fed': {
      fed: int(count) for fed, count in enumerate(calls) if count
    },
    'speculative_tokens_per_s': stats.rate(total['committed'], decode_s),
    'autoregressive_tokens_per_s': None,
    'speedup': None,
    'mismatches': None,
    'greedy_mismatches': None,
    'ties': None,
    'prefill_s': sum(result.prefill_s for result in ours),
    'decode_s': decode_s,
    'compile_s': compile_s,
    'device': jax.devices()[0].device_kind,
  }
  if config.baseline:
    plain = [result['autoregressive'] for result in results]
    tokens = sum(row['autoregressive_tokens'] for row in rows)
    speed = stats.rate(tokens, sum(result.decode_s for result in plain))
    summary['autoregressive_tokens_per_s'] = speed
    summary['speedup'] = stats.rate(summary['speculative_tokens_per_s'], speed)
    if config.comparable:
      summary['mismatches'] = sum(row['differs'] for row in rows)
      summary['ties'] = sum(row['tie'] for row in rows)
    if config.decode.greedy:
      summary['greedy_mismatches'] = summary['mismatches']
  summary['kinds'] = {
    kind: report.kind_figures([row for row in rows if row['kind'] == kind])
    for kind in dict.fromkeys(row['kind'] for row in rows)
  }
  return summary


def _progress(console):
  return progress.Progress(
    progress.TextColumn('{task.description}'),
    progress.BarColumn(),
    progress.MofNCompleteColumn(),
    progress.TimeRemainingColumn(),
    console=console,
    transient=True,
    disable=not console.is_terminal,
  )
