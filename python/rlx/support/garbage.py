"""Python's search for garbage, put off while many objects are made that stay."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def put_off() -> Generator[None]:
    """No search for garbage inside: each goes through all objects, so that making n of them takes more than n times as long.

    Where threads overlap, the search may begin again when the first of them has ended, which costs time and nothing else.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
