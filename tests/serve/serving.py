"""Servers in threads, and models whose output a test controls."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import httpx
import openai

from rlx.llm import LLM, Chunk, Tokenizer
from rlx.llm.generation import TextStream
from rlx.serve import application
from rlx.serve.model_service import ModelService
from rlx.serve.server import bound_socket, make_server, url_of

_PATIENCE = 60.0  # seconds; only a test that fails waits for so long
HEADERS = {"Content-Type": "application/json"}


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for a condition that another thread makes true."""
    end = time.monotonic() + _PATIENCE
    while not is_true():
        assert time.monotonic() < end, "the condition has not become true"
        time.sleep(0.002)


class RunningServer:
    """A server of uvicorn on a free port, in a thread. It is a context manager.

    Args:
        model: The model.
        grace: The seconds for running requests at the end.
        **settings: Settings of `application`.
    """

    def __init__(self, model: LLM, *, grace: float = 5.0, **settings: Any):
        self.app = application(model, **settings)
        self.service: ModelService = self.app.state.service
        self._ready = threading.Event()
        self._bound = bound_socket("127.0.0.1", 0)
        self.url, self.port = url_of(self._bound), self._bound.getsockname()[1]
        self.server = make_server(self.app, grace=grace, on_ready=self._ready.set)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._bound]})

    def __enter__(self) -> Self:
        self.thread.start()
        assert self._ready.wait(_PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.server.should_exit = True
        self.thread.join(_PATIENCE)
        assert not self.thread.is_alive()

    def client(self, **options: Any) -> openai.OpenAI:
        """Return OpenAI's client for this server."""
        return openai.OpenAI(base_url=f"{self.url}/v1", max_retries=0, **{"api_key": "none", **options})

    def post(self, route: str, body: Any = None, **options: Any) -> httpx.Response:
        """Post a body, an object or bytes, to a route of the interface."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        headers = {**HEADERS, **options.pop("headers", {})}
        return httpx.post(f"{self.url}/v1/{route}", headers=headers, **content, **{"timeout": _PATIENCE, **options})

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Get a path."""
        return httpx.get(f"{self.url}{path}", **options)

    def connect(self) -> socket.socket:
        """Return a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE)

    def raw(self, request: bytes) -> bytes:
        """Send bytes, and return all that the server answers until it closes the connection."""
        with self.connect() as connection:
            connection.sendall(request)
            return read_all(connection)

    def wait_for_idle(self) -> None:
        """Wait until no request runs or waits."""
        metrics = self.service.metrics
        wait_until(lambda: metrics.running.value() == 0 and metrics.waiting.value() == 0)


def read_all(connection: socket.socket) -> bytes:
    """Return the bytes until the end of a connection."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


class SharedModel(LLM):
    """A model with the programs of another one, and its tokenizer or another one."""

    def __init__(self, model: LLM, tokenizer: Tokenizer | None = None):
        self.__dict__ |= model.__dict__
        self.tokenizer = tokenizer or model.tokenizer


class SequentialGroup(Iterator[tuple[int, Chunk]]):
    """Texts that are generated one after the other, in place of a `TextGroup`."""

    def __init__(self, streams: Iterator[TextStream]):
        self._ended: set[int] = set()
        self._pairs = self._generated(streams)

    def __next__(self) -> tuple[int, Chunk]:
        return next(self._pairs)

    def _generated(self, streams: Iterator[TextStream]) -> Generator[tuple[int, Chunk]]:
        for number, stream in enumerate(streams):
            with closing(stream):
                for chunk in stream:
                    yield number, chunk
                    if number in self._ended:
                        break

    def end(self, number: int) -> None:
        """End one text."""
        self._ended.add(number)

    def close(self) -> None:
        """End all texts."""
        self._pairs.close()

    def cancel(self) -> None:
        """Nothing: parts do not take long."""


class SequentialModel(SharedModel):
    """A model whose method `stream` makes up its texts."""

    def stream_together(self, requests: Any) -> Any:
        return SequentialGroup(self.stream(prompt, **options) for prompt, options in requests)


class ScriptedModel(SequentialModel):
    """A model that gives a fixed text, some characters at a time.

    Args:
        model: The model whose tokenizer is used.
        text: The text.
        tokens: The tokens of each part.
        changes: Fields of the first part that are replaced.
    """

    def __init__(self, model: LLM, text: str, *, tokens: Sequence[int] = (9,), **changes: Any):
        super().__init__(model)
        self.text, self.tokens, self.changes = text, list(tokens), changes
        self.options: list[dict[str, Any]] = []

    def stream(self, prompt: Any, **options: Any) -> TextStream:
        self.options.append(options)
        return TextStream(self._chunks(), lambda: None)

    def _chunks(self) -> Generator[Chunk]:
        for begin in range(0, len(self.text), 3):
            yield replace(Chunk(self.text[begin : begin + 3], self.tokens), **(self.changes if not begin else {}))
        yield Chunk("", [], "stop")


class GatedModel(SequentialModel):
    """A model whose generations wait, until the test opens the gate. Each then gives the text "0 1 2 …" without an end."""

    def __init__(self, model: LLM):
        super().__init__(model)
        self.gate = threading.Event()
        self.most = 3
        self._lock = threading.Lock()
        self.running = self.started = self.ended = self.largest = 0

    def stream(self, prompt: Any, **options: Any) -> TextStream:
        return TextStream(self._chunks(), lambda: None)

    def _chunks(self) -> Generator[Chunk]:
        with self._lock:
            self.running += 1
            self.started += 1
            self.largest = max(self.largest, self.running)
        try:
            number = 0
            while not (self.gate.is_set() and number >= self.most):
                yield Chunk(f"{number} ", [9])
                number += 1
                self.gate.wait(0.005)
            yield Chunk("", [], "length")
        finally:
            with self._lock:
                self.running -= 1
                self.ended += 1


class FailingModel(SequentialModel):
    """A model whose generations fail after the first part."""

    def stream(self, prompt: Any, **options: Any) -> TextStream:
        return TextStream(self._chunks(), lambda: None)

    def _chunks(self) -> Generator[Chunk]:
        yield Chunk("a", [9])
        raise ValueError("a secret of the server")
