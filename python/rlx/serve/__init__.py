"""OpenAI's HTTP interface for a language model: `application` returns it as an ASGI application, `rlx serve` runs it."""

from __future__ import annotations

from rlx.serve.application import application

__all__ = ["application"]
