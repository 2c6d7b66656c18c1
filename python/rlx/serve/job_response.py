"""`JobResponse`: sends the pieces of a job to a client, and ends the job when the client disconnects or the time is over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from rlx.serve.json_text import event_bytes
from rlx.serve.request_error import RequestError, internal_error
from rlx.serve.request_log import log_problem
from rlx.serve.work_queue import Job, JobSignal, WorkQueue

_KEEP_ALIVE_SECONDS = 15.0
_KEEP_ALIVE = b": waiting\n\n"  # a comment, which clients ignore
_LAST_SECONDS = 5.0  # for the event with an error, after the time is over
CANCELLED = "rlx.cancelled"  # an entry of the scope, for logs and metrics


class JobResponse:
    """The answer of a request that a job computes.

    Args:
        queue: Runs the job.
        job: The job.
        timeout: The largest number of seconds, waiting included.
        is_stream: Whether the answer is a stream of events.
    """

    def __init__(self, queue: WorkQueue, job: Job, timeout: float, *, is_stream: bool):
        self._queue, self._job, self._timeout = queue, job, timeout
        self._is_stream = is_stream
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._queue.start(self._job)
            watcher = asyncio.create_task(self._watch(receive))
            try:
                async with asyncio.timeout(self._job.created + self._timeout - time.monotonic()):
                    await self._send_pieces(scope, send)
            except TimeoutError:
                await self._send_error(send, self._late())
            finally:
                watcher.cancel()
        finally:
            self._queue.cancel(self._job)  # also if the queue has refused it

    async def _watch(self, receive: Receive) -> None:
        """Wait until the client disconnects."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._job.cancel()
        self._job.pieces.put_nowait(JobSignal.DISCONNECTED)

    async def _send_pieces(self, scope: Scope, send: Send) -> None:
        body = b""
        while True:
            piece = await self._next(send)
            if isinstance(piece, RequestError):
                await self._send_error(send, piece)
                return
            if isinstance(piece, BaseException):
                log_problem(piece)
                await self._send_error(send, internal_error())
                return
            if piece is JobSignal.DISCONNECTED:
                scope[CANCELLED] = True
                return
            if piece is JobSignal.END:
                break
            assert isinstance(piece, bytes)
            if self._is_stream:
                await self._start(send)
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await asyncio.sleep(0)  # pieces that are ready would keep other clients waiting
            else:
                body += piece
        if not self._is_stream:
            await self._start(send, {"content-length": str(len(body))})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _next(self, send: Send) -> bytes | BaseException | JobSignal:
        """Return the next piece. While there is none, a stream sends comments, so that proxies keep the connection."""
        while True:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_SECONDS if self._is_stream else None):
                    return await self._job.pieces.get()
            except TimeoutError:
                await self._start(send)
                await send({"type": "http.response.body", "body": _KEEP_ALIVE, "more_body": True})

    async def _start(self, send: Send, more: Mapping[str, str] | None = None) -> None:
        if self._has_started:
            return
        self._has_started = True
        kind = "text/event-stream; charset=utf-8" if self._is_stream else "application/json"
        headers = {"content-type": kind, "cache-control": "no-store", **(more or {})}
        if self._is_stream:
            headers["x-accel-buffering"] = "no"  # nginx would collect the events otherwise
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})

    async def _send_error(self, send: Send, error: RequestError) -> None:
        """Raise an error before the answer begins; afterwards send it as an event."""
        if not self._has_started:
            raise error
        if not self._is_stream:
            return
        with contextlib.suppress(TimeoutError):  # the client does not read
            async with asyncio.timeout(_LAST_SECONDS):
                await send({"type": "http.response.body", "body": event_bytes(error.body()), "more_body": False})

    def _late(self) -> RequestError:
        message = f"The request took longer than {self._timeout:g} seconds."
        # OpenAI's clients would repeat the request otherwise.
        headers = {"x-should-retry": "false"}
        return RequestError(504, message, kind="server_error", code="timeout", headers=headers)
