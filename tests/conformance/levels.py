"""The CPUs that compiled tests are compiled for, so that what the tests find does not depend on the machine that runs them.

A test with a parameter `level` runs for all of them with `make test-all` (`pytest --full`). With `make test` each of its cases
runs for one, drawn by its name, so that it is the same every time; a case that is named with its level is run as named:
`pytest "tests/conformance/test_compiled.py::test_compiled[cast-0-x86-64-v3]"`. What this machine cannot run is compiled only.

A test with a parameter `share`, called `share0` and so on in its name, has its cases in `SHARES` shares, and runs one of them
with `make test`, drawn in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conformance.compiled import Program

LEVELS = ("host", "x86-64-v2", "x86-64-v3")
SHARES = 4
# Compiled for, and hardly ever run.
FOREIGN = "aarch64"
# Of those that have the few cases of random graphs and of derivatives meet all levels.
_SEED = 654
_OF_WHICH_FOREIGN = 16


def drawn(case: str, levels: Sequence[str]) -> str:
    """The level that a case is run at if it is run once. Few are compiled for a foreign CPU, where they are not run.

    Args:
        case: Its name, without the level.
        levels: Those there are.
    """
    number = int.from_bytes(hashlib.sha256(f"{_SEED} {case}".encode()).digest()[:4])
    if number % _OF_WHICH_FOREIGN == 0 and FOREIGN in levels:
        return FOREIGN
    near = [level for level in levels if level != FOREIGN]
    return near[number // _OF_WHICH_FOREIGN % len(near)]


def drawn_share(case: str) -> int:
    """The share of a test's cases that is run if one is.

    Args:
        case: Its name, without share and level.
    """
    return int.from_bytes(hashlib.sha256(f"{_SEED} share of {case}".encode()).digest()[:4]) % SHARES


def skip_if_not_run(level: str | None, programs: Sequence[Program]) -> None:
    """Skip the rest of a test whose programs this machine cannot run; they have been compiled."""
    reasons = {program.lacks for program in programs} - {None}
    if reasons:
        pytest.skip(f"compiled for {level} and not run: {reasons.pop()}")
