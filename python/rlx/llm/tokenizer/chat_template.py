"""Chat templates: programs in Jinja that write a conversation as a prompt."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from jinja2 import Template

    from rlx.llm.tokenizer.template_sandbox import TemplateSandbox

Message = Mapping[str, Any]

_LONGEST_TEMPLATE = 1 << 17  # characters


def render(template: str, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
    """Return the text that a chat template writes for messages.

    The template runs in a sandbox, with limits of time and memory.

    Args:
        template: The text of the template.
        messages: The variable `messages`.
        variables: Other variables.

    Raises:
        Error: The template is not valid, raises an exception, or takes too much time or memory.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise Error(f"messages must be a list of dictionaries, got {short_repr(messages)}")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise Error(f"messages[{i}] must be a dictionary with 'role' and 'content', got {short_repr(message)}")
    sandbox = _sandbox()
    compiled = _compiled(template)
    plain = [dict(message) for message in messages]
    try:
        return sandbox.rendered(compiled, {**variables, "messages": plain})
    except Exception as problem:
        raise _failure(problem) from None


def _failure(problem: Exception) -> Error:
    if isinstance(problem, RecursionError):
        return Error("the chat template failed: it calls itself too often")
    if isinstance(problem, MemoryError):
        return Error("the chat template failed: it takes too much memory")
    text = str(problem) or type(problem).__name__
    return Error(f"the chat template failed: {text}", hint="see whether the messages fit the template of this model")


@functools.cache
def _sandbox() -> TemplateSandbox:
    import_package("jinja2", "a chat template")
    module = importlib.import_module("rlx.llm.tokenizer.template_sandbox")
    return module.TemplateSandbox()


@functools.lru_cache(maxsize=32)
def _compiled(template: str) -> Template:
    if len(template) > _LONGEST_TEMPLATE:
        raise Error(f"the chat template has {len(template)} characters, and at most {_LONGEST_TEMPLATE} are supported")
    try:
        return _sandbox().from_string(template)
    except Exception as problem:
        # A syntax error of Jinja has the line, other exceptions come from expressions that are nested too deeply.
        line = getattr(problem, "lineno", None)
        where = "" if line is None else f" in line {line}"
        text = "its expressions are nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise Error(f"the chat template is not valid{where}: {text}") from None
