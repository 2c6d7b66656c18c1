"""Deferral of Python's garbage collection while many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def put_off() -> Generator[None]:
    """Context in which garbage collection is disabled.

    A collection visits all objects, so creating n objects takes more than O(n) time. If several threads use it at once,
    collection may resume when the first thread leaves. This only costs time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
