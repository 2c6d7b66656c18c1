"""Locks that outlive interrupts and forks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def make_lock() -> Any:
    """A lock that the thread that holds it may take again, and that is free in a forked child process, even if a thread of
    the parent held it.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def holding(lock: Any, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function while holding a lock.

    An interrupt (`KeyboardInterrupt`) may come between two lines of Python. Here the lock is taken, the function called and
    the lock released in one line, and the lock is implemented in C: so no interrupt can leave it locked.
    """
    with lock: return function(*arguments)  # noqa: E701  # fmt: skip


def _after_fork_in_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
