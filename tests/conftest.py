"""Shared configuration of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.drawing import MARK, SEED, Call, command, draw, is_drawn, left_out_of_quick_runs, number_of_seed

# Compiled programs are cached in the build folder of the tree, not in the user's cache. A second run is quicker.
os.environ.setdefault("RLX_CACHE_DIR", str(Path(__file__).resolve().parents[1] / "build" / "test-cache"))

# The tests use one process per core. Threads of the compiler would take 7 % more processor time.
os.environ.setdefault("RLX_COMPILE_THREADS", "1")

# A shell makes its background jobs, and their children, ignore interrupts. The commands under test must handle them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A first compilation, or other tests on the machine, may delay any single example. Failed examples are not stored, so
# that the examples depend only on the seed.
settings.register_profile("rlx", deadline=None, database=None)
settings.load_profile("rlx")
# Hypothesis also draws constants of all imported modules: examples would depend on the other tests of the process.
# Reading the modules takes seconds.
providers._get_local_constants = lambda: providers._local_constants

# Tests make many objects, and few cycles. With the thresholds of Python, looking for these takes 15 % of the time.
gc.set_threshold(100_000, 20, 50)

_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--seed`, `--quick` and `--full`, which control the sample of tests (`tests/drawing.py`)."""
    parser.addoption("--seed", help=f"draw with another seed than {SEED}: a number, or 'random'")
    parser.addoption("--quick", action="store_true", help="run one in five of the costly tests")
    parser.addoption("--full", action="store_true", help="draw nothing: run all tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Set the seed, also for hypothesis. Processes of pytest-xdist get it from their parent."""
    started = getattr(config, "workerinput", {})
    config.stash[_SEED] = started["seed"] if "seed" in started else number_of_seed(config.getoption("--seed"))
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.stash[_SEED])
    config.addinivalue_line(
        "markers", "drawn(name, of_each, weights, groups): a run has some values of a parameter only"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the seed to a process of pytest-xdist."""
    node.workerinput["seed"] = node.config.stash[_SEED]


def pytest_report_header(config: pytest.Config) -> str:
    """Report which tests are run."""
    which = ", all tests" if config.getoption("--full") else ", quick" if config.getoption("--quick") else ""
    return f"seed: {config.stash[_SEED]}{which}"


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Draw a sample, unless all tests are requested or tests are named with their parameters.

    Pytest makes a test of each remaining set of parameters: making all of them would take each process several seconds.
    """
    yield
    config = metafunc.config
    definition, calls = metafunc.definition, metafunc._calls
    named = any("[" in argument for argument in config.args)
    if named or config.getoption("--full") or definition.get_closest_marker(MARK) is None:
        return
    drawn = draw([Call(definition, callspec) for callspec in calls], config.stash[_SEED])
    config.hook.pytest_deselected(items=[definition] * (len(calls) - len(drawn)))
    calls[:] = [call.callspec for call in drawn]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most of the costly tests of a quick run, unless tests are named."""
    if not config.getoption("--quick") or config.getoption("--full") or any("::" in word for word in config.args):
        return
    left_out = left_out_of_quick_runs([item.nodeid for item in items], config.stash[_SEED])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def pytest_collection_finish() -> None:
    """Keep Python from looking for garbage among the tests, which live until the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the command that repeats a failed test to its report."""
    report = yield
    if report.failed and is_drawn(item):
        report.sections.append(("how to repeat it", command(item, item.config.stash[_SEED])))
    return report


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Return the seed of everything random in a test."""
    return pytestconfig.stash[_SEED]


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Return whether all tests are run instead of a sample."""
    return bool(pytestconfig.getoption("--full"))
