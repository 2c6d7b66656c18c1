"""Calls of tools: the forms of models, in one piece and in parts, and the answers that clients receive."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rlx
from rlx.serve.tool_calls import ToolCall, ToolCallParser
from rlx.serve.tool_format import HERMES, LLAMA, MISTRAL, PLAIN, ToolFormat, tool_format
from tests.serve.serving import RunningServer, ScriptedModel, SharedModel
from tests.serve.test_errors import error_of

NAMES = ("get_weather", "add")
CALL = '{"name": "get_weather", "arguments": {"city": "Zürich \\"}{\\" x"}}'
ARGUMENTS = {"city": 'Zürich "}{" x'}
SECOND = '{"name": "add", "arguments": {"a": [1, {"b": 2}]}}'
BOTH = [("get_weather", ARGUMENTS), ("add", {"a": [1, {"b": 2}]})]
HERMES_TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
)

CASES: list[tuple[ToolFormat, str, str, list[tuple[str, Any]]]] = [
    (HERMES, f"<tool_call>\n{CALL}\n</tool_call>", "", BOTH[:1]),
    (HERMES, f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{SECOND}</tool_call>\n", "I look.\n", BOTH),
    (HERMES, f"<tool_call>{CALL}</tool_call> Done.", "Done.", BOTH[:1]),
    (HERMES, f"<tool_call>{CALL}", "", BOTH[:1]),
    (HERMES, "<tool_call>{not JSON}</tool_call> a", "<tool_call>{not JSON}</tool_call> a", []),
    (HERMES, '<tool_call>{"name": "other", "arguments": {}}', '<tool_call>{"name": "other", "arguments": {}}', []),
    (HERMES, '<tool_call>{"name": ["add"], "arguments": {}}', '<tool_call>{"name": ["add"], "arguments": {}}', []),
    (HERMES, '<tool_call>{"name": "add", "arguments": 3}', '<tool_call>{"name": "add", "arguments": 3}', []),
    (HERMES, '<tool_call>{"name": "add", "argum', '<tool_call>{"name": "add", "argum', []),
    (
        HERMES,
        '<tool_call>{"name": "add", "arguments": {"a": NaN}}',
        '<tool_call>{"name": "add", "arguments": {"a": NaN}}',
        [],
    ),
    (HERMES, "a < b <tool", "a < b <tool", []),
    (HERMES, f"<tool_call>{'x' * 300}", f"<tool_call>{'x' * 300}", []),
    (HERMES, f"<tool_call>{'[' * 5000}", f"<tool_call>{'[' * 5000}", []),
    (HERMES, '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("add", {"a": 1})]),
    (HERMES, '<tool_call>{"name": "add"}</tool_call>', "", [("add", {})]),
    (LLAMA, CALL.replace("arguments", "parameters"), "", BOTH[:1]),
    (LLAMA, f"\n{CALL.replace('arguments', 'parameters')}; {SECOND.replace('arguments', 'parameters')}", "", BOTH),
    (LLAMA, f"<|python_tag|>{CALL.replace('arguments', 'parameters')}<|eom_id|>", "", BOTH[:1]),
    (LLAMA, '{"name": "Bob"}', '{"name": "Bob"}', []),
    (LLAMA, f"The answer: {CALL}", f"The answer: {CALL}", []),
    (MISTRAL, f"[TOOL_CALLS][{CALL}, {SECOND}]", "", BOTH),
    (MISTRAL, f"[{CALL}]", "", BOTH[:1]),
    (MISTRAL, "[TOOL_CALLS]add[ARGS]" + '{"a": 1}' + "[TOOL_CALLS]add{}", "", [("add", {"a": 1}), ("add", {})]),
    (MISTRAL, 'Well. [TOOL_CALLS]add[CALL_ID]123456789[ARGS]{"a": 1}', "Well. ", [("add", {"a": 1})]),
    (MISTRAL, "[1] is a source", "[1] is a source", []),
    (PLAIN, CALL, "", BOTH[:1]),
    (PLAIN, "plain text", "plain text", []),
]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_forms(size: int) -> None:
    """The result does not depend on how the text arrives."""
    for form, text, content, calls in CASES:
        parser = ToolCallParser(form, NAMES)
        found: list[str | ToolCall] = []
        for begin in range(0, len(text), size):
            found += parser.push(text[begin : begin + size])
        found += parser.flush()
        assert "".join(part for part in found if isinstance(part, str)) == content, (form.name, text)
        made = [(part.name, json.loads(part.arguments)) for part in found if isinstance(part, ToolCall)]
        assert made == calls, (form.name, text)
        assert parser.count == len(calls)


def test_content_is_not_held_back() -> None:
    parser = ToolCallParser(HERMES, NAMES)
    assert "".join(map(str, parser.push("The sum"))) == "The sum"
    assert "".join(map(str, parser.push(" is <to"))) == " is "
    assert "".join(map(str, parser.push("day>"))) == "<today>"


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS] [TOOL_CALLS]", MISTRAL),
        ('Respond {"name": function name, "parameters": values}', LLAMA),
        ("{{ tools | tojson }}", PLAIN),
        ("{% for m in messages %}{% endfor %}", None),
    ],
)
def test_the_template_tells_the_form(template: str, form: ToolFormat | None) -> None:
    assert tool_format(template) is form


def test_ids() -> None:
    assert len(MISTRAL.new_id()) == 9 and HERMES.new_id().startswith("call_") and HERMES.new_id() != HERMES.new_id()


def _tools(*names: str) -> Any:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in names]


MESSAGES: Any = [{"role": "user", "content": "Hello"}]
TEXT = f"I look.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{SECOND}</tool_call>"


@pytest.mark.parametrize("tool_model", [HERMES_TEMPLATE], indirect=True)
def test_answers(tool_model: rlx.llm.LLM) -> None:
    scripted = ScriptedModel(tool_model, TEXT)
    with RunningServer(scripted) as running, running.client() as client:
        options: Any = {"model": "tools", "messages": MESSAGES, "tools": _tools(*NAMES)}
        (choice,) = client.chat.completions.create(**options).choices
        assert choice.finish_reason == "tool_calls" and choice.message.content == "I look.\n"
        calls: Any = choice.message.tool_calls
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == BOTH
        assert [call.type for call in calls] == ["function"] * 2 and len({call.id for call in calls}) == 2

        chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**options, stream=True)]
        assert "".join(chunk.delta.content or "" for chunk in chunks) == "I look.\n"
        deltas: Any = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
        assert [call.index for call in deltas] == [0, 1] and all(call.id for call in deltas)
        assert [(call.function.name, json.loads(call.function.arguments)) for call in deltas] == BOTH
        assert chunks[-1].finish_reason == "tool_calls"

        (choice,) = client.chat.completions.create(**options, parallel_tool_calls=False).choices
        assert len(choice.message.tool_calls or ()) == 1 and choice.finish_reason == "tool_calls"
        (choice,) = client.chat.completions.create(**options, tool_choice="none").choices
        assert choice.message.tool_calls is None and choice.message.content == TEXT and choice.finish_reason == "stop"
        assert all("schema" not in options for options in scripted.options)


@pytest.mark.parametrize("tool_model", [HERMES_TEMPLATE], indirect=True)
def test_required_calls_have_a_schema(tool_model: rlx.llm.LLM) -> None:
    scripted = ScriptedModel(tool_model, CALL)
    with RunningServer(scripted) as running, running.client() as client:
        options: Any = {"model": "tools", "messages": MESSAGES, "tools": _tools(*NAMES)}
        named: Any = {"type": "function", "function": {"name": "get_weather"}}
        for mode in ("required", named):
            (choice,) = client.chat.completions.create(**options, tool_choice=mode).choices
            calls: Any = choice.message.tool_calls
            assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == BOTH[:1]
            assert choice.message.content is None and choice.finish_reason == "tool_calls"
    both, one = (options["schema"] for options in scripted.options)
    assert [schema["properties"]["name"]["const"] for schema in both["anyOf"]] == list(NAMES)
    assert one["properties"]["name"] == {"const": "get_weather"} and one["required"] == ["name", "arguments"]
    assert one["properties"]["arguments"]["properties"] == {"city": {"type": "string"}}


@pytest.mark.parametrize("tool_model", ["[TOOL_CALLS]{{ tools }}"], indirect=True)
def test_control_tokens_without_text(tool_model: rlx.llm.LLM) -> None:
    """The text of the token in front of calls is hidden if it is a control token. Its id is in the part."""
    ids = tool_model.tokenizer.vocabulary.ids
    ids[MISTRAL.begin] = 3  # type: ignore[index]
    scripted = ScriptedModel(tool_model, 'add{"a": 1}')
    scripted.changes = {"tokens": [3, 9]}
    with RunningServer(scripted) as running, running.client() as client:
        (choice,) = client.chat.completions.create(model="tools", messages=MESSAGES, tools=_tools(*NAMES)).choices
        calls: Any = choice.message.tool_calls
        assert [(call.function.name, call.function.arguments) for call in calls] == [("add", '{"a":1}')]
        assert len(calls[0].id) == 9


@pytest.mark.parametrize(
    "tool_model",
    [
        "{% for m in messages %}{{ m.role }}"
        "{% for c in m.tool_calls %}{{ c.function.arguments.a }}{% endfor %}{% endfor %} tools"
    ],
    indirect=True,
)
def test_calls_in_messages(tool_model: rlx.llm.LLM) -> None:
    """Templates receive the arguments as an object."""
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1234}'}}
    messages: Any = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "5"},
    ]
    expected = tool_model.tokenizer.encode("userassistant1234tool tools", add_special_tokens=False)
    with RunningServer(ScriptedModel(tool_model, "ok")) as running, running.client() as client:
        result = client.chat.completions.create(model="tools", messages=messages)
        assert result.usage is not None and result.usage.prompt_tokens == len(expected)
        messages[1]["tool_calls"][0]["function"]["arguments"] = "{"
        answer = running.post("chat/completions", {"model": "tools", "messages": messages})
        assert answer.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize("tool_model", ["{% if tools %}a{% endif %}"], indirect=True)
def test_required_calls_follow_the_parameters(tool_model: rlx.llm.LLM, model: rlx.llm.LLM) -> None:
    """Also those with references, which are relative to the parameters. The model has random weights."""
    parameters = {
        "$defs": {"Place": {"enum": ["sea", "land"]}},
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/Place"}},
        "required": ["place"],
        "additionalProperties": False,
    }
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in NAMES]
    named: Any = {"type": "function", "function": {"name": "add", "strict": True, "parameters": parameters}}
    ids = tool_model.tokenizer.vocabulary.ids
    bias: Any = {str(ids[character]): -100 for character in ("Ġ", "Ċ")}  # white space may fill the answer
    with RunningServer(SharedModel(model, tool_model.tokenizer)) as running, running.client() as client:
        for given in (tools, [named]):
            result = client.chat.completions.create(
                model="tiny", messages=MESSAGES, tools=given, tool_choice="required", max_tokens=100, seed=1,
                logit_bias=bias,
            )  # fmt: skip
            calls: Any = result.choices[0].message.tool_calls
            assert json.loads(calls[0].function.arguments)["place"] in ("sea", "land")
            assert calls[0].function.name in NAMES and result.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("tool_model", ["{% if tools %}a{% endif %}"], indirect=True)
def test_schemas_of_other_libraries(tool_model: rlx.llm.LLM, model: rlx.llm.LLM) -> None:
    """Schema generators write `$schema` and `$id` at the root. Data that looks like a reference stays data."""
    data = {"$ref": "#/a"}
    parameters = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/place",
        "id": "place",
        "$defs": {"Place": {"const": data}},
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/Place"}, "$ref": {"enum": [data]}, "id": {"const": 1}},
        "required": ["place", "$ref", "id"],
        "additionalProperties": False,
    }
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in NAMES]
    no_space = {str(tool_model.tokenizer.id(token)): -100 for token in ("Ġ", "Ċ")}  # the text is short then
    with RunningServer(SharedModel(model, tool_model.tokenizer)) as running, running.client() as client:
        for offered in (tools, tools[:1]):
            options: Any = {"model": "tiny", "messages": MESSAGES, "tools": offered, "logit_bias": no_space, "seed": 3}
            result = client.chat.completions.create(tool_choice="required", **options)
            calls: Any = result.choices[0].message.tool_calls
            assert json.loads(calls[0].function.arguments) == {"place": data, "$ref": data, "id": 1}


WRONG_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"a": {"$id": "b"}}}, "schema #/properties/a: the keyword '$id'"),
    ({"properties": {"a": {"$ref": "#/b"}}}, "schema #/properties/a/$ref: the schema has no '#/b'"),
    ({"properties": {"a": {"$ref": "b"}}}, "schema #/properties/a/$ref: expected a reference into the schema itself"),
    ({"propertees": {}}, "'propertees'"),
    ({"$defs": {"a": 3}}, "schema #/$defs/a: expected an object"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "infinitely large"),
]


@pytest.mark.parametrize("tool_model", ["{% if tools %}a{% endif %}"], indirect=True)
def test_wrong_parameters(tool_model: rlx.llm.LLM) -> None:
    """An error names the tool, and the place in its schema as the client wrote it."""
    with RunningServer(ScriptedModel(tool_model, CALL)) as running:
        for parameters, message in WRONG_PARAMETERS:
            tools = [*_tools("add"), {"type": "function", "function": {"name": "f", "parameters": parameters}}]
            body = {"model": "tools", "messages": MESSAGES, "tools": tools, "tool_choice": "required"}
            answer = running.post("chat/completions", body)
            error = error_of(answer)
            assert (answer.status_code, error["param"]) == (400, "tools[1].function.parameters"), parameters
            assert message in error["message"], error


@pytest.mark.parametrize("tool_model", ["a{% if tools %}b{% endif %}"], indirect=True)
def test_parameters_that_the_grammar_refuses(tool_model: rlx.llm.LLM, model: rlx.llm.LLM) -> None:
    """Mistakes that are found when the text begins."""
    function = {"name": "f", "parameters": {"properties": {"a": {"type": "string", "pattern": "("}}}}
    body = {"model": "tiny", "messages": MESSAGES, "tools": [{"type": "function", "function": function}]}
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": function["parameters"]}}
    with RunningServer(SharedModel(model, tool_model.tokenizer)) as running:
        for more, param in (
            ({"tool_choice": "required"}, "tools"),
            ({"tools": None, "response_format": schema}, "response_format"),
        ):
            answer = running.post("chat/completions", body | more)
            assert (answer.status_code, error_of(answer)["param"]) == (400, param)


MISTRAL_TEMPLATE = (
    "[TOOL_CALLS]{{ tools }}{% for m in messages %}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids must have 9 characters') }}{% endif %}"
    "{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize("tool_model", [MISTRAL_TEMPLATE], indirect=True)
def test_calls_are_valid_in_the_next_request(tool_model: rlx.llm.LLM) -> None:
    """Templates of Mistral refuse ids of another length."""
    with RunningServer(ScriptedModel(tool_model, CALL)) as running, running.client() as client:
        named: Any = {"type": "function", "function": {"name": "get_weather"}}
        for mode in ("required", named):
            options: Any = {"model": "tools", "messages": MESSAGES, "tools": _tools(*NAMES), "tool_choice": mode}
            message = client.chat.completions.create(**options).choices[0].message
            assert message.tool_calls
            answer: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "5"}
            options["messages"] = [*MESSAGES, message.model_dump(exclude_none=True), answer]
            assert client.chat.completions.create(**options).choices[0].finish_reason == "tool_calls"
