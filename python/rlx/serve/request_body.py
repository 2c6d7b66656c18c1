"""`BodyReader`: reads the JSON bodies of requests, with limits of size, time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from rlx.serve.job_response import CANCELLED
from rlx.serve.request_error import RequestError

Parsed = TypeVar("Parsed")
_PARSED_AT_ONCE = 1 << 16  # bytes; longer bodies are parsed in a thread
_LEAST_MEMORY = 64 << 20
_CLOSE = {"Connection": "close"}


class BodyReader:
    """Reads requests with JSON.

    Args:
        limit: The largest number of bytes of a request.
        seconds: The largest number of seconds until its last byte.

    Attributes:
        memory: The largest number of bytes of all requests that have not arrived completely.
    """

    def __init__(self, limit: int, seconds: float):
        self._limit, self._seconds = limit, seconds
        self.memory = max(_LEAST_MEMORY, 4 * limit)
        self._used = 0

    async def read(self, request: Request, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Return the result of `parse` for the body of a request.

        Args:
            request: The request.
            parse: Parses and checks a body. Long ones are parsed in a thread, so that other clients need not wait.

        Raises:
            RequestError: The type of the content is another one (415), the body is too large (413) or too slow (408), or too
                many bodies arrive at once (503).
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            # Browsers ask before they send this type to another host, so that pages of others cannot use the server.
            message = (
                "Unsupported content type. The body must be JSON, with the header 'Content-Type: application/json'."
            )
            raise RequestError(415 if kind else 400, message)
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._bytes(request)
        except TimeoutError:
            message = f"The request did not arrive within {self._seconds:g} seconds."
            raise RequestError(408, message, code="timeout", headers=_CLOSE) from None
        except ClientDisconnect:
            request.scope[CANCELLED] = True
            raise RequestError(400, "The client disconnected.", headers=_CLOSE) from None
        if len(body) > _PARSED_AT_ONCE:
            return await asyncio.to_thread(parse, body)
        return parse(body)

    async def _bytes(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limit:
            raise self._too_large()
        body = bytearray()
        try:
            async for part in request.stream():
                if len(body) + len(part) > self._limit:
                    raise self._too_large()
                if self._used + len(part) > self.memory:
                    headers = {"Retry-After": "1", **_CLOSE}
                    raise RequestError(503, "Too many large requests at once.", kind="server_error", headers=headers)
                self._used += len(part)
                body += part
        finally:
            self._used -= len(body)
        return bytes(body)

    def _too_large(self) -> RequestError:
        return RequestError(413, f"The request is too large: at most {self._limit} bytes are accepted.")
