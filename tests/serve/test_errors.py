"""Mistakes of requests: the status, and the error in OpenAI's form with the parameter's name."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import openai
import pytest

import rlx
from tests.serve.serving import FailingModel, RunningServer, ScriptedModel

COMPLETION: dict[str, Any] = {"model": "small", "prompt": "a", "max_tokens": 1}
CHAT: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the error of an answer, whose form is checked."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str) and body["error"]["message"]
    return body["error"]


WRONG_COMPLETIONS = [
    ({"prompt": None}, "prompt", "missing_required_parameter"),
    ({"prompt": 3}, "prompt", "invalid_type"),
    ({"prompt": []}, "prompt", "empty_array"),
    ({"prompt": ["a", 1]}, "prompt[1]", "invalid_type"),
    ({"prompt": [1, "a"]}, "prompt[1]", "invalid_type"),
    ({"prompt": [1, 2.0]}, "prompt[1]", "invalid_type"),
    ({"prompt": [1, 10**6]}, "prompt", "invalid_value"),
    ({"prompt": [[1], []]}, "prompt[1]", "invalid_type"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"temperature": 2.5}, "temperature", "decimal_above_max_value"),
    ({"temperature": -1}, "temperature", "decimal_below_min_value"),
    ({"temperature": True}, "temperature", "invalid_type"),
    ({"top_p": 1.5}, "top_p", "decimal_above_max_value"),
    ({"max_tokens": -1}, "max_tokens", "integer_below_min_value"),
    ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
    ({"max_tokens": 10**30}, "max_tokens", "integer_above_max_value"),
    ({"n": 0}, "n", "integer_below_min_value"),
    ({"n": 1000}, "n", "integer_above_max_value"),
    ({"seed": 2**70}, "seed", "integer_above_max_value"),
    ({"seed": -1}, "seed", "integer_below_min_value"),
    ({"seed": "1"}, "seed", "invalid_type"),
    ({"stop": ""}, "stop", "empty_string"),
    ({"stop": ["a", ""]}, "stop[1]", "empty_string"),
    ({"stop": 3}, "stop", "invalid_type"),
    ({"stop": ["a"] * 17}, "stop", "array_above_max_length"),
    ({"logprobs": 21}, "logprobs", "integer_above_max_value"),
    ({"logprobs": True}, "logprobs", "invalid_type"),
    ({"echo": 1}, "echo", "invalid_type"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"stream_options": {"include_usage": True}}, "stream_options", None),
    ({"stream": True, "stream_options": {"a": 1}}, "stream_options.a", "unknown_parameter"),
    ({"stream": True, "stream_options": []}, "stream_options", "invalid_type"),
    ({"logit_bias": {"a": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"999999": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1", "decimal_out_of_range"),
    ({"logit_bias": {"1": "x"}}, "logit_bias.1", "invalid_type"),
    ({"logit_bias": [1]}, "logit_bias", "invalid_type"),
    ({"best_of": 3}, "best_of", "unsupported_value"),
    ({"suffix": "end"}, "suffix", "unsupported_value"),
    ({"top_k": -2}, "top_k", "integer_below_min_value"),
    ({"presence_penalty": 3}, "presence_penalty", "decimal_above_max_value"),
    ({"guided_json": {}}, "guided_json", "unknown_parameter"),
    ({"x" * 1000: 1}, "x" * 100 + "…", "unknown_parameter"),
    ({"user": 3}, "user", "invalid_type"),
    ({"store": "a"}, "store", "invalid_type"),
    ({"metadata": []}, "metadata", "invalid_type"),
    ({"model": None}, "model", "missing_required_parameter"),
    ({"model": 3}, "model", "invalid_type"),
]
TOOL = {"type": "function", "function": {"name": "f"}}
WRONG_CHATS = [
    ({"messages": None}, "messages", "missing_required_parameter"),
    ({"messages": []}, "messages", "empty_array"),
    ({"messages": ["a"]}, "messages[0]", "invalid_type"),
    ({"messages": [{"content": "a"}]}, "messages[0].role", "missing_required_parameter"),
    ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "invalid_type"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]", "invalid_type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
        "messages[0].content[0].type",
        "unsupported_value",
    ),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id", "missing_required_parameter"),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "user", "content": "a", "mood": 1}]}, "messages[0].mood", "unknown_parameter"),
    ({"top_logprobs": 2}, "top_logprobs", None),
    ({"logprobs": 2}, "logprobs", "invalid_type"),
    ({"max_completion_tokens": 5}, "max_tokens", None),
    ({"tool_choice": "required"}, "tool_choice", None),
    ({"tools": [{"type": "web"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [TOOL]}, "tools", "unsupported_value"),  # the template has no tools
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter"),
    ({"functions": [{}]}, "functions", "unsupported_value"),
    ({"modalities": ["audio"]}, "modalities", "unsupported_value"),
    ({"reasoning_effort": "high"}, "reasoning_effort", "unsupported_value"),
    ({"prompt": "a"}, "prompt", "unknown_parameter"),
]


@pytest.mark.parametrize(
    ("route", "base", "wrong"),
    [("completions", COMPLETION, WRONG_COMPLETIONS), ("chat/completions", CHAT, WRONG_CHATS)],
)
def test_parameters(server: RunningServer, route: str, base: dict[str, Any], wrong: list[Any]) -> None:
    assert server.post(route, base).status_code == 200
    for changes, param, code in wrong:
        answer = server.post(route, base | changes)
        error = error_of(answer)
        found = (answer.status_code, error["param"], error["code"], error["type"])
        assert found == (400, param, code, "invalid_request_error"), changes


def test_parameters_that_change_nothing(server: RunningServer) -> None:
    extra = {"user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "seed": None, "stop": None}
    for route, base in (("completions", COMPLETION), ("chat/completions", CHAT)):
        more = {"suffix": None, "best_of": 1} if route == "completions" else {"tools": [], "modalities": ["text"]}
        assert server.post(route, {**base, **extra, **more}).status_code == 200


def test_context_length(server: RunningServer, model: rlx.llm.LLM) -> None:
    prompt = [9] * (model.context + 1)
    for route, body, param in (
        ("completions", {**COMPLETION, "prompt": prompt}, "prompt"),
        ("completions", {**COMPLETION, "prompt": "x" * 300, "stream": True}, "prompt"),
        ("chat/completions", {**CHAT, "messages": [{"role": "user", "content": "x" * 300}]}, "messages"),
    ):
        answer = server.post(route, body)
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert str(model.context) in error["message"] and "resulted in" in error["message"]
    assert "129" in error_of(server.post("completions", {**COMPLETION, "prompt": prompt}))["message"]


def test_models(server: RunningServer, client: openai.OpenAI) -> None:
    (listed,) = client.models.list().data
    assert (listed.id, listed.object) == ("small", "model")
    assert client.models.retrieve("small") == listed
    assert server.post("completions", {**COMPLETION, "model": "tiny"}).status_code == 200  # the name of the file
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other/model")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="does not exist") as caught:
        client.completions.create(model="other", prompt="a")
    assert caught.value.code == "model_not_found"


def test_paths_and_methods(server: RunningServer) -> None:
    for path in ("/nothing", "/v1/models/", "/v1//models", "/v1/chat"):
        answer = server.get(path)
        assert answer.status_code == 404 and error_of(answer)["type"] == "invalid_request_error", path
    answer = server.get("/v1/completions")
    assert answer.status_code == 405 and error_of(answer)["code"] == "method_not_supported"
    assert answer.headers["allow"] == "POST"
    assert httpx.post(f"{server.url}/v1/models").status_code == 405
    assert httpx.head(f"{server.url}/health").status_code == 200
    assert server.get("/health").json() == {"status": "ok"}


def test_keys(model: rlx.llm.LLM) -> None:
    with RunningServer(ScriptedModel(model, "text"), api_keys=["first", "second"]) as running:
        for key in ("first", "second"):
            with running.client(api_key=key) as client:
                assert client.completions.create(model="tiny", prompt="a").choices[0].text == "text"
        with running.client(api_key="third") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.completions.create(model="tiny", prompt="a")
        assert caught.value.code == "invalid_api_key"
        for path in ("/v1/models", "/metrics", "/nothing"):
            for header in (
                {},
                {"Authorization": "Basic first"},
                {"Authorization": "Bearer"},
                {"Authorization": "first"},
            ):
                answer = running.get(path, headers=header)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
                error_of(answer)
            raw = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer f\u00efrst\r\n\r\n"
            assert running.raw(raw.encode("latin-1")).startswith(b"HTTP/1.1 401")
        assert running.get("/health").status_code == 200 and running.get("/").status_code == 200
        assert running.get("/metrics", headers={"Authorization": "bearer first"}).status_code == 200
        # With keys, any name may refer to this server.
        assert running.get("/", headers={"Host": "example.com"}).status_code == 200


def test_host_names(model: rlx.llm.LLM) -> None:
    """A page of another host cannot use the server by a name that refers to this machine."""
    with RunningServer(ScriptedModel(model, "text"), hosts=["Models.example"]) as running:
        for name in ("localhost", "LOCALHOST:80", "127.0.0.1:80", "[::1]:80", "192.168.0.7", "models.example:8080"):
            assert running.get("/v1/models", headers={"Host": name}).status_code == 200, name
        for name in ("example.com", "localhost.example.com", "127.0.0.1.example.com:80", "[::1].a", ""):
            answer = running.get("/v1/models", headers={"Host": name})
            assert answer.status_code == 403 and error_of(answer)["code"] == "host_not_allowed", name
        assert running.get("/health", headers={"Host": "example.com"}).status_code == 200


def test_other_origins(model: rlx.llm.LLM, server: RunningServer) -> None:
    headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    answer = httpx.options(f"{server.url}/v1/completions", headers=headers)
    assert answer.status_code == 405 and "access-control-allow-origin" not in answer.headers
    with RunningServer(ScriptedModel(model, "text"), cors=["https://a.example"], api_keys=["key"]) as running:
        answer = httpx.options(f"{running.url}/v1/completions", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        # Browsers refuse a request with a header that the answer does not allow. OpenAI's client sends these.
        for name in ("authorization", "content-type", "x-stainless-lang", "x-stainless-retry-count"):
            wanted = {**headers, "Access-Control-Request-Headers": name}
            answer = httpx.options(f"{running.url}/v1/completions", headers=wanted)
            allowed = answer.headers["access-control-allow-headers"].lower().replace(" ", "").split(",")
            assert answer.status_code == 200 and name in allowed, name
        answer = httpx.options(f"{running.url}/v1/completions", headers={**headers, "Origin": "https://b.example"})
        assert "access-control-allow-origin" not in answer.headers


def test_failures_are_not_shown(model: rlx.llm.LLM, caplog: pytest.LogCaptureFixture) -> None:
    with RunningServer(FailingModel(model)) as running:
        answer = running.post("completions", {**COMPLETION, "model": "tiny"})
        assert answer.status_code == 500 and error_of(answer)["type"] == "server_error"
        assert "secret" not in answer.text
        with running.client() as client, pytest.raises(openai.APIError, match="had an error") as caught:
            list(client.completions.create(model="tiny", prompt="a", stream=True))
        assert "secret" not in str(caught.value)
    assert "a secret of the server" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parallel": 0}, "parallel must be an integer from 1 to 256"),
        ({"queue": -1}, "queue must be"),
        ({"timeout": 0}, "timeout must be a number of seconds"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"body_limit": "a"}, "body_limit must be"),
        ({"api_keys": [""]}, "api_keys must be a list of texts"),
        ({"api_keys": ["ключ"]}, "printable ASCII"),
        ({"alias": ""}, "alias must be a text"),
    ],
)
def test_settings(model: rlx.llm.LLM, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        rlx.serve.application(model, **settings)
    with pytest.raises(rlx.Error, match="did you mean 'parallel'"):
        rlx.serve.application(model, paralel=2)  # type: ignore[call-arg]
    with pytest.raises(rlx.Error, match="expected a language model"):
        rlx.serve.application("model.gguf")  # type: ignore[arg-type]


ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63, 10**300, 0.5, -1e300, 1e-320, "", "a", "\x00", "\u202e", "x" * 3000),
    *([], [0], [None], [[]], [[[]]], ["a", 0], [{}], {}, {"": 0}, {"a": {"a": []}}, {"type": "function"}),
    *({"type": []}, {"type": "json_schema", "json_schema": {}}, {"0": 1}, [{"role": "user", "content": [{}]}]),
    *([{"role": [], "content": "a"}], [{"role": "user", "content": "a", "tool_calls": [{}]}]),
    *([{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "a", "arguments": "[" * 5000}}]}],),
    *([{"type": "function", "function": {"name": "a", "parameters": []}}], [{"type": "function", "function": []}]),
]
COMMON = (
    *(
        "model",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "stream",
    ),
    *(
        "stream_options",
        "top_k",
        "min_p",
        "repetition_penalty",
        "repeat_penalty",
        "ignore_eos",
        "grammar",
        "user",
        "odd",
        "",
    ),
)
NAMES = {
    "completions": (*COMMON, "prompt", "max_tokens", "logprobs", "echo", "best_of", "suffix"),
    "chat/completions": (
        *(
            *COMMON,
            "messages",
            "max_tokens",
            "max_completion_tokens",
            "logprobs",
            "top_logprobs",
            "tools",
            "tool_choice",
        ),
        *(
            "parallel_tool_calls",
            "response_format",
            "chat_template_kwargs",
            "functions",
            "modalities",
            "reasoning_effort",
        ),
    ),
    "embeddings": ("model", "input", "encoding_format", "dimensions", "user"),
}


def test_odd_values_are_mistakes_of_the_client(model: rlx.llm.LLM) -> None:
    scripted = ScriptedModel(model, "text")
    scripted.embed = lambda *_, **__: np.ones((1, 64), np.float32)  # type: ignore[method-assign]
    bases = {"completions": COMPLETION, "chat/completions": CHAT, "embeddings": {"input": "a"}}
    with RunningServer(scripted, alias="small") as running, httpx.Client(base_url=f"{running.url}/v1/") as client:
        for route, names in NAMES.items():
            for name in names:
                for value in ODD_VALUES:
                    answer = client.post(route, json={**bases[route], "model": "small", name: value})
                    assert answer.status_code in (200, 400, 404), (route, name, value, answer.text)
                    if answer.status_code != 200:
                        error_of(answer)
                    assert '"server_error"' not in answer.text, (route, name, value)
