"""What every test shares."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.conformance.levels import drawn, drawn_share

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
        "--full", action="store_true", help="run all of what is sampled: every CPU level, every share of the cases"
    )


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether all is to be run of what is sampled otherwise."""
    return bool(pytestconfig.getoption("--full"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with the parameter `level`, each case runs at one of its levels; of one with `share`, one share of its cases.

    With `--full`, or where tests are named with their parameters, all are run.
    """
    if not config.getoption("--full") and not any("[" in argument for argument in config.args):
        items[:] = sampled(items)


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, but each case only at the level, and of each test only the share, that is drawn for it."""
    levels: dict[str, list[str]] = {}
    for item in items:
        if level := _parameter(item, "level"):
            levels.setdefault(_case(item), []).append(level)
    return [item for item in items if _is_drawn(item, levels)]


def _is_drawn(item: pytest.Item, levels: dict[str, list[str]]) -> bool:
    level, share = _parameter(item, "level"), _parameter(item, "share")
    if share is not None and share != drawn_share(_case(item).replace(f"share{share}", "SHARE")):
        return False
    return level is None or drawn(_case(item), levels[_case(item)]) == level


def _case(item: pytest.Item) -> str:
    """The name of a test's case, without its level."""
    test, _, parameters = item.nodeid.partition("[")
    level = _parameter(item, "level")
    return f"{test}[{parameters if level is None else parameters.replace(level, 'LEVEL')}"


def _parameter(item: pytest.Item, name: str) -> Any:
    call = getattr(item, "callspec", None)
    return call.params.get(name) if call is not None else None
