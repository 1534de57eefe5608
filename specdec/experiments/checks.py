"""What a config's field may be; a bad one is refused in one line."""

from specdec.base import UsageError


def at_least(field, value, least):
  """Refuses a number under `least`."""
  require(field, value, value >= least, f'at least {least}')


def distinct(field, values, least=1):
  """Refuses a tuple with the same value twice, or of fewer than `least`."""
  if len(set(values)) < len(values) or len(values) < least:
    wanted = 'one or more' if least else 'none, or more'
    raise UsageError(f'{field} = {values}: give {wanted}, all different')


def one_of(field, value, choices):
  """Refuses a value that is not among `choices`."""
  names = ', '.join(map(str, choices))
  require(field, value, value in choices, f'one of {names}')


def require(field, value, good, rule):
  """Refuses a value that is not good; `rule` says what it must be."""
  if not good:
    raise UsageError(f'{field} = {value!r}: it must be {rule}')
