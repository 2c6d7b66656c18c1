"""Checks of every request: host names, keys, and failures of the routes. They are ASGI middleware."""

from __future__ import annotations

import hmac
import ipaddress
import re
import time
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlx.serve.job_response import CANCELLED
from rlx.serve.json_text import json_bytes
from rlx.serve.metrics import ServerMetrics
from rlx.serve.request_error import RequestError, internal_error
from rlx.serve.request_log import log_problem, log_request

OPEN_PATHS = ("/", "/health")  # without a key: the page has no secrets, and load balancers read the other one
ROUTES = (*OPEN_PATHS, "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions", "/v1/embeddings")
_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::\d*)?")  # an address of IPv6, or another one or a name; a port
_DISCONNECTED = "499"  # nginx's status for a client that has gone


def error_response(error: RequestError) -> Response:
    """Return the answer for an error."""
    return Response(json_bytes(error.body()), error.status, error.headers, "application/json")


def route_path(scope: Scope) -> str:
    """Return the path of a request below the place where the application is mounted."""
    return scope["path"].removeprefix(scope.get("root_path", ""))


class RequestRecorder:
    """Counts and logs requests, and answers failures of the code. It is the outermost middleware.

    Args:
        app: The next application.
        metrics: Counts requests.
    """

    def __init__(self, app: ASGIApp, metrics: ServerMetrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.monotonic(), 0

        async def sender(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, sender)
        except Exception as problem:
            log_problem(problem)
            if not status:
                await error_response(internal_error())(scope, receive, sender)
        finally:
            self._record(scope, status, time.monotonic() - begin)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        if scope.get(CANCELLED):
            self._metrics.cancelled.add(1)
        shown = _DISCONNECTED if scope.get(CANCELLED) or not status else str(status)
        path = scope["path"]
        known = route_path(scope)
        # Other paths are made by clients, and each label would stay in memory.
        route = known if known in ROUTES else "other"
        self._metrics.requests.add(1, route, shown)
        self._metrics.durations.observe(seconds, route)
        client = scope.get("client")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        log_request("-" if client is None else str(client[0]), method, path, shown, seconds)


class AccessGuard:
    """Checks the key of each request. If the server has no keys, it checks the host name instead.

    A page of another host can make its name refer to 127.0.0.1, and would then be of the same origin as this server.

    Args:
        app: The next application.
        api_keys: The keys.
        hosts: Host names that are accepted without keys, in addition to localhost and addresses.
    """

    def __init__(self, app: ASGIApp, api_keys: Sequence[str], hosts: Sequence[str]):
        self._app = app
        self._keys = [key.encode() for key in api_keys]
        self._hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._error(scope) if scope["type"] == "http" else None
        await (self._app if error is None else error_response(error))(scope, receive, send)

    def _error(self, scope: Scope) -> RequestError | None:
        headers = Headers(scope=scope)
        if not self._keys:
            is_allowed = route_path(scope) == "/health" or self._is_own_host(headers.get("host", ""))
            return None if is_allowed else _wrong_host()
        if route_path(scope) in OPEN_PATHS:
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            return _unauthorised("You didn't provide an API key: send the header 'Authorization: Bearer KEY'.", None)
        sent = key.strip().encode("latin-1", "replace")
        # All keys are compared, so that the time does not depend on which one matches.
        matches = [hmac.compare_digest(sent, known) for known in self._keys]
        return None if any(matches) else _unauthorised("Incorrect API key provided.", "invalid_api_key")

    def _is_own_host(self, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        return match is not None and (match[2] in self._hosts or _is_address(match[1] or match[2]))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _wrong_host() -> RequestError:
    message = "The header 'Host' names another host. Start the server with --allow-host NAME, or with an API key."
    return RequestError(403, message, param=None, code="host_not_allowed")


def _unauthorised(message: str, code: str | None) -> RequestError:
    headers: dict[str, Any] = {"WWW-Authenticate": "Bearer"}
    return RequestError(401, message, code=code, headers=headers)
