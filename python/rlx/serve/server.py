"""`run_server`: runs an application with uvicorn until the process is interrupted. This module needs uvicorn."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from rlx.serve.json_text import json_bytes
from rlx.serve.request_error import too_many_connections
from rlx.serve.request_log import LOGGER
from rlx.serve.settings import ServerSettings
from rlx.support.errors import Error

_BACKLOG = 512  # connections that the system accepts in advance
_HEADER_BYTES = 1 << 16  # of one request
_HEADER_SECONDS = 20.0  # from the connection, or the last answer, to the end of the headers
_IDLE_SECONDS = 65  # longer than load balancers keep connections, which would use one that has just been closed
_LAST_SECONDS = 5  # for answers after running requests were ended
_MORE_CONNECTIONS = 256  # than requests: idle ones, and those of short answers
_OTHER_FILES = 128  # that the process may have open: weights, libraries, programs


class _LimitedProtocol(H11Protocol):
    """HTTP with limits that uvicorn does not have: of connections, and of the time in which headers must arrive.

    Args:
        most: The largest number of connections of the server, idle ones included.
        **options: Those of `H11Protocol`.
    """

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, most: int, **options: Any):
        super().__init__(**options)
        self._most = most

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._most:
            body = json_bytes(too_many_connections().body())
            head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
            transport.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            transport.close()
            return
        self._deadline = self.loop.call_later(_HEADER_SECONDS, self._close_late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_waiting = self.cycle is None or self.cycle.response_complete
        if not is_waiting:
            self._cancel_deadline()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self._close_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_late(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class _GracefulServer(uvicorn.Server):
    """A server that tells the application when it begins to shut down."""

    def __init__(self, config: uvicorn.Config, service: Any, grace: float, on_ready: Callable[[], None]):
        super().__init__(config)
        self._service, self._grace, self._on_ready = service, grace, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        queue = self._service.queue
        queue.close()
        timer = asyncio.get_running_loop().call_later(self._grace, queue.stop)
        try:
            await super().shutdown(sockets)
            if self.force_exit:  # uvicorn leaves this out then, and logs a traceback at the end
                await self.lifespan.shutdown()
        finally:
            timer.cancel()
            queue.stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal again after the shutdown. A second signal does not wait for running requests.
        if self.should_exit:
            self.force_exit = True
            self._service.queue.stop()
        self.should_exit = True


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address.

    Raises:
        Error: The name is unknown, or the address is in use or not allowed.
    """
    bound = None
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        # asyncio sends small parts at once (TCP_NODELAY) only if the socket names its protocol. `create_server` does not.
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
        return bound
    except (OSError, OverflowError, UnicodeError) as problem:
        if bound is not None:
            bound.close()
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise Error(f"cannot listen on {host}, port {port}: {reason or problem}") from None


def url_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(bound: socket.socket) -> bool:
    """Return whether only this machine can reach a socket."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def most_connections(settings: ServerSettings) -> int:
    """Return the largest number of connections of a server: those of its requests and more, if there are descriptors."""
    wanted = settings.parallel + settings.queue + _MORE_CONNECTIONS
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHER_FILES))


def run_server(
    app: Starlette,
    bound: socket.socket,
    *,
    grace: float = 30.0,
    on_ready: Callable[[], None] = lambda: None,
    log_level: int = logging.INFO,
) -> None:
    """Answer requests until SIGINT or SIGTERM. Then waiting requests are refused, and running ones have time to end.

    Args:
        app: The result of `application`.
        bound: A socket of `bound_socket`.
        grace: The seconds for running requests at the end.
        on_ready: Called when the server accepts requests.
        log_level: The least level of messages on standard error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    before = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(log_level)
    try:
        make_server(app, grace=grace, on_ready=on_ready).run(sockets=[bound])
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)


def make_server(app: Starlette, *, grace: float = 30.0, on_ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Return a server of uvicorn with limits. `run_server` runs it in the main thread, tests in another one."""
    config = uvicorn.Config(
        app,
        http=partial(_LimitedProtocol, most_connections(app.state.service.settings)),  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=round(grace) + _LAST_SECONDS,
    )
    return _GracefulServer(config, app.state.service, grace, on_ready)
