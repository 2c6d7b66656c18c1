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
    """A lock that its holder may take again, and that is free in a forked child, whoever held it in the parent."""
    made = threading.RLock()
    _locks.add(made)
    return made


def holding(lock: Any, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function while holding a lock.

    An interrupt may come before each line of Python. Where taking a lock, the call and giving the lock back are one line,
    and the lock is C's, there is none at which the lock would stay behind.
    """
    with lock: return function(*arguments)  # noqa: E701  # fmt: skip


def _after_fork_in_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
