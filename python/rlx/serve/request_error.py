"""`RequestError`: an error that a client receives, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INVALID = "invalid_request_error"


class RequestError(Exception):
    """An error that ends a request.

    Attributes:
        status: The HTTP status.
        message: The text for the client.
        kind: The entry `type` of the answer.
        param: The parameter of the request that is wrong, or None.
        code: A name that programs can test, or None.
        headers: Headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.kind, self.param, self.code = status, message, kind, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the answer."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def invalid(message: str, param: str | None = None, code: str | None = None) -> RequestError:
    """Return the error for a request that is not valid or not supported (400)."""
    return RequestError(400, message, param=param, code=code)


def context_exceeded(count: int, context: int, param: str) -> RequestError:
    """Return the error for a prompt that does not fit into the context (400)."""
    limit = f"This model's maximum context length is {context} tokens."
    message = f"{limit} However, your {param} resulted in {count} tokens. Please reduce the length of the {param}."
    return invalid(message, param, "context_length_exceeded")


def text_too_long(characters: int, context: int, param: str) -> RequestError:
    """Return the error for a text that is too long for the context, whatever its tokens are (400)."""
    limit = f"This model's maximum context length is {context} tokens."
    message = f"{limit} However, your {param} resulted in a text of {characters} characters, which has more tokens."
    return invalid(f"{message} Please reduce the length of the {param}.", param, "context_length_exceeded")


def internal_error() -> RequestError:
    """Return the error for a failure of the server (500). Its cause is in the log, not in the answer."""
    return RequestError(500, "The server had an error while processing your request.", kind="server_error")


def too_many_connections() -> RequestError:
    """Return the error for a connection that is one too many (503)."""
    return RequestError(503, "The server has too many connections.", kind="server_error", headers={"Retry-After": "1"})


def shutting_down() -> RequestError:
    """Return the error for a request that arrives or waits while the server shuts down (503)."""
    return RequestError(
        503, "The server is shutting down.", kind="server_error", code="shutting_down", headers={"Retry-After": "5"}
    )
