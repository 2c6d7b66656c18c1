"""The server with a model that verifies proposed tokens: parts that arrive after the end of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import rlx
from tests.llm.tiny_model import write_model
from tests.serve.serving import RunningServer, ScriptedModel, SequentialGroup

TEMPLATE = "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
# Without the end of the call, which is not held back, what follows it is content.
TEXT = '<tool_call>{"name": "add", "arguments": {}}the inn the inn'
TOOLS: Any = [{"type": "function", "function": {"name": "add"}}]


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rlx.llm.LLM]:
    changes = {"tokenizer.chat_template": TEMPLATE, "llama.context_length": 512}
    path = write_model(tmp_path_factory.mktemp("draft") / "tiny.gguf", **changes)
    with rlx.llm.load(path, cache="f32", threads=1, draft=rlx.llm.PromptLookup()) as loaded:
        yield loaded


class _LateGroup(SequentialGroup):
    """Texts that do not end when they are asked to, as if their tokens had been computed before."""

    def end(self, number: int) -> None:
        pass


class _LateModel(ScriptedModel):
    def stream_together(self, requests: Any) -> Any:
        return _LateGroup(self.stream(prompt, **options) for prompt, options in requests)


def _check_one_call(running: RunningServer, **more: Any) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": TEXT * 2}], "tools": TOOLS, **more}
    body["parallel_tool_calls"] = False
    (choice,) = running.post("chat/completions", body).json()["choices"]
    assert choice["finish_reason"] == "tool_calls" and not choice["message"]["content"]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": "{}"}

    lines = running.post("chat/completions", {**body, "stream": True}).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["tool_calls"]
    assert not "".join(choice["delta"].get("content", "") for choice in choices).strip()
    assert sum(len(choice["delta"].get("tool_calls", ())) for choice in choices) == 1


def test_the_end_after_one_call(drafting: rlx.llm.LLM) -> None:
    """The text goes on after the call, and it is in the prompt, so that several tokens are proposed there.

    White space in front of the call moves its end to another one of the tokens that are verified together.
    """
    with RunningServer(drafting) as running:
        for spaces in range(5):
            _check_one_call(running, grammar=f"root ::= {json.dumps(' ' * spaces + TEXT)}", temperature=0)


def test_parts_after_the_end(drafting: rlx.llm.LLM) -> None:
    with RunningServer(_LateModel(drafting, TEXT)) as running:
        _check_one_call(running)


def test_answers_with_a_draft(drafting: rlx.llm.LLM) -> None:
    """They are those of the model alone, for several choices, and in a stream."""
    prompt = "the inn and the man and the inn and the"
    expected = [drafting.generate(prompt, max_tokens=24, temperature=1, seed=seed).text for seed in (7, 8)]
    with RunningServer(drafting) as running, running.client() as client:
        options: Any = {"model": "tiny", "prompt": prompt, "max_tokens": 24, "seed": 7, "n": 2}
        assert [choice.text for choice in client.completions.create(**options).choices] == expected
        texts = ["", ""]
        for part in client.completions.create(**options, stream=True):
            texts[part.choices[0].index] += part.choices[0].text
        assert texts == expected


def test_proposed_tokens_are_counted(drafting: rlx.llm.LLM) -> None:
    expected = drafting.generate("the sea the sea", max_tokens=40)
    assert expected.accepted_tokens > 0
    with RunningServer(drafting) as running:
        running.post("completions", {"model": "tiny", "prompt": "the sea the sea", "max_tokens": 40, "temperature": 0})
        metrics = running.service.metrics
        counts = metrics.proposed_tokens.value(), metrics.accepted_tokens.value()
    assert counts == (expected.proposed_tokens, expected.accepted_tokens)
