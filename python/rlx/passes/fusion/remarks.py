"""Remarks: what a pass has to say of an op that is no error. MLIR's bindings emit errors only, so these go their own way."""

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
    """Say something of the op at a location, with what to do about it: on standard error, where nobody else receives it."""
    _receiver.get()(location, message, hint)


@contextlib.contextmanager
def received(receiver: Receiver) -> Generator[None]:
    """Have remarks that are made inside go to a function of location, message and hint."""
    token = _receiver.set(receiver)
    try:
        yield
    finally:
        _receiver.reset(token)
