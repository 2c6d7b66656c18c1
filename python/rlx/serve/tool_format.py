"""Tools of a chat, and the forms in which models write calls of tools."""

from __future__ import annotations

import re
import secrets
import string
from dataclasses import dataclass, replace
from typing import Any

from rlx.llm.grammar.schema import checked_schema, embedded_schema
from rlx.serve.request_error import invalid
from rlx.serve.request_fields import RequestFields
from rlx.support.errors import Error

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_TOOLS = 512
_ID_CHARACTERS = string.ascii_letters + string.digits


@dataclass(frozen=True)
class ToolFormat:
    """The form in which a model writes calls of tools.

    Attributes:
        name: The name of the form.
        begin: The text in front of a call, or "" for a model that starts its answer with it.
        end: The text after a call, which may be absent.
        arguments: The name of the arguments in the JSON of a call.
        opening: Characters at the start of an answer that is a call without the text in front of it.
        id_length: The number of characters of the ids of calls; 0 for ids in OpenAI's form.
    """

    name: str
    begin: str
    end: str
    arguments: str = "arguments"
    opening: str = ""
    id_length: int = 0

    def new_id(self) -> str:
        """Return the id of a call."""
        size = self.id_length or 24
        text = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(size))
        return text if self.id_length else f"call_{text}"


HERMES = ToolFormat("hermes", "<tool_call>", "</tool_call>")
# Templates of Mistral accept ids of 9 characters only. The control token in front of the calls may not be in the text.
MISTRAL = ToolFormat("mistral", "[TOOL_CALLS]", "", opening="[", id_length=9)
LLAMA = ToolFormat("llama", "<|python_tag|>", "<|eom_id|>", "parameters", opening="{")
PLAIN = ToolFormat("plain", "", "", opening="{[")


def tool_format(template: str) -> ToolFormat | None:
    """Return the form that a chat template describes, or None if it does not use tools."""
    if HERMES.begin in template:
        return HERMES
    if MISTRAL.begin in template:
        return MISTRAL
    if LLAMA.begin in template or '"parameters"' in template:
        return LLAMA
    return PLAIN if re.search(r"\btools\b", template) else None


@dataclass(frozen=True)
class ToolChoice:
    """The tools of a request.

    Attributes:
        tools: The tools as the client wrote them, for the template.
        names: Their names.
        format: The form of calls.
        schema: A schema that the answer must have, or None if the model may answer without a call.
        is_single: Whether an answer has at most one call.
    """

    tools: list[dict[str, Any]]
    names: frozenset[str]
    format: ToolFormat
    schema: dict[str, Any] | None
    is_single: bool


def tool_choice(fields: RequestFields, template: str | None) -> ToolChoice | None:
    """Return the tools of a request; None if there are none, or the client excludes calls.

    Raises:
        RequestError: A tool is not valid, or the model does not support tools.
    """
    entries = fields.array("tools", most=_MOST_TOOLS)
    tools = [_tool(fields.entry(f"tools[{i}]", entry)) for i, entry in enumerate(entries or ())]
    mode, forced = _mode(fields)
    may_be_parallel = fields.flag("parallel_tool_calls")
    if not tools:
        if mode not in (None, "none", "auto"):
            raise invalid("'tool_choice' is only allowed when 'tools' are specified.", "tool_choice")
        return None
    names = frozenset(tool["function"]["name"] for tool in tools)
    if forced is not None and forced not in names:
        raise invalid(f"Tool choice '{forced[:100]}' not found in 'tools' parameter.", "tool_choice", "invalid_value")
    if mode == "none":
        return None
    form = tool_format(template or "")
    if form is None:
        raise fields.unsupported("tools", "the chat template of this model does not describe tools.")
    if mode != "required":
        _refuse_strict(fields, tools)
        return ToolChoice(tools, names, form, None, may_be_parallel is False)
    wanted = {i: tool["function"] for i, tool in enumerate(tools) if forced in (None, tool["function"]["name"])}
    for i, function in wanted.items():
        _check_parameters(fields.path(f"tools[{i}].function.parameters"), function["parameters"])
    schema = _call_schema(list(wanted.values()), form)
    return ToolChoice(tools, names, replace(PLAIN, id_length=form.id_length), schema, True)


def _mode(fields: RequestFields) -> tuple[str | None, str | None]:
    """Return how tools are chosen, and the name of the one that is required."""
    value = fields.take("tool_choice")
    if value is None or isinstance(value, str):
        return fields.choice("tool_choice", ("none", "auto", "required")), None
    choice = fields.entry("tool_choice", value)
    choice.choice("type", ("function",))
    function = choice.inner("function")
    if function is None:
        raise choice.missing("function")
    name = function.required_text("name")
    function.check_unknown()
    choice.check_unknown()
    return "required", name


def _tool(fields: RequestFields) -> dict[str, Any]:
    if fields.choice("type", ("function",)) is None:
        raise fields.missing("type")
    function = fields.inner("function")
    if function is None:
        raise fields.missing("function")
    name = function.required_text("name")
    if not _NAME.fullmatch(name):
        message = f"Invalid '{function.path('name')}': expected 1 to 64 letters, digits, '_' and '-'."
        raise invalid(message, function.path("name"), "invalid_value")
    entries: dict[str, Any] = {"name": name}
    description, parameters = function.text("description"), function.mapping("parameters")
    if description is not None:
        entries["description"] = description
    entries["parameters"] = {"type": "object", "properties": {}} if parameters is None else parameters
    if function.flag("strict"):
        entries["strict"] = True
    function.check_unknown()
    fields.check_unknown()
    return {"type": "function", "function": entries}


def _refuse_strict(fields: RequestFields, tools: list[dict[str, Any]]) -> None:
    for i, tool in enumerate(tools):
        if tool["function"].get("strict"):
            name = fields.path(f"tools[{i}].function.strict")
            message = f"Unsupported value for '{name}': arguments follow their schema only with tool_choice 'required'."
            raise invalid(message, name, "unsupported_value")


def _check_parameters(name: str, schema: dict[str, Any]) -> None:
    """Check the schema of one tool, so that the places in messages are those that the client wrote."""
    try:
        checked_schema(schema)
    except Error as problem:
        raise invalid(f"Invalid '{name}': {problem.message}", name, "invalid_value") from None


def _call_schema(functions: list[dict[str, Any]], form: ToolFormat) -> dict[str, Any]:
    """Return the schema of a call of one of some functions."""
    is_single = len(functions) == 1
    calls: list[dict[str, Any]] = []
    for number, function in enumerate(functions):
        pointer = f"#/properties/{form.arguments}" if is_single else f"#/anyOf/{number}/properties/{form.arguments}"
        properties = {
            "name": {"const": function["name"]},
            form.arguments: embedded_schema(function["parameters"], pointer),
        }
        required = ["name", form.arguments]
        calls.append({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
    return calls[0] if is_single else {"anyOf": calls}
