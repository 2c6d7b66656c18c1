"""Locks that outlive interrupts and forks, and what else a forked process inherits from threads that it does not have."""

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

# The packages whose imports a fork waits for: ours, and those that we import when they are first needed.
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
    )
)
_IMPORT_S = 10.0  # how long a fork waits for them
_POLL_S = 0.002

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
# In a forked process: the locks that threads of the parent held when it was forked.
_abandoned: weakref.WeakSet[Any] = weakref.WeakSet()


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


def is_abandoned(lock: Any) -> bool:
    """Whether another thread held a lock when this process was forked. What it was changing may be half changed."""
    return lock in _abandoned


def _release_locks() -> None:
    """In a forked child: release the locks of threads that exist in the parent only."""
    _abandoned.clear()
    for lock in list(_locks):
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()
            _abandoned.add(lock)


# --- modules that are being imported ------------------------------------------------------------------

# Python locks each module while a thread imports it, and a forked process inherits that lock from a thread that it does not
# have: its own import of the module would wait for ever. So a fork waits until other threads have imported what they are
# importing. If that takes too long, the child imports the module anew.


def _foreign_imports() -> Iterator[tuple[str, Any]]:
    """The names and locks of the modules that other threads are importing."""
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


# Before a fork, Python calls what was registered last first. These modules take their locks then, which an import may need:
# so they must have registered before.
_REGISTERED_BEFORE = logging, concurrent.futures.thread

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_imports, after_in_child=_after_fork_in_child)
