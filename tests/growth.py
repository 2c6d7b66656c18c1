"""Growth of work with the size of its input, measured in Python instructions, which do not depend on the machine's load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import rlx

SMALL, LARGE = 40, 160
_OURS = str(Path(rlx.__file__).parent)


def steps(work: Callable[[], Any]) -> int:
    """Return the number of Python instructions of RLX's code. C code in an instruction is not counted."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def check_linear(work: Callable[[int], Callable[[], Any]], small: int = SMALL, large: int = LARGE) -> None:
    """Check that work grows at most linearly.

    Args:
        work: Prepares the work for a size, and returns the function that does it.
        small: A size.
        large: A size, several times as large.
    """
    work(small)()  # caches are full from here on
    few, many = steps(work(small)), steps(work(large))
    assert many < 1.25 * large / small * few, f"{few} steps for {small}, {many} for {large}"
