"""`/v1/completions` with OpenAI's client: the texts, numbers and forms are those of `LLM.generate`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import openai
import pytest

import rlx
from tests.serve.serving import RunningServer, ScriptedModel

PROMPT = "the man in the inn"
GREEDY: dict[str, Any] = {"model": "small", "temperature": 0}


def test_text(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.generate(PROMPT, max_tokens=9)
    result = client.completions.create(prompt=PROMPT, max_tokens=9, **GREEDY)
    (choice,) = result.choices
    assert (choice.text, choice.finish_reason, choice.index, choice.logprobs) == (
        expected.text,
        expected.finish_reason,
        0,
        None,
    )
    assert result.object == "text_completion" and result.model == "small" and result.id.startswith("cmpl-")
    assert result.system_fingerprint is not None and result.system_fingerprint.startswith("fp_")
    assert result.usage is not None
    assert result.usage.prompt_tokens == expected.prompt_tokens
    assert result.usage.completion_tokens == len(expected.tokens)
    assert result.usage.total_tokens == expected.prompt_tokens + len(expected.tokens)


def test_defaults_are_those_of_openai(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    """16 tokens, and a temperature of 1."""
    expected = model.generate(PROMPT, max_tokens=16, temperature=1.0, seed=5)
    assert client.completions.create(model="small", prompt=PROMPT, seed=5).choices[0].text == expected.text


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ({"top_p": 0.7, "seed": 3}, {"top_p": 0.7, "seed": 3}),
        ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
        ({"presence_penalty": 1.5, "frequency_penalty": -1, "seed": 1}, None),
        ({"extra_body": {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.3, "ignore_eos": True}, "seed": 2}, None),
        ({"extra_body": {"top_k": -1, "repeat_penalty": 1.3}, "seed": 2}, {"repetition_penalty": 1.3, "seed": 2}),
        ({"logit_bias": {"40": 100}, "seed": 2}, {"logit_bias": {40: 100.0}, "seed": 2}),
    ],
)
def test_sampling(
    client: openai.OpenAI, model: rlx.llm.LLM, names: dict[str, Any], options: dict[str, Any] | None
) -> None:
    if options is None:
        options = {**names, **names.get("extra_body", {})}
        options.pop("extra_body", None)
    expected = model.generate(PROMPT, max_tokens=8, temperature=1.0, **options)
    assert (
        client.completions.create(model="small", prompt=PROMPT, max_tokens=8, **names).choices[0].text == expected.text
    )


def test_stops(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    text = model.generate(PROMPT, max_tokens=20).text
    stop = text[4:6]
    expected = model.generate(PROMPT, max_tokens=20, stop=[stop])
    for given in (stop, [stop, "never"]):
        (choice,) = client.completions.create(prompt=PROMPT, max_tokens=20, stop=given, **GREEDY).choices
        assert (choice.text, choice.finish_reason) == (expected.text, "stop")


def test_prompts_and_choices(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    ids = model.tokenizer.encode("and the")
    prompts = [PROMPT, "and the"]
    expected = [c.text for p in prompts for c in model.generate(p, max_tokens=5, temperature=1.0, seed=4, n=2)]
    for given in (prompts, [model.tokenizer.encode(PROMPT), ids]):
        result = client.completions.create(model="small", prompt=given, max_tokens=5, seed=4, n=2)
        assert [choice.text for choice in result.choices] == expected
        assert [choice.index for choice in result.choices] == [0, 1, 2, 3]
        assert result.usage is not None and result.usage.prompt_tokens == len(ids) + len(model.tokenizer.encode(PROMPT))
    one = client.completions.create(prompt=ids, max_tokens=5, **GREEDY)
    assert one.choices[0].text == model.generate(ids, max_tokens=5).text


def test_log_probabilities(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.generate(PROMPT, max_tokens=6, temperature=1.0, seed=8, logprobs=3)
    assert expected.logprobs is not None
    (choice,) = client.completions.create(model="small", prompt=PROMPT, max_tokens=6, seed=8, logprobs=3).choices
    found = choice.logprobs
    assert found is not None and found.tokens and found.top_logprobs and found.text_offset and found.token_logprobs
    chosen = [row[token] for row, token in zip(expected.logprobs, expected.tokens, strict=True)]
    np.testing.assert_allclose(np.array(found.token_logprobs, float), chosen)
    assert [list(row.values()) for row in found.top_logprobs] == [list(row.values()) for row in expected.logprobs]
    for token, text in zip(expected.tokens, found.tokens, strict=True):
        data = model.tokenizer.decode_bytes([token])
        is_text = data.decode(errors="ignore").encode() == data
        assert text == (data.decode() if is_text else "bytes:" + "".join(f"\\x{byte:02x}" for byte in data))
    assert found.text_offset[0] == 0 and found.text_offset == sorted(found.text_offset)


def test_echoes_are_bounded(client: openai.OpenAI) -> None:
    """A small request does not make an answer of hundreds of megabytes."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(prompt=[[9] * 100] * 100, n=128, max_tokens=0, echo=True, **GREEDY)
    assert caught.value.param == "echo"


def test_echo(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    plain = client.completions.create(prompt=PROMPT, max_tokens=4, echo=True, **GREEDY).choices[0]
    assert plain.text == PROMPT + model.generate(PROMPT, max_tokens=4).text
    ids = model.tokenizer.encode(PROMPT)
    (choice,) = client.completions.create(prompt=ids[1:], max_tokens=0, echo=True, logprobs=1, **GREEDY).choices
    found = choice.logprobs
    assert choice.text == PROMPT and choice.finish_reason == "length"
    assert found is not None and found.token_logprobs and found.text_offset and found.tokens
    logits = model.logits(ids[1:]).astype(np.float64)
    scores = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    assert found.token_logprobs[0] is None
    expected = scores[np.arange(len(ids) - 2), ids[2:]]
    np.testing.assert_allclose(np.array(found.token_logprobs[1:], float), expected, atol=1e-5)
    assert [PROMPT[i : i + len(t)] for i, t in zip(found.text_offset, found.tokens, strict=True)] == found.tokens


def test_choices_are_rows_of_the_same_runs(model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices of all prompts are computed together, as far as there are rows, and their events alternate."""
    counts: list[int] = []
    prompts = [PROMPT, "and the", "a"]
    options: dict[str, Any] = {"max_tokens": 6, "seed": 4, "n": 2, "ignore_eos": True}
    with rlx.llm.load(model.weights.origin, cache="f32", threads=1, parallel=3) as several:
        expected = [c.text for p in prompts for c in several.generate(p, temperature=1.0, **options)]
        steps = several.engine.steps
        monkeypatch.setattr(several.engine, "steps", lambda pairs: counts.append(len(pairs)) or steps(pairs))
        with RunningServer(several, alias="small") as running:
            answer = running.post("completions", {"model": "small", "prompt": prompts, **options}).json()
            assert [choice["text"] for choice in answer["choices"]] == expected
            assert max(counts) == several.engine.text_rows == 3 and len(counts) < 2 * 6 + 6
            body = {"model": "small", "prompt": PROMPT, "stream": True, **options}
            events = running.post("completions", body).text.split("data: ")[1:-1]
    numbers = [json.loads(event)["choices"][0]["index"] for event in events]
    assert numbers != sorted(numbers) and {*numbers} == {0, 1}


def test_stream(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.generate(PROMPT, max_tokens=8, temperature=1.0, seed=4, n=2, logprobs=2)
    options: dict[str, Any] = {"stream_options": {"include_usage": True}, "logprobs": 2}
    chunks = list(
        client.completions.create(model="small", prompt=PROMPT, max_tokens=8, seed=4, n=2, stream=True, **options)
    )
    assert len({chunk.id for chunk in chunks}) == 1 and {chunk.object for chunk in chunks} == {"text_completion"}
    *parts, last = chunks
    assert last.choices == [] and last.usage is not None
    assert last.usage.completion_tokens == sum(len(completion.tokens) for completion in expected)
    assert all(chunk.usage is None for chunk in parts)
    for index, completion in enumerate(expected):
        own = [chunk.choices[0] for chunk in parts if chunk.choices[0].index == index]
        assert "".join(choice.text for choice in own) == completion.text
        assert [choice.finish_reason for choice in own][-1] == completion.finish_reason
        assert all(choice.finish_reason is None for choice in own[:-1])
        tokens = [token for choice in own if choice.logprobs for token in choice.logprobs.tokens or ()]
        assert len(tokens) == len(completion.tokens)


def test_events_of_a_stream(server: RunningServer) -> None:
    answer = server.post("completions", {**GREEDY, "prompt": PROMPT, "max_tokens": 3, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = answer.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""]
    assert all(block.startswith("data: {") and "\n" not in block for block in blocks[:-2])
    assert '"usage"' not in answer.text


def test_cached_tokens_are_reported(model: rlx.llm.LLM) -> None:
    scripted = ScriptedModel(model, "text", cached_tokens=2)
    with RunningServer(scripted) as running, running.client() as client:
        for has_stream in (False, True):
            options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if has_stream else {}
            result: Any = client.completions.create(model="tiny", prompt="the man", **options)
            usage = [*result][-1].usage if has_stream else result.usage
            assert usage.prompt_tokens_details.cached_tokens == 2
        assert "rlx_cached_tokens_total 4\n" in running.get("/metrics").text


def test_end_of_the_context(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    ids = [9] * (model.context - 2)
    extra = {"ignore_eos": True}
    result = client.completions.create(prompt=ids, max_tokens=50, extra_body=extra, **GREEDY)
    assert result.choices[0].finish_reason == "length"
    assert result.usage is not None and result.usage.completion_tokens == 2


def test_cached_tokens_are_those_of_the_model(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    ids = [9, 10, 11] * 30
    _, cached = ([*model.stream(ids, max_tokens=1)][-1].cached_tokens for _ in range(2))
    usage = client.completions.create(prompt=ids, max_tokens=1, **GREEDY).usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == cached


def test_echo_scores_a_prompt_once(server: RunningServer, model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its choices share the log-probabilities."""
    scored: list[int] = []
    original = model.logits

    def logits(tokens: Any) -> Any:
        scored.append(len(tokens))
        return original(tokens)

    monkeypatch.setattr(model, "logits", logits)
    prompts = ["the man", "in the inn"]
    body = {"model": "small", "prompt": prompts, "echo": True, "logprobs": 2, "n": 3, "max_tokens": 1, "seed": 1}
    choices = server.post("completions", body).json()["choices"]
    assert scored == [len(model.tokenizer.encode(prompt)) for prompt in prompts]
    for number, choice in enumerate(choices):
        first, begin = choices[number - number % 3], prompts[number // 3]
        assert choice["text"].startswith(begin)
        size = len(model.tokenizer.encode(begin)) - 1
        for name in ("tokens", "token_logprobs", "top_logprobs"):
            assert choice["logprobs"][name][:size] == first["logprobs"][name][:size]
        assert None not in choice["logprobs"]["token_logprobs"]
