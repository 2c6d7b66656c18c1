"""`application`: OpenAI's HTTP interface for a model, as an ASGI application."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Unpack

from rlx.ir.calls import with_call_errors
from rlx.llm import LLM
from rlx.serve.settings import ServerKeywords, ServerSettings
from rlx.support.errors import Error
from rlx.support.options import takes_options
from rlx.support.packages import import_package
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from starlette.applications import Starlette


@with_call_errors
@takes_options(ServerSettings)
def application(model: LLM, **options: Unpack[ServerKeywords]) -> Starlette:
    """Return OpenAI's HTTP interface for a model, as a Starlette application. Any ASGI server runs it.

    Args:
        model: The model. It is not closed with the application.
        options: The settings of the server.

    Raises:
        Error: A value is not valid, or Starlette is not installed.
    """
    if not isinstance(model, LLM):
        raise Error(
            f"expected a language model, got {short_repr(model)}", hint="rlx.llm.load returns one: rlx.llm.load(path)"
        )
    settings = ServerSettings(**options)
    import_package("starlette", "rlx.serve")
    return importlib.import_module("rlx.serve.routes").routes_of(model, settings)
