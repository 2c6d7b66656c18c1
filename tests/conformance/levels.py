"""The CPU levels that compiled tests are compiled for, so that results do not depend on the machine that runs the tests.

A run has each case at one level, which is drawn at random, or at all levels: see `tests/drawing.py`. Code that this
machine cannot run is only compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.drawing import Test, drawn

if TYPE_CHECKING:
    from tests.conformance.compiled import Program

LEVELS = ("host", "x86-64-v2", "x86-64-v3")
# Usually compiled but not run, so it is drawn for few cases.
FOREIGN = "aarch64"
WEIGHTS = {FOREIGN: 0.15}


def at_any_level(*more: str) -> Callable[[Test], Test]:
    """Parametrise a test with `level`, one of `LEVELS` or `more`. A run has one level for each case."""
    return drawn("level", (*LEVELS, *more), weights=WEIGHTS)


def skip_if_not_run(level: str | None, programs: Sequence[Program]) -> None:
    """Skip the rest of a test if this machine cannot run its programs. They have been compiled."""
    reasons = {program.lacks for program in programs} - {None}
    if reasons:
        pytest.skip(f"compiled for {level} and not run: {reasons.pop()}")
