"""A bar on a terminal that says how far a series of steps is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TextIO, TypeVar, cast

T = TypeVar("T")
_WIDTH = 30


def progress(items: Iterable[T], what: str, *, show: bool = True, stream: TextIO | None = None) -> Iterator[T]:
    """The items, with a bar on standard error as long as they are taken; nothing is shown where that is no terminal.

    Args:
        items: What there is a step for; if it has no length, steps are counted.
        what: What is done.
        show: False shows nothing.
        stream: Where to write instead.
    """
    stream = stream or cast("TextIO | None", sys.stderr)
    if not show or stream is None or not stream.isatty():  # there may be no standard error
        yield from items
        return
    total, started = len(items) if isinstance(items, Sized) else None, time.perf_counter()
    try:
        for done, item in enumerate(items):
            stream.write(f"\r\x1b[K{what} {_bar(done, total)} ({time.perf_counter() - started:.0f} s)")
            stream.flush()
            yield item
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _bar(done: int, total: int | None) -> str:
    if not total:
        return str(done)
    filled = _WIDTH * done // total
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}"
