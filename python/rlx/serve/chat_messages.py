"""Messages of a chat: checked, and in the form that chat templates read."""

from __future__ import annotations

import json
from typing import Any

from rlx.serve.json_text import type_name
from rlx.serve.request_error import RequestError, invalid
from rlx.serve.request_fields import RequestFields

_MOST_MESSAGES = 4096
_MOST_PARTS = 4096  # of the content of a message
_MOST_CALLS = 512  # in a message
_ROLES = ("system", "developer", "user", "assistant", "tool")
# Templates know the older name of this role only.
_OLDER_ROLES = {"developer": "system"}


def chat_messages(fields: RequestFields) -> list[dict[str, Any]]:
    """Return the messages of a request for `Tokenizer.apply_chat_template`.

    Raises:
        RequestError: A message is not valid, or has content other than text.
    """
    entries = fields.array("messages", least=1, most=_MOST_MESSAGES)
    if entries is None:
        raise fields.missing("messages")
    return [_message(fields.entry(f"messages[{i}]", entry)) for i, entry in enumerate(entries)]


def _message(fields: RequestFields) -> dict[str, Any]:
    role = fields.choice("role", _ROLES)
    if role is None:
        raise fields.missing("role")
    calls = _tool_calls(fields) if role == "assistant" else None
    content = _content(fields, role)
    if content is None and role != "assistant":
        raise fields.missing("content")
    if content is None and not calls:
        path = fields.path("content")
        problem = f"Invalid '{path}': a message of the assistant needs content or tool calls."
        raise invalid(problem, path, "missing_required_parameter")
    message: dict[str, Any] = {"role": _OLDER_ROLES.get(role, role), "content": content or ""}
    if calls:
        message["tool_calls"] = calls
    name = fields.text("name")
    if name:
        message["name"] = name
    if role == "tool":
        message["tool_call_id"] = fields.required_text("tool_call_id")
    fields.refuse("only text is supported.", "audio", "function_call")
    # Reasoning of an earlier answer, which some templates show.
    reasoning = fields.text("reasoning_content")
    if reasoning:
        message["reasoning_content"] = reasoning
    fields.ignore("refusal", "annotations")
    fields.check_unknown()
    return message


def _content(fields: RequestFields, role: str) -> str | None:
    value = fields.take("content")
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fields.wrong_type("content", "a string or an array of content parts", value)
    fields.array("content", most=_MOST_PARTS)
    return "\n".join(_text_part(fields.entry(f"content[{i}]", part), role) for i, part in enumerate(value))


def _text_part(part: RequestFields, role: str) -> str:
    kind = part.text("type")
    if kind is None:
        raise part.missing("type")
    names = {"text": "text"} | ({"refusal": "refusal"} if role == "assistant" else {})
    if kind not in names:
        raise part.unsupported("type", f"content of type '{kind[:50]}' is not supported; only text is.")
    text = part.text(names[kind])
    if text is None:
        raise part.missing(names[kind])
    part.ignore("prompt_cache_breakpoint", "cache_control")
    part.check_unknown()
    return text


def _tool_calls(fields: RequestFields) -> list[dict[str, Any]] | None:
    entries = fields.array("tool_calls", most=_MOST_CALLS)
    if not entries:
        return None
    return [_tool_call(fields.entry(f"tool_calls[{i}]", entry)) for i, entry in enumerate(entries)]


def _tool_call(fields: RequestFields) -> dict[str, Any]:
    if (fields.choice("type", ("function",)) or "function") != "function":
        raise fields.missing("type")
    function = fields.inner("function")
    if function is None:
        raise fields.missing("function")
    name = function.required_text("name")
    arguments = _arguments(function)
    function.check_unknown()
    call = {"id": fields.required_text("id"), "type": "function", "function": {"name": name, "arguments": arguments}}
    fields.ignore("index")
    fields.check_unknown()
    return call


def _arguments(function: RequestFields) -> dict[str, Any]:
    """Return the arguments of a call as an object: templates write it as JSON."""
    text = function.text("arguments")
    if text is None:
        raise function.missing("arguments")
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise _not_an_object(function, "it is not valid JSON") from None
    if not isinstance(value, dict):
        raise _not_an_object(function, f"it is {type_name(value)}")
    return value


def _not_an_object(function: RequestFields, reason: str) -> RequestError:
    name = function.path("arguments")
    return invalid(f"Invalid '{name}': expected the text of a JSON object, but {reason}.", name, "invalid_value")
