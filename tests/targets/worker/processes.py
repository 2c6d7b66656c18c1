"""Helpers that observe processes from outside."""

from __future__ import annotations

import time
from collections.abc import Callable


def is_gone(pid: int) -> bool:
    """Whether a process has ended. A zombie that waits for its adoptive parent has also ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return True


def wait_until(condition: Callable[[], object], seconds: float = 30) -> bool:
    """Wait until a condition holds, and return whether it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False
