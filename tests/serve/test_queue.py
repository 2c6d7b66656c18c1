"""Running and waiting requests: limits, order, cancellation, time limits and the end of the server."""

from __future__ import annotations

import gc
import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import rlx
from tests.serve.serving import FailingModel, GatedModel, RunningServer, ScriptedModel, wait_until

BODY: dict[str, Any] = {"model": "tiny", "prompt": "a", "max_tokens": 500}
STREAM = {**BODY, "stream": True}


@pytest.fixture
def gated(model: rlx.llm.LLM) -> GatedModel:
    return GatedModel(model)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def _waits(running: RunningServer, count: int) -> None:
    wait_until(lambda: running.service.metrics.waiting.value() == count)


def test_full_queue(gated: GatedModel, pool: ThreadPoolExecutor) -> None:
    with RunningServer(gated, parallel=2, queue=3) as running:
        accepted = [pool.submit(running.post, "completions", BODY) for _ in range(5)]
        _waits(running, 3)
        refused = running.post("completions", BODY)
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        with running.client() as client, pytest.raises(openai.RateLimitError):
            client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "a"}], stream=True)
        assert running.get("/health").status_code == 200
        metrics = running.get("/metrics").text
        assert "rlx_requests_running 2\n" in metrics and "rlx_requests_waiting 3\n" in metrics
        gated.gate.set()
        assert [future.result().status_code for future in accepted] == [200] * 5
        assert gated.largest == 2
        running.wait_for_idle()


def test_first_come_first_served(gated: GatedModel, pool: ThreadPoolExecutor) -> None:
    ends: list[int] = []

    def ask(number: int) -> None:
        running.post("completions", BODY)
        ends.append(number)

    with RunningServer(gated, parallel=1, queue=10) as running:
        futures = []
        for number in range(5):
            futures.append(pool.submit(ask, number))
            wait_until(lambda: gated.running == 1)
            _waits(running, number)
        order = list(running.service.queue._waiting)
        assert [job.created for job in order] == sorted(job.created for job in order)
        gated.gate.set()
        for future in futures:
            future.result()
    assert sorted(ends) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("has_stream", [False, True])
def test_clients_that_disconnect(gated: GatedModel, has_stream: bool) -> None:
    """The generation ends, and the slot is free for the next request."""
    with RunningServer(gated, parallel=1, queue=4) as running:
        body = json.dumps(STREAM if has_stream else BODY).encode()
        for number in range(3):
            with running.connect() as connection:
                head = f"Host: a.localhost\r\nHost: localhost\r\nContent-Length: {len(body)}"
                head = head.partition("\r\n")[2]
                kind = "Content-Type: application/json"
                connection.sendall(f"POST /v1/completions HTTP/1.1\r\n{head}\r\n{kind}\r\n\r\n".encode() + body)
                wait_until(lambda: gated.running == 1)
                if has_stream:
                    assert b"200 OK" in connection.recv(1000)
            wait_until(lambda number=number: gated.ended == number + 1)
        running.wait_for_idle()
        assert running.service.metrics.cancelled.value() == 3
        gated.gate.set()
        assert running.post("completions", BODY).json()["choices"][0]["text"] == "0 1 2 "


def test_the_client_of_openai_closes_a_stream(gated: GatedModel) -> None:
    with RunningServer(gated) as running, running.client() as client:
        with client.completions.create(model="tiny", prompt="a", stream=True) as stream:
            assert next(iter(stream)).choices[0].text == "0 "
        wait_until(lambda: gated.ended == 1)
        running.wait_for_idle()


def test_waiting_clients_that_disconnect(gated: GatedModel, pool: ThreadPoolExecutor) -> None:
    with RunningServer(gated, parallel=1, queue=2) as running:
        first = pool.submit(running.post, "completions", BODY)
        wait_until(lambda: gated.running == 1)
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{running.url}/v1/completions", json=BODY, timeout=0.2)
            _waits(running, 0)
        gated.gate.set()
        assert first.result().status_code == 200
        assert gated.started == 1  # the others have left the queue without a generation


def test_time_limit(gated: GatedModel, pool: ThreadPoolExecutor) -> None:
    with RunningServer(gated, parallel=1, timeout=0.5) as running:
        running_one, waiting_one = (pool.submit(running.post, "completions", BODY) for _ in range(2))
        for future in (running_one, waiting_one):
            answer = future.result()
            assert answer.status_code == 504 and answer.json()["error"]["code"] == "timeout"
            assert answer.headers["x-should-retry"] == "false"
        running.wait_for_idle()
        answer = running.post("completions", STREAM)
        assert answer.status_code == 200 and "[DONE]" not in answer.text
        assert json.loads(answer.text.split("\n\n")[-2].removeprefix("data: "))["error"]["code"] == "timeout"
        running.wait_for_idle()


def test_comments_keep_connections(
    gated: GatedModel, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that waits is not ended by proxies."""
    monkeypatch.setattr("rlx.serve.job_response._KEEP_ALIVE_SECONDS", 0.1)
    with RunningServer(gated, parallel=1) as running:
        first = pool.submit(running.post, "completions", BODY)
        wait_until(lambda: gated.running == 1)
        with httpx.stream("POST", f"{running.url}/v1/completions", json=STREAM) as answer:
            lines = answer.iter_lines()
            assert next(lines) == ": waiting"
            gated.gate.set()
            assert [*lines][-2] == "data: [DONE]"
        assert first.result().status_code == 200
        gated.gate.clear()


def test_clients_at_once_get_the_texts_that_they_get_alone(
    server: RunningServer, model: rlx.llm.LLM, pool: ThreadPoolExecutor
) -> None:
    prompts = ["the man", "in the inn", "and the", "her", "an end", "the the the", "than", "a thin"]
    alone = [model.generate(p, max_tokens=12, temperature=1.0, seed=i, logprobs=1) for i, p in enumerate(prompts)]
    barrier = threading.Barrier(len(prompts))

    def ask(number: int) -> tuple[str, str]:
        with server.client() as client:
            options: Any = {"model": "small", "prompt": prompts[number], "max_tokens": 12, "seed": number}
            barrier.wait(60)
            text = client.completions.create(**options).choices[0].text
            parts = client.completions.create(**options, stream=True)
            return text, "".join(part.choices[0].text for part in parts)

    for number, found in enumerate(pool.map(ask, range(len(prompts)))):
        assert found == (alone[number].text, alone[number].text)


def test_shutdown(gated: GatedModel, pool: ThreadPoolExecutor) -> None:
    """Running requests end, waiting ones are refused."""
    with RunningServer(gated, parallel=1, grace=60) as running:
        first, second = pool.submit(running.post, "completions", BODY), None
        wait_until(lambda: gated.running == 1)
        second = pool.submit(running.post, "completions", BODY)
        _waits(running, 1)
        running.server.should_exit = True
        answer = second.result()
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "shutting_down"
        gated.gate.set()
        assert first.result().json()["choices"][0]["finish_reason"] == "length"
        running.thread.join(60)
        with pytest.raises(httpx.ConnectError):
            running.get("/health")


def test_shutdown_ends_requests_that_take_too_long(gated: GatedModel, pool: ThreadPoolExecutor) -> None:
    with RunningServer(gated, grace=0.2) as running:
        plain, stream = (pool.submit(running.post, "completions", body) for body in (BODY, STREAM))
        wait_until(lambda: gated.running == 2)
        running.server.should_exit = True
        assert plain.result().status_code == 503
        assert '"code":"shutting_down"' in stream.result().text
        running.thread.join(60)
    assert gated.ended == 2


def test_a_second_interrupt_does_not_wait(
    gated: GatedModel, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningServer(gated, grace=600) as running:
        answer = pool.submit(running.post, "completions", BODY)
        wait_until(lambda: gated.running == 1)
        for _ in range(2):
            running.server.handle_exit(signal.SIGINT, None)
        assert answer.result().status_code == 503
        running.thread.join(60)
    assert gated.ended == 1
    assert not [record for record in caplog.records if record.exc_info or "Traceback" in record.getMessage()]


def _resources() -> tuple[int, int, int]:
    gc.collect()
    return len(gc.get_objects()), threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))


def test_resources_do_not_grow(model: rlx.llm.LLM) -> None:
    """Objects, threads and files after many requests of all kinds, in comparison with those after some."""
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}

    def ask(times: int) -> None:
        for i in range(times):
            client.post("completions", json=STREAM)
            client.post("chat/completions", json=chat)
            assert client.post("completions", json={**BODY, "model": f"other {i}"}).status_code == 404
            assert client.get(f"unknown/{i}").status_code == 404
            with client.stream("POST", "completions", json=STREAM):
                pass  # the client closes the connection
        running.wait_for_idle()

    with (
        RunningServer(ScriptedModel(model, "some text"), parallel=1, queue=4) as running,
        httpx.Client(base_url=f"{running.url}/v1/") as client,
    ):
        ask(20)
        objects, threads, files = _resources()
        ask(300)
        more_objects, more_threads, more_files = _resources()
    # 1500 requests. The event loop keeps some timers that were cancelled, with what they refer to.
    assert more_objects - objects < 4500
    assert more_threads <= threads and more_files <= files + 1


def test_failures_free_the_slot(model: rlx.llm.LLM) -> None:
    with RunningServer(FailingModel(model), parallel=1) as running:
        for _ in range(3):
            assert running.post("completions", BODY).status_code == 500
        running.wait_for_idle()
