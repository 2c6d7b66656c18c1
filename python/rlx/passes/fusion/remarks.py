"""Remarks of passes about ops. MLIR's bindings can only emit errors, so remarks have their own channel."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from contextvars import ContextVar

from rlx import mlir
from rlx.ir.location import describe

Receiver = Callable[[mlir.Location, str, str], None]


def _printed(location: mlir.Location, message: str, hint: str) -> None:
    place = describe(location) or "<unknown>"
    print(f"{place}: remark: {message}\n{place}: note: {hint}", file=sys.stderr)


_receiver: ContextVar[Receiver] = ContextVar("receiver of remarks", default=_printed)


def remark(location: mlir.Location, message: str, hint: str) -> None:
    """Emit a remark with a hint for the op at a location: to the current receiver, by default standard error."""
    _receiver.get()(location, message, hint)


@contextlib.contextmanager
def receive_remarks(receiver: Receiver) -> Generator[None]:
    """Send remarks that are emitted in this context to a function of location, message and hint."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)
