"""Calls that no interrupt can break off: they run in a thread of their own, and the caller only waits.

A `KeyboardInterrupt` is raised between any two steps of the main thread's code, also inside `finally` and between
acquiring a lock and the `try` behind it. It never comes to another thread.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from rlx.ir.errors import Error

T = TypeVar("T")

# Waiting is done in slices, so that a signal is noticed even on systems where it does not wake a waiter.
_SLICE_S = 1.0


class Call(Generic[T]):
    """One call of a function in a thread of its own.

    Args:
        function: Takes this object.

    Attributes:
        cancelled: Whether whoever waited has given up.
        signals: Gets an item when the call is cancelled.
    """

    def __init__(self, function: Callable[[Call[T]], T]) -> None:
        self.cancelled = False
        self.signals: SimpleQueue[str] = SimpleQueue()
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        # Locks and queues of C are either done or not when an interrupt comes, and `threading.Event` is neither.
        self._ended = _thread.allocate_lock()
        self._ended.acquire()

    def start(self) -> None:
        """Begin, without waiting.

        Raises:
            Error: The system gives no more threads.
        """
        try:
            _thread.start_new_thread(self._run, ())  # `Thread.start` waits on an `Event`
        except RuntimeError as problem:
            raise Error(f"cannot start a thread: {problem}") from None

    def result(self) -> T:
        """Begin, wait, and return or raise what the function does.

        Whatever else is raised here, an interrupt, cancels the call: it ends by itself, soon.
        """
        try:
            self.start()
            self._wait()
        except BaseException:
            self.cancel()
            raise
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._value

    def cancel(self) -> None:
        """Tell the function that nobody waits any more."""
        self.cancelled = True
        self.signals.put("cancelled")

    def _wait(self) -> None:
        while not self._ended.acquire(timeout=_SLICE_S):
            pass

    def _run(self) -> None:
        try:
            self._value = self._function(self)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.release()
