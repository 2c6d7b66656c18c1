"""Deferral of Python's garbage collection while many long-lived objects are created."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def put_off() -> Generator[None]:
    """Disable garbage collection inside. A collection visits all objects, so creating n of them takes more than O(n) time.

    If threads overlap, collection may resume when the first of them leaves. This costs time only.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
