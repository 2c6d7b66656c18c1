"""Hostile clients: each receives an error or is disconnected, and the server answers the next request."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import rlx
from rlx.serve import server as server_module
from rlx.serve.json_text import parse_object
from rlx.serve.request_error import RequestError
from rlx.serve.request_memory import RequestMemory
from rlx.serve.settings import ServerSettings
from tests.serve.serving import (
    HEADERS,
    GatedModel,
    RunningServer,
    ScriptedModel,
    SharedModel,
    read_all,
    wait_until,
)
from tests.serve.test_errors import COMPLETION, error_of


@pytest.fixture(autouse=True)
def _answers_afterwards(server: RunningServer) -> Iterator[None]:
    yield
    server.wait_for_idle()
    assert server.post("completions", COMPLETION).status_code == 200


def _head(length: int | None, *more: str) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = ["POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", size, *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


DEEP = 200
BAD_BODIES = [
    (b"", "could not parse"),
    (b"{", "could not parse"),
    (b'{"model": "small", }', "could not parse"),
    (b"[]", "must be a JSON object, but it is an array"),
    (b"null", "but it is null"),
    (b"3", "but it is an integer"),
    (b'"a"', "but it is a string"),
    (b'{"a": NaN}', "NaN is not JSON"),
    (b'{"a": -Infinity}', "-Infinity is not JSON"),
    (b'{"a": 1e999}', "too large"),
    (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
    (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    (b"\xff\xfe{\x00}\x00", "not UTF-8"),
    (b'{"a": "\\ud800"}', "surrogate"),
    (b'{"\\udc00": 1}', "surrogate"),
    (b'{"a": [[["\\udc00"]]]}', "surrogate"),
    (b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}", "inside each other"),
    (b'{"a": ' + b'{"a": ' * DEEP + b"1" + b"}" * DEEP + b"}", "inside each other"),
    (b"[" * 50_000, "inside each other"),
    (b'{"a": "\x00"}', "could not parse"),
    (b'{"model": "small", "prompt": "a", "prompt": "b"}', "'prompt' occurs twice"),
    (b'{"a": [{"b": 1, "b": 1}]}', "'b' occurs twice"),
    (b'{"\\udc00": 1, "\\udc00": 2}', "occurs twice"),
    (b"{" + b",".join(b'"%d": 1' % i for i in range(8000)) + b', "7999": 1}', "'7999' occurs twice"),
]


@pytest.mark.parametrize(("body", "message"), BAD_BODIES)
def test_bodies(server: RunningServer, body: bytes, message: str) -> None:
    answer = server.post("completions", body)
    error = error_of(answer)
    assert answer.status_code == 400 and message in error["message"] and error["type"] == "invalid_request_error"
    assert len(error["message"]) < 300


def test_wide_and_long_values(server: RunningServer) -> None:
    many = {**COMPLETION, "metadata": {str(i): [i] * 3 for i in range(2000)}}
    assert server.post("completions", many).status_code == 200
    answer = server.post("completions", {**COMPLETION, "stop": "x" * 50_000, "model": "m" * 40_000})
    assert answer.status_code == 404 and len(error_of(answer)["message"]) < 300


def test_content_types(server: RunningServer) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        answer = server.post("completions", json.dumps(COMPLETION).encode(), headers={"Content-Type": kind})
        assert answer.status_code == 415 and "application/json" in error_of(answer)["message"], kind
    assert server.post("completions", json.dumps(COMPLETION).encode(), headers={"Content-Type": ""}).status_code == 400
    kind = "Application/JSON; charset=utf-8"
    assert (
        server.post("completions", json.dumps(COMPLETION).encode(), headers={"Content-Type": kind}).status_code == 200
    )


def test_large_bodies(server: RunningServer) -> None:
    limit = server.service.settings.body_limit
    body = json.dumps(COMPLETION).encode()
    assert server.post("completions", body + b" " * (limit - len(body))).status_code == 200
    for more in (limit - len(body) + 1, 3 * limit):
        answer = server.post("completions", body + b" " * more)
        assert answer.status_code == 413 and str(limit) in error_of(answer)["message"]
    # The length need not be true, or there may be none.
    assert server.raw(_head(10**12, "Connection: close") + b"{").startswith(b"HTTP/1.1 413")
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with server.connect() as connection:
        connection.sendall(_head(None, "Connection: close") + chunk * 4)
        assert read_all(connection).startswith(b"HTTP/1.1 413")


def test_many_large_bodies_at_once(model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that have not arrived completely have a limit of memory together."""
    monkeypatch.setattr("rlx.serve.request_body._LEAST_MEMORY", 0)
    with RunningServer(ScriptedModel(model, "text"), body_limit=100_000) as running, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(running.connect()) for _ in range(5)]
        for connection in connections:
            connection.sendall(_head(99_999) + b" " * 99_000)
        answers = list(select.select(connections, [], [], 60)[0])
        assert answers and all(read_all(connection).startswith(b"HTTP/1.1 503") for connection in answers)
        stack.close()
        body = json.dumps({**COMPLETION, "model": "tiny"}).encode()
        wait_until(lambda: running.post("completions", body + b" " * 90_000).status_code == 200)


def _wide_body(entries: int) -> bytes:
    """Return a body with many small objects, which take far more memory than its bytes."""
    parameters = {"enum": [{}] * entries}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    messages = [{"role": "user", "content": "a"}]
    return json.dumps({"model": "tiny", "messages": messages, "tools": [tool], "tool_choice": "none"}).encode()


def test_memory_of_waiting_requests(model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait or run count with the memory that they keep, until they end in any way."""
    monkeypatch.setattr("rlx.serve.request_body._LEAST_MEMORY", 4_000_000)
    gated, body = GatedModel(model), _wide_body(15_000)
    with RunningServer(gated, parallel=1, queue=8, body_limit=100_000) as running, ThreadPoolExecutor(4) as pool:
        memory = running.app.state.memory
        assert memory.most == 4_000_000 and memory.used == 0
        accepted = [pool.submit(running.post, "chat/completions", body) for _ in range(3)]
        wait_until(lambda: running.service.metrics.waiting.value() == 2)
        assert 3 * 1_000_000 < memory.used <= 4_000_000
        answer = running.post("chat/completions", body)
        assert answer.status_code == 503 and "Too many large requests" in error_of(answer)["message"]
        with contextlib.suppress(httpx.ReadTimeout):  # a small one is accepted, and its client goes
            running.post("completions", {**COMPLETION, "model": "tiny"}, timeout=0.2)
        gated.gate.set()
        assert [future.result().status_code for future in accepted] == [200] * 3
        running.wait_for_idle()
        wait_until(lambda: memory.used == 0)


def test_memory_of_refused_requests(model: rlx.llm.LLM) -> None:
    gated = GatedModel(model)
    with RunningServer(gated, parallel=1, queue=0, timeout=0.5) as running, ThreadPoolExecutor(1) as pool:
        memory, small = running.app.state.memory, {**COMPLETION, "model": "tiny"}
        first = pool.submit(running.post, "completions", small)
        wait_until(lambda: gated.running == 1)
        used = memory.used
        assert running.post("chat/completions", _wide_body(10_000)).status_code == 429
        assert running.post("chat/completions", {"a": [1]}).status_code == 400
        assert running.post("completions", b'{"a": [').status_code == 400
        assert memory.used == used > 0
        assert first.result().status_code == 504
        wait_until(lambda: memory.used == 0)


def test_memory_that_several_threads_release() -> None:
    """The thread of a job and that of its answer may end it at the same time."""
    memory = RequestMemory(1000)
    leases = [memory.lease() for _ in range(200)]
    for lease in leases:
        lease.resize(5)
    with pytest.raises(RequestError, match="Too many"):
        memory.lease().resize(1)
    barrier = threading.Barrier(4)

    def release(_: int) -> None:
        barrier.wait(60)
        for lease in leases:
            lease.release()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(release, range(4)))
    assert memory.used == 0 and all(lease.size == 0 for lease in leases)
    leases[0].resize(5000)  # alone
    assert memory.used == 5000


def test_the_estimate_of_memory() -> None:
    """It is near the memory that Python measures."""
    wide = [{"a": 1}] * 20_000
    for value in (
        {"a": [{}] * 50_000},
        {"a": wide},
        {"a": [[]] * 50_000},
        {"a": [[70_000]] * 50_000},
        {"a": "x" * 10**6},
    ):
        body = json.dumps(value).encode()
        tracemalloc.start()
        try:
            parsed = json.loads(body)
            measured = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        found, size = parse_object(body)
        assert found == parsed and 0.8 * measured < size < 1.6 * measured, str(value)[:40]


def test_many_messages(server: RunningServer) -> None:
    """The number of messages, of parts and of calls is limited, so that a short body keeps little memory."""
    message, part = {"role": "user", "content": "a"}, {"type": "text", "text": "a"}
    call = {"id": "a", "function": {"name": "a", "arguments": ""}}
    for messages, param in (
        ([{}] * 4097, "messages"),
        ([{**message, "content": [part] * 4097}][:1], "messages[0].content"),
        ([{"role": "assistant", "tool_calls": [call] * 513}], "messages[0].tool_calls"),
    ):
        body = json.dumps({"model": "small", "messages": messages}, separators=(",", ":"))
        answer = server.post("chat/completions", body.replace('"type":"text",', "").encode())
        assert (answer.status_code, error_of(answer)["param"]) == (400, param)
        assert error_of(answer)["code"] == "array_above_max_length"


def test_texts_that_cannot_fit_are_not_encoded(model: rlx.llm.LLM) -> None:
    """Some tokenizers need seconds for them. The chat template and all inputs are checked."""
    tokenizer = _CountingTokenizer(model.tokenizer)
    longest = model.context * max(map(len, model.tokenizer.vocabulary.tokens))
    with RunningServer(SharedModel(model, tokenizer)) as running:  # type: ignore[arg-type]
        for route, body in (
            ("completions", {"prompt": "x" * (longest + 1)}),
            ("completions", {"prompt": ["a", " " * (longest + 1)]}),
            ("completions", {"prompt": [9] * 1000}),
            ("completions", {"prompt": [[9], [9] * 1000]}),
            ("chat/completions", {"messages": [{"role": "user", "content": "x" * longest}]}),
            ("embeddings", {"input": "x" * (longest + 1)}),
            ("embeddings", {"input": [9] * 1000}),
        ):
            tokenizer.lengths.clear()
            answer = running.post(route, {"model": "tiny", **body})
            assert answer.status_code == 400 and error_of(answer)["code"] == "context_length_exceeded", body.keys()
            assert max(tokenizer.lengths, default=0) < 100
        # The longest text that fits, and one with more tokens.
        fitting = "<|assistant|>" * (model.context - 1)
        assert running.post("completions", {"model": "tiny", "prompt": fitting, "max_tokens": 0}).status_code == 200
        assert len(fitting) > longest - 20
        assert running.post("completions", {"model": "tiny", "prompt": "x" * longest}).status_code == 400
        assert longest in tokenizer.lengths


class _CountingTokenizer:
    """A tokenizer that notes the lengths of texts."""

    def __init__(self, tokenizer: rlx.llm.Tokenizer):
        self._tokenizer = tokenizer
        self.lengths: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *arguments: Any, **options: Any) -> list[int]:
        self.lengths.append(len(text))
        return self._tokenizer.encode(text, *arguments, **options)


@pytest.mark.parametrize(("keeps", "status"), [(True, 400), (False, 200)])
def test_spaces_that_are_dropped(model: rlx.llm.LLM, keeps: bool, status: int) -> None:
    """For a tokenizer that drops repeated spaces, their number does not count."""
    tokenizer = _CountingTokenizer(model.tokenizer)
    if not keeps:
        encode = model.tokenizer.encode
        tokenizer.encode = lambda text, *a, **o: encode(" ".join(text.split()), *a, **o)  # type: ignore[method-assign]
    with RunningServer(SharedModel(model, tokenizer)) as running:  # type: ignore[arg-type]
        body = {"model": "tiny", "prompt": f"the{' ' * 5000}man", "max_tokens": 1}
        assert running.post("completions", body).status_code == status


def test_slow_bodies(server: RunningServer) -> None:
    answer = server.raw(_head(100) + b'{"model"')
    assert answer.startswith(b"HTTP/1.1 408") and b'"code":"timeout"' in answer
    answer = server.raw(_head(None) + b"2\r\n{ \r\n")
    assert answer.startswith(b"HTTP/1.1 408")


def test_slow_headers(model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_HEADER_SECONDS", 0.3)
    with RunningServer(ScriptedModel(model, "text")) as running:
        for start in (b"", b"GET /health HTTP/1.1\r\nHost: "):
            assert running.raw(start) == b""
        with running.connect() as connection:  # of a second request
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET")
            read_all(connection)


def test_many_connections(model: rlx.llm.LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle connections do not use up the descriptors. Those that are there are answered."""
    monkeypatch.setattr(server_module, "_MORE_CONNECTIONS", 5)
    with RunningServer(ScriptedModel(model, "text"), parallel=2, queue=1) as running, contextlib.ExitStack() as stack:
        held = [stack.enter_context(running.connect()) for _ in range(8)]
        wait_until(lambda: len(running.server.server_state.connections) == 8)
        for _ in range(3):
            with running.connect() as connection:
                answer = read_all(connection)
                assert answer.startswith(b"HTTP/1.1 503") and b"too many connections" in answer
        held[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert read_all(held[0]).startswith(b"HTTP/1.1 200")
        wait_until(lambda: len(running.server.server_state.connections) == 7)
        assert running.get("/health").status_code == 200


def test_connections_need_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    settings = ServerSettings(parallel=4, queue=64)
    for soft, most in ((1024, 324), (256, 128), (64, 1), (resource.RLIM_INFINITY, 324)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert server_module.most_connections(settings) == most


def test_large_headers(server: RunningServer) -> None:
    for lines in (b"X-A: " + b"a" * 1_000_000, b"\r\n".join(b"X-%d: a" % i for i in range(50_000))):
        with server.connect() as connection:
            try:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                continue
            assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")


def test_wrong_requests(server: RunningServer) -> None:
    for request in (
        b"\x00\xff\x16\x03\x01 garbage\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /\r\nhealth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        with server.connect() as connection:
            connection.sendall(request)
            assert read_all(connection)[9:12] in (b"400", b"415"), request
    # A name is needed, also where the protocol does not require one.
    assert server.raw(b"GET /v1/models HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403")


def test_paths_are_escaped_in_logs(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "rlx.serve"):
        path = b"/%1b%5b2J%0a%e2%80%ae" + b"a" * 500
        answer = server.raw(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 404")
        wait_until(lambda: any("404" in line for line in caplog.messages))
    (line,) = [line for line in caplog.messages if "404" in line]
    assert line.isprintable() and r"\x1b[2J\n\u202e" in line and len(line) < 400


def test_several_requests_at_once(server: RunningServer) -> None:
    """Requests in one packet are answered one after the other."""
    body = json.dumps(COMPLETION).encode()
    both = _head(len(body)) + body + _head(len(body), "Connection: close") + body
    answer = server.raw(both)
    assert answer.count(b"HTTP/1.1 200") == 2 and answer.count(b'"text_completion"') == 2


def test_half_closed_connections(model: rlx.llm.LLM) -> None:
    """A client that ends its side of the connection counts as gone."""
    gated = GatedModel(model)
    body = json.dumps({**COMPLETION, "model": "tiny"}).encode()
    with RunningServer(gated) as running:
        with running.connect() as connection:
            connection.sendall(_head(len(body)) + body)
            wait_until(lambda: gated.running == 1)
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b""
            wait_until(lambda: gated.ended == 1)
        running.wait_for_idle()
        with running.connect() as connection:  # in the middle of a body
            connection.sendall(_head(len(body)) + body[:-1])
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == b""


def test_repeated_headers(server: RunningServer) -> None:
    headers: Any = [*HEADERS.items(), ("X-A", "1"), ("X-A", "2")]
    assert server.get("/health", headers=headers).status_code == 200
