"""Progress lines on a terminal, for a series of steps or a long operation."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TextIO, TypeVar, cast

from rlx.support.printable import printable

T = TypeVar("T")
_WIDTH = 30
# Delay before a line of `waiting` appears, and between its updates.
_SECONDS = 1.0
_on_screen = threading.Lock()


def progress(items: Iterable[T], what: str, *, show: bool = True, stream: TextIO | None = None) -> Iterator[T]:
    """Yield the items, with a progress bar on standard error; nothing is shown if that is not a terminal.

    Args:
        items: One item per step; without a length, steps are counted.
        what: The description of the work.
        show: False shows nothing.
        stream: The stream to write to instead.
    """
    stream, what = stream or cast("TextIO | None", sys.stderr), printable(what, keep="")
    if not show or stream is None or not stream.isatty():  # standard error may be missing
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


@contextlib.contextmanager
def waiting(what: str, *, stream: TextIO | None = None, plain: bool = False) -> Iterator[None]:
    """Show a description on standard error if the work takes over a second and standard error is a terminal.

    The line is removed at the end. Only the first of several concurrent calls shows a line.

    Args:
        what: The description: "compiling scorer for cpu".
        stream: The stream to write to instead.
        plain: Whether one line that stays is written if the stream is not a terminal.
    """
    stream, what = stream or cast("TextIO | None", sys.stderr), printable(what, keep="")
    is_terminal = stream is not None and stream.isatty()
    if stream is None or not (is_terminal or plain) or not _on_screen.acquire(blocking=False):
        yield
        return
    done = threading.Event()
    line = threading.Thread(
        target=_count_seconds if is_terminal else _tell_once, args=(what, stream, done), daemon=True
    )
    line.start()
    try:
        yield
    finally:
        done.set()
        line.join()
        _on_screen.release()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Return a context in which `waiting` shows nothing."""
    is_ours = _on_screen.acquire(blocking=False)
    try:
        yield
    finally:
        if is_ours:
            _on_screen.release()


def _tell_once(what: str, stream: TextIO, done: threading.Event) -> None:
    if not done.wait(_SECONDS):
        stream.write(f"{what} …\n")
        stream.flush()


def _count_seconds(what: str, stream: TextIO, done: threading.Event) -> None:
    started, has_written = time.perf_counter(), False
    while not done.wait(_SECONDS):
        stream.write(f"\r\x1b[K{what} ({time.perf_counter() - started:.0f} s)")
        stream.flush()
        has_written = True
    if has_written:
        stream.write("\r\x1b[K")
        stream.flush()
