"""What every test shares."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conformance.levels import drawn

# Compiled programs are kept in the tree's own build folder, not in the user's cache; a second run is quicker.
os.environ.setdefault("RLX_CACHE_DIR", str(Path(__file__).resolve().parents[1] / "build" / "test-cache"))

# A shell has its background jobs ignore interrupts, and whatever they start: the commands under test are to heed them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A first compilation, or the other tests on the machine, may hold up any single example.
settings.register_profile("rlx", deadline=None)
settings.load_profile("rlx")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--full`: what is sampled otherwise is run in full."""
    parser.addoption(
        "--full", action="store_true", help="run compiled tests at every CPU level, not each at one of them"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with the parameter `level`, each case runs at one of its levels.

    With `--full`, or where tests are named with their parameters, all are run.
    """
    if not config.getoption("--full") and not any("[" in argument for argument in config.args):
        items[:] = sampled(items)


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, but each case only at the level that is drawn for it."""
    levels: dict[str, list[str]] = {}
    for item in items:
        if level := _level_of(item):
            levels.setdefault(_case(item, level), []).append(level)
    return [
        item
        for item in items
        if (level := _level_of(item)) is None or drawn(case := _case(item, level), levels[case]) == level
    ]


def _case(item: pytest.Item, level: str) -> str:
    test, _, parameters = item.nodeid.partition("[")
    return f"{test}[{parameters.replace(level, 'LEVEL')}"


def _level_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    return call.params.get("level") if call is not None else None
