"""The CPUs that compiled tests are compiled for, so that what the tests find does not depend on the machine that runs them.

A run has each case at one of them, which is drawn, or at all: see `tests/drawing.py`. What this machine cannot run is only
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from tests.drawing import Test, drawn

if TYPE_CHECKING:
    from tests.conformance.compiled import Program

LEVELS = ("host", "x86-64-v2", "x86-64-v3")
# Compiled for, and hardly ever run: so it is drawn for few.
FOREIGN = "aarch64"
WEIGHTS = {FOREIGN: 0.15}


def at_any_level(*more: str) -> Callable[[Test], Test]:
    """Parametrise a test with `level`, one of `LEVELS` or another: of each case, a run has one."""
    return drawn("level", (*LEVELS, *more), weights=WEIGHTS)


def skip_if_not_run(level: str | None, programs: Sequence[Program]) -> None:
    """Skip the rest of a test whose programs this machine cannot run; they have been compiled."""
    reasons = {program.lacks for program in programs} - {None}
    if reasons:
        pytest.skip(f"compiled for {level} and not run: {reasons.pop()}")
