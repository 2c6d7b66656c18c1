"""Calls that an interrupt cannot stop in the middle: they run in a separate thread, and the caller only waits.

A `KeyboardInterrupt` may be raised between any two steps of the main thread, even inside of `finally`, and between
acquiring a lock and the `try` after it. It is never raised in another thread.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from rlx.support.errors import Error

T = TypeVar("T")

# Waiting is repeated in short intervals, so that a signal is noticed even on systems where it does not end the wait.
_SLICE_S = 1.0


class ThreadCall(Generic[T]):
    """One call of a function in a separate thread.

    Args:
        function: The function; it is called with this object.

    Attributes:
        cancelled: Whether the caller has given up.
        signals: An item is put into this queue when the call is cancelled.
    """

    def __init__(self, function: Callable[[ThreadCall[T]], T]) -> None:
        self.cancelled = False
        self.signals: SimpleQueue[str] = SimpleQueue()
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        # An interrupt cannot stop operations on locks and queues that are implemented in C in the middle; a `threading.Event`
        # is implemented in Python.
        self._ended = _thread.allocate_lock()
        self._ended.acquire()

    def start(self) -> None:
        """Start the call, without waiting.

        Raises:
            Error: No thread can be started.
        """
        try:
            _thread.start_new_thread(self._run, ())  # `Thread.start` waits on an `Event`
        except RuntimeError as problem:
            raise Error(f"cannot start a thread: {problem}") from None

    def result(self) -> T:
        """Start the call, wait for it, and return its result or raise its exception.

        An interrupt here cancels the call, which then soon ends by itself.
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
        """Tell the function that its caller has stopped waiting."""
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
