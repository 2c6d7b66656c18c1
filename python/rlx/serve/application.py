"""`application`: OpenAI's HTTP interface for a model, as an ASGI application."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlx.ir.calls import with_call_errors
from rlx.llm import LLM
from rlx.serve.settings import ServerSettings
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from starlette.applications import Starlette


@with_call_errors
def application(
    model: LLM,
    *,
    alias: str | None = None,
    api_keys: Sequence[str] = (),
    parallel: int = 4,
    queue: int = 64,
    timeout: float = 600.0,
    body_limit: int = 4 << 20,
    body_timeout: float = 30.0,
    hosts: Sequence[str] = (),
    cors: Sequence[str] = (),
) -> Starlette:
    """Return OpenAI's HTTP interface for a model, as a Starlette application. Any ASGI server runs it.

    Args:
        model: The model. It is not closed with the application.
        alias: The name of the model for clients; by default that of its file.
        api_keys: Keys that clients must send. Without them all clients are served.
        parallel: The largest number of requests that are computed at once.
        queue: The largest number of requests that wait; the next one is refused (429).
        timeout: The largest number of seconds for a request, waiting included.
        body_limit: The largest number of bytes of a request.
        body_timeout: The largest number of seconds in which a request must arrive.
        hosts: Host names that clients without a key may use, in addition to localhost and addresses.
        cors: Origins of web pages of other hosts that browsers let use the server, such as `"https://example.com"`.

    Raises:
        Error: A value is not valid, or Starlette is not installed.
    """
    if not isinstance(model, LLM):
        raise Error(
            f"expected a language model, got {short_repr(model)}", hint="rlx.llm.load returns one: rlx.llm.load(path)"
        )
    settings = ServerSettings(alias, api_keys, parallel, queue, timeout, body_limit, body_timeout, hosts, cors)
    import_package("starlette", "rlx.serve")
    return importlib.import_module("rlx.serve.routes").routes_of(model, settings)
