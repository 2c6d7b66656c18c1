"""Calls of a program's main function in this process, with separate standard streams."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Output:
    """The output of a command, and its exit code."""

    code: int
    text: bytes
    errors: bytes = b""


def called(function: Callable[[], int], given: bytes) -> Output:
    """Call a program's main function here, with separate standard streams."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = function()
    finally:
        sys.stdin = before
    out.flush()
    errors.flush()
    return Output(code, out.buffer.getvalue(), errors.buffer.getvalue())  # type: ignore[attr-defined]
