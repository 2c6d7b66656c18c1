"""`/v1/chat/completions` with OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import openai
import pytest

import rlx
from tests.serve.serving import RunningServer, ScriptedModel

MESSAGES: Any = [{"role": "system", "content": "be"}, {"role": "user", "content": "the end"}]
GREEDY: dict[str, Any] = {"model": "small", "temperature": 0}


def test_answer(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.chat(MESSAGES, max_tokens=7)
    result = client.chat.completions.create(messages=MESSAGES, max_completion_tokens=7, **GREEDY)
    (choice,) = result.choices
    assert result.object == "chat.completion" and result.id.startswith("chatcmpl-") and result.model == "small"
    assert choice.message.role == "assistant" and choice.message.content == expected.text
    assert choice.finish_reason == expected.finish_reason and choice.logprobs is None
    assert choice.message.tool_calls is None and choice.message.refusal is None
    assert result.usage is not None and result.usage.prompt_tokens == expected.prompt_tokens
    assert result.usage.completion_tokens == len(expected.tokens)


def test_choices_have_seeds_of_their_own(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.chat(MESSAGES, max_tokens=6, temperature=1.0, seed=7, n=3)
    result = client.chat.completions.create(model="small", messages=MESSAGES, max_tokens=6, seed=7, n=3)
    assert [choice.message.content for choice in result.choices] == [c.text for c in expected]


def test_content_parts_and_roles(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    parts: Any = [
        {"role": "developer", "content": [{"type": "text", "text": "be"}]},
        {"role": "user", "content": [{"type": "text", "text": "the"}, {"type": "text", "text": "end"}], "name": "a"},
    ]
    expected = model.chat([MESSAGES[0], {"role": "user", "content": "the\nend"}], max_tokens=4)
    result = client.chat.completions.create(messages=parts, max_tokens=4, **GREEDY)
    assert result.choices[0].message.content == expected.text


def test_stream(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.chat(MESSAGES, max_tokens=9, temperature=1.0, seed=3)
    chunks = list(
        client.chat.completions.create(
            model="small",
            messages=MESSAGES,
            max_tokens=9,
            seed=3,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    first, *parts, end, usage = chunks
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len({c.id for c in chunks}) == 1
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in parts) == expected.text
    assert all(chunk.choices[0].finish_reason is None and chunk.usage is None for chunk in (first, *parts))
    assert end.choices[0].finish_reason == expected.finish_reason and end.choices[0].delta.content is None
    assert usage.choices == [] and usage.usage is not None
    assert usage.usage.completion_tokens == len(expected.tokens)


@pytest.mark.parametrize("has_stream", [False, True])
def test_log_probabilities(client: openai.OpenAI, model: rlx.llm.LLM, has_stream: bool) -> None:
    expected = model.chat(MESSAGES, max_tokens=6, temperature=1.0, seed=8, logprobs=2)
    options: dict[str, Any] = {"model": "small", "max_tokens": 6, "seed": 8, "logprobs": True, "top_logprobs": 2}
    result: Any = client.chat.completions.create(messages=MESSAGES, stream=has_stream, **options)
    choices = [chunk.choices[0] for chunk in result] if has_stream else [result.choices[0]]
    entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
    assert [bytes(entry.bytes) for entry in entries] == [model.tokenizer.decode_bytes([t]) for t in expected.tokens]
    chosen = [row[token] for row, token in zip(expected.logprobs or [], expected.tokens, strict=True)]
    np.testing.assert_allclose([entry.logprob for entry in entries], chosen)
    for entry, row in zip(entries, expected.logprobs or [], strict=True):
        assert [top.logprob for top in entry.top_logprobs] == list(row.values())[:2]


@pytest.mark.parametrize("tool_model", ["<s>{{ more }}"], indirect=True)
def test_template_options(tool_model: rlx.llm.LLM) -> None:
    scripted = ScriptedModel(tool_model, "yes")
    with RunningServer(scripted) as running:
        body = {"model": "tools", "messages": MESSAGES}
        answer = running.post("chat/completions", {**body, "chat_template_kwargs": {"more": "1234"}})
        assert answer.json()["usage"]["prompt_tokens"] == 5  # with the token that starts a text
        for name in ("messages", "self", "tools"):
            refused = running.post("chat/completions", {**body, "chat_template_kwargs": {name: []}})
            assert refused.status_code == 400 and refused.json()["error"]["param"] == "chat_template_kwargs"


@pytest.mark.parametrize("tool_model", ["{{ raise_exception('no such turn') }}"], indirect=True)
def test_exceptions_of_templates(tool_model: rlx.llm.LLM) -> None:
    with RunningServer(ScriptedModel(tool_model, "yes")) as running:
        answer = running.post("chat/completions", {"model": "tools", "messages": MESSAGES, "stream": True})
        assert answer.status_code == 400 and "no such turn" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}, "strict": True}},
            {"type": "array"},
        ),
    ],
)
def test_response_formats(model: rlx.llm.LLM, form: dict[str, Any], schema: dict[str, Any] | None) -> None:
    scripted = ScriptedModel(model, "{}")
    with RunningServer(scripted) as running:
        answer = running.post("chat/completions", {"model": "tiny", "messages": MESSAGES, "response_format": form})
        assert answer.status_code == 200
    assert scripted.options[0].get("schema") == schema


def test_answers_follow_their_schema(server: RunningServer, client: openai.OpenAI) -> None:
    properties = {"place": {"enum": ["sea", "land"]}}
    schema = {"type": "object", "properties": properties, "required": ["place"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    result = client.chat.completions.create(model="small", messages=MESSAGES, response_format=form, seed=1)
    assert json.loads(result.choices[0].message.content or "")["place"] in ("sea", "land")
    form["json_schema"]["schema"] = {"type": "nothing"}
    body = {"model": "small", "messages": MESSAGES, "response_format": form, "stream": True}
    answer = server.post("chat/completions", body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "response_format"
