"""Interrupts at chosen steps of the calling thread: deterministic effects of Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

Step = tuple[str, str, int]  # file, event, line


class Interrupts:
    """Runs a function and raises `KeyboardInterrupt` at one of its steps in some modules.

    Args:
        modules: The traced modules: each line, and each call and return.
    """

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._files = {str(Path(str(module.__file__)).resolve()) for module in modules}

    def steps(self, function: Callable[[], Any]) -> list[Step]:
        """Return the steps of a function, each once, in order."""
        found: dict[Step, None] = {}
        self._traced(function, lambda step: found.setdefault(step))
        return list(found)

    def at(self, step: Step, function: Callable[[], Any]) -> bool:
        """Call a function and interrupt it at a step. Return whether the interrupt was raised to the caller."""
        hit = False

        def visit(here: Step) -> None:
            nonlocal hit
            if here == step and not hit:
                hit = True
                raise KeyboardInterrupt

        try:
            self._traced(function, visit)
        except KeyboardInterrupt:
            return True
        assert not hit, f"the interrupt at {step} was swallowed"
        return False

    def _traced(self, function: Callable[[], Any], visit: Callable[[Step], Any]) -> None:
        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_code.co_filename not in self._files or _is_finalizer(frame):
                return None
            if event != "exception":
                visit((frame.f_code.co_filename, event, frame.f_lineno))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)


def _is_finalizer(frame: FrameType | None) -> bool:
    """Whether a frame is `__del__` or was called by it: Python ignores exceptions there."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
