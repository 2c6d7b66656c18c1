"""`BodyReader`: reads the JSON bodies of requests, with limits of size, time and memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from rlx.serve.job_response import CANCELLED
from rlx.serve.request_error import RequestError
from rlx.serve.request_memory import MemoryLease, RequestMemory

Parsed = TypeVar("Parsed")
_PARSED_AT_ONCE = 1 << 16  # bytes; longer bodies are parsed in a thread
_LEAST_MEMORY = 256 << 20
_CLOSE = {"Connection": "close"}


class BodyReader:
    """Reads requests with JSON.

    Args:
        limit: The largest number of bytes of a request.
        seconds: The largest number of seconds until its last byte.

    Attributes:
        memory: The memory of all requests that arrive, wait or run.
    """

    def __init__(self, limit: int, seconds: float):
        self._limit, self._seconds = limit, seconds
        self.memory = RequestMemory(max(_LEAST_MEMORY, 4 * limit))
        self._parsing = threading.Lock()

    async def read(self, request: Request, parse: Callable[[bytes], tuple[Parsed, int]]) -> tuple[Parsed, MemoryLease]:
        """Return the result of `parse` for the body of a request, and its memory, which the caller releases.

        Args:
            request: The request.
            parse: Parses and checks a body, and returns the number of bytes that the result keeps. Long bodies are parsed in
                a thread, so that other clients need not wait.

        Raises:
            RequestError: The type of the content is another one (415), the body is too large (413) or too slow (408), or
                the requests of all clients use too much memory (503).
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # Browsers ask before they send this type to another host, so that pages of others cannot use the server.
            message = (
                "Unsupported content type. The body must be JSON, with the header 'Content-Type: application/json'."
            )
            raise RequestError(415 if kind else 400, message)
        lease = self.memory.lease()
        try:
            parsed, size = await self._parsed(await self._arrived(request, lease), parse)
            lease.resize(size)
        except BaseException:
            lease.release()
            raise
        return parsed, lease

    async def _arrived(self, request: Request, lease: MemoryLease) -> bytes:
        """Return the body of a request, in time."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._bytes(request, lease)
        except TimeoutError:
            message = f"The request did not arrive within {self._seconds:g} seconds."
            raise RequestError(408, message, code="timeout", headers=_CLOSE) from None
        except ClientDisconnect:
            request.scope[CANCELLED] = True
            raise RequestError(400, "The client disconnected.", headers=_CLOSE) from None

    async def _parsed(self, body: bytes, parse: Callable[[bytes], tuple[Parsed, int]]) -> tuple[Parsed, int]:
        if len(body) <= _PARSED_AT_ONCE:
            return parse(body)

        def parse_alone() -> tuple[Parsed, int]:
            # Parsing takes far more memory than a body, and several threads would not do it faster.
            with self._parsing:
                return parse(body)

        return await asyncio.to_thread(parse_alone)

    async def _bytes(self, request: Request, lease: MemoryLease) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limit:
            raise self._too_large()
        body = bytearray()
        async for part in request.stream():
            if len(body) + len(part) > self._limit:
                raise self._too_large()
            lease.resize(len(body) + len(part))
            body += part
        return bytes(body)

    def _too_large(self) -> RequestError:
        return RequestError(413, f"The request is too large: at most {self._limit} bytes are accepted.")
