"""Chat templates: messages to the text that an instruct model was trained on.

Templates are Jinja programs that ship with a checkpoint. They come from
strangers, so they run in a sandbox; what they may call is what Hugging Face's
`apply_chat_template` offers them.
"""

import datetime
import json

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specdec.base import UsageError

# Stands for an assistant's reply when the end of its turn is looked for.
_REPLY = 'REPLY'


class ChatTemplate:
  """A compiled template, with the names of the special tokens it may use."""

  def __init__(self, source, special_tokens):
    """Compiles a template.

    Args:
      source: the Jinja text.
      special_tokens: {'bos_token': text, 'eos_token': text, ...}.

    Raises:
      UsageError: the template is no valid Jinja.
    """
    environment = ImmutableSandboxedEnvironment(
      trim_blocks=True,
      lstrip_blocks=True,
      extensions=['jinja2.ext.loopcontrols'],
    )
    environment.filters['tojson'] = _to_json
    environment.globals['raise_exception'] = _raise
    environment.globals['strftime_now'] = _now
    self._special_tokens = special_tokens
    try:
      self._template = environment.from_string(source)
    except jinja2.TemplateError as error:
      raise UsageError(
        f'chat_template: {error}; give a checkpoint whose template is valid'
      ) from error

  def render(self, messages, add_generation_prompt=True):
    """Renders a conversation.

    Args:
      messages: [{'role': 'user', 'content': text}, ...].
      add_generation_prompt: does an assistant's turn begin at the end?

    Returns:
      The text, special tokens spelled out.

    Raises:
      UsageError: the template refuses the messages.
    """
    try:
      return self._template.render(
        messages=messages,
        add_generation_prompt=add_generation_prompt,
        tools=None,
        documents=None,
        **self._special_tokens,
      )
    except (jinja2.TemplateError, TypeError, KeyError, ValueError) as error:
      roles = [
        message.get('role') if isinstance(message, dict) else message
        for message in messages
      ]
      raise UsageError(
        f'messages with roles {roles}: the chat template refuses them'
        f' ({error}); give dicts with role and content in an order it accepts'
      ) from error

  def after_reply(self):
    """The text that follows an assistant's reply, '' when unknown."""
    messages = [
      {'role': 'user', 'content': 'x'},
      {'role': 'assistant', 'content': _REPLY},
    ]
    try:
      text = self.render(messages, add_generation_prompt=False)
    except UsageError:
      return ''
    return text.rpartition(_REPLY)[2]


def _to_json(value, ensure_ascii=False, indent=None, separators=None, **rest):
  # Jinja's own filter escapes for HTML.
  return json.dumps(
    value,
    ensure_ascii=ensure_ascii,
    indent=indent,
    separators=separators,
    **rest,
  )


def _raise(message):
  raise jinja2.TemplateError(message)


def _now(pattern):
  return datetime.datetime.now().strftime(pattern)
