"""Use of the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlx.support.errors import Error
from rlx.support.packages import import_package


def tokenizers() -> Any:
    """Return the package `tokenizers`.

    Raises:
        Error: It is not installed.
    """
    return import_package("tokenizers", "a tokenizer")


@contextmanager
def converted(message: str) -> Iterator[None]:
    """Convert exceptions of the package `tokenizers` to an `Error` that starts with a message.

    For some damaged files, its Rust code panics. That panic is not an `Exception`.
    """
    try:
        yield
    except Error:
        raise
    except BaseException as problem:
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise Error(f"{message}: {problem}") from None
