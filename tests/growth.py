"""How work grows with the size of what is worked on: what a clock would say on a machine that does nothing else."""

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
    """How many instructions of Python our code runs. What C does in one of them is not seen."""
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
    """Work grows no faster than in proportion.

    Args:
        work: Prepares what is to be done for a size, and gives the function that does it.
        small: A size.
        large: A size, several times as large.
    """
    work(small)()  # caches are full from here on
    few, many = steps(work(small)), steps(work(large))
    assert many < 1.25 * large / small * few, f"{few} steps for {small}, {many} for {large}"
