"""Sequential execution of calls in a separate thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from rlx.support.errors import ExecutionError

T = TypeVar("T")


class Order:
    """A thread that calls functions in the order of submission. Any thread may submit and wait."""

    def __init__(self) -> None:
        self._start()
        _orders.add(self)

    def _start(self) -> None:
        self._thread = ThreadPoolExecutor(1, "rlx-run")
        self._pending: set[Future[Any]] = set()
        self._here = threading.local()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Call a function after all that were submitted before. Returns a future of its result."""
        future = self._thread.submit(self._call, function, *arguments)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        self._here.is_worker = True
        return function(*arguments)

    def settle(self) -> None:
        """Wait until all submitted calls have run or were cancelled. Callbacks of results do not wait."""
        if not self._pending or getattr(self._here, "is_worker", False):
            return
        self._thread.submit(_nothing).result()

    def _after_fork(self) -> None:
        """Cancel pending calls in a forked child, which lacks the thread: they would never finish."""
        pending = list(self._pending)
        self._start()
        for future in pending:
            # The parent's thread may hold the lock, and the callbacks belong to the parent.
            future._condition = threading.Condition()  # type: ignore[attr-defined]
            future._done_callbacks.clear()  # type: ignore[attr-defined]
            if not future.done():
                future.set_exception(_abandoned())


_orders: weakref.WeakSet[Order] = weakref.WeakSet()


def _abandoned() -> ExecutionError:
    return ExecutionError(
        "a run that was submitted before this process was forked ends in the parent only",
        hint="submit it again here, or start processes with multiprocessing's 'spawn'",
    )


def _after_fork_in_child() -> None:
    for order in list(_orders):
        order._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _nothing() -> None:
    """Do nothing. Submitted to learn that all earlier calls have run."""
