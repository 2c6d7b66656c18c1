"""Locks that survive interrupts and forks, and repair of import locks in forked processes."""

from __future__ import annotations

import concurrent.futures.thread
import importlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

# A fork waits for imports of these packages: RLX, and packages that RLX imports on first use.
_PACKAGES = frozenset(
    (
        "rlx",
        "numpy",
        "ml_dtypes",
        "torch_mlir",
        "mlir",
        "iree",
        "jax",
        "jaxlib",
        "onnx",
        "torch",
        "llvmlite",
        "tokenizers",
        "llguidance",
    )
)
_IMPORT_S = 10.0  # seconds that a fork waits for imports
_POLL_S = 0.002

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
# In a forked process: locks that threads of the parent held at the fork.
_abandoned: weakref.WeakSet[Any] = weakref.WeakSet()


def make_lock() -> Any:
    """Return a reentrant lock that is free in a forked child, even if a thread of the parent held it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def holding(lock: Any, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function while holding a lock.

    An interrupt (`KeyboardInterrupt`) may come between two lines of Python. Here one line takes the lock, calls the
    function and releases the lock. The lock is implemented in C, so an interrupt cannot leave it locked.
    """
    with lock: return function(*arguments)  # noqa: E701  # fmt: skip


def is_abandoned(lock: Any) -> bool:
    """Whether another thread held a lock at the fork of this process. Its data may be half changed."""
    return lock in _abandoned


def _release_locks() -> None:
    """In a forked child: release the locks of threads that exist only in the parent."""
    _abandoned.clear()
    for lock in list(_locks):
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()
            _abandoned.add(lock)


# --- modules that are being imported ------------------------------------------------------------------

# Python locks each module while a thread imports it. A forked process inherits the lock but not the thread, so its own
# import of the module would wait forever. Therefore a fork waits until other threads have finished their imports. If
# that takes too long, the child imports the module again.


def _foreign_imports() -> Iterator[tuple[str, Any]]:
    """Yield the names and locks of the modules that other threads are importing."""
    here = threading.get_ident()
    table: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})  # type: ignore[attr-defined]
    for name, reference in list(table.items()):
        lock = reference()
        if getattr(lock, "owner", None) not in (None, here):
            yield name, lock


def _wait_for_imports() -> None:
    end = time.monotonic() + _IMPORT_S
    while any(name.partition(".")[0] in _PACKAGES for name, _ in _foreign_imports()) and time.monotonic() < end:
        time.sleep(_POLL_S)


def _release_imports() -> None:
    for name, _ in list(_foreign_imports()):
        importlib._bootstrap._module_locks.pop(name, None)  # type: ignore[attr-defined]
        sys.modules.pop(name, None)


def _after_fork_in_child() -> None:
    _release_locks()
    _release_imports()


# Before a fork, Python calls registered functions in reverse order. These modules take their locks at that point, and
# an import may need them, so they must register first.
_REGISTERED_BEFORE = logging, concurrent.futures.thread

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_imports, after_in_child=_after_fork_in_child)
