"""Calls that run in a thread of their own, one after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Order:
    """A thread that calls functions in the order in which they are submitted. Any thread may submit, and wait."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = ThreadPoolExecutor(1, "rlx-run")
        self._pending: set[Future[Any]] = set()
        self._here = threading.local()

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Call a function after all that were submitted before; returns its result to come."""
        if self._process != os.getpid():  # a fork copies no threads, and what the parent waits for is the parent's
            self._start()
        future = self._thread.submit(self._call, function, *arguments)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        self._here.is_worker = True
        return function(*arguments)

    def settle(self) -> None:
        """Wait until all that was submitted has run or was cancelled. What is called by a result's callback does not wait."""
        if not self._pending or self._process != os.getpid() or getattr(self._here, "is_worker", False):
            return
        self._thread.submit(_nothing).result()


def _nothing() -> None:
    """What is submitted to learn that all before it has run."""
