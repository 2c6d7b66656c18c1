"""The current builder, which receives ops of calls without tensor arguments: the one being traced or evaluated."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

from rlx.ir.graph.builder import Tensor
from rlx.support.guards import is_sequence

_current: ContextVar[Any] = ContextVar("rlx_current_builder", default=None)


def current_builder() -> Any:
    """Return the builder of the innermost `emitting_into` of this thread or task; None outside."""
    return _current.get()


@contextlib.contextmanager
def emitting_into(builder: Any) -> Generator[None]:
    """Make calls without tensor arguments, such as `rlx.ops.iota((4,))`, emit into this builder."""
    token = _current.set(builder)
    try:
        yield
    finally:
        _current.reset(token)


def builder_of(values: Any) -> Any:
    """Return the builder of the first tensor among the values, also inside lists and tuples; None if there is none."""
    for value in values:
        if isinstance(value, Tensor):
            return value.builder
        if is_sequence(value):
            builder = builder_of(value)
            if builder is not None:
                return builder
    return None
