"""The cycle counter, compared with the operating system's monotonic clock."""

from __future__ import annotations

import importlib.machinery
import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rlx.native
from rlx.tick import Tick
from rlx.version import __version__

# Python code that makes `rlx._native` impossible to import, even if it is installed.
BLOCK_NATIVE = "import sys; sys.modules['rlx._native'] = None\n"


def run_python(program: str) -> str:
    """Run a program in a fresh interpreter and return its output."""
    package_root = Path(rlx.native.__file__).parents[1]
    program = f"import sys; sys.path.insert(0, {str(package_root)!r})\n{program}"
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_native_module_is_compiled_and_current() -> None:
    native = rlx.native.native()
    assert native.__file__ is not None
    assert native.__file__.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    assert native.__version__ == __version__


def test_source_is_the_processors_counter() -> None:
    assert Tick.source in {"rdtsc", "cntvct", "steady_clock"}
    processor = Path("/proc/cpuinfo")
    if processor.exists() and "nonstop_tsc" in processor.read_text():
        assert Tick.source == "rdtsc"


def test_is_monotone() -> None:
    ticks = [Tick.now() for _ in range(10_000)]
    steps = [later - earlier for earlier, later in itertools.pairwise(ticks)]
    assert min(steps) >= 0
    assert ticks[-1] - ticks[0] > 0


def test_agrees_with_the_monotonic_clock() -> None:
    errors = []
    for _ in range(10):
        clock_start, start = time.perf_counter_ns(), Tick.now()
        time.sleep(0.02)
        end, clock_end = Tick.now(), time.perf_counter_ns()
        errors.append(abs((end - start) / (clock_end - clock_start) - 1))
        if errors[-1] < 0.01:
            return
    pytest.fail(f"no span of 20 ms agreed with perf_counter_ns within 1 %: relative errors {errors}")


def test_elapsed_is_never_negative_and_grows() -> None:
    start = Tick.now()
    first = start.elapsed_ns()
    time.sleep(0.002)
    second = start.elapsed_ns()
    assert 0 <= first < second
    assert second >= 2_000_000 * 0.99


def test_elapsed_of_a_future_tick_is_zero() -> None:
    later = Tick(Tick.now()._count + 10**12)
    assert later.elapsed_ns() == 0
    assert Tick.now() - later < 0


def test_subtraction() -> None:
    start, end = Tick(1_000), Tick(1_001_000)
    assert isinstance(end - start, int)
    assert end - start == -(start - end) > 0
    assert start - start == 0
    with pytest.raises(TypeError):
        _ = start - 3  # type: ignore[operator]


def test_first_use_from_many_threads_gives_one_rate() -> None:
    program = """
import threading
from rlx.tick import Tick
spans = []
start, end = Tick(0), Tick(10**9)
threads = [threading.Thread(target=lambda: spans.append(end - start)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(spans), len(set(spans)))
"""
    assert run_python(program).split() == ["8", "1"]


def test_calibration_lets_other_threads_run() -> None:
    program = """
import threading
from rlx.tick import Tick
start = Tick.now()
done = threading.Event()
thread = threading.Thread(target=lambda: (start.elapsed_ns(), done.set()))
thread.start()
turns = 0
while not done.is_set(): turns += 1
thread.join()
print(turns)
"""
    # On a busy machine, the main thread may get no processor during the 5 ms of a calibration.
    assert any(int(run_python(program)) > 100 for _ in range(10))


def test_cost_per_call() -> None:
    def cost_ns() -> float:
        calls = 10_000
        start = time.perf_counter_ns()
        for _ in range(calls):
            Tick.now()
        return (time.perf_counter_ns() - start) / calls

    # About 0.2 µs where it was measured. A calibration in each call would cost 5 ms.
    assert min(cost_ns() for _ in range(5)) < 5_000


def test_import_does_not_load_the_native_module() -> None:
    program = """
import rlx, rlx.tick
print('rlx._native' in sys.modules)
rlx.tick.Tick.now()
print('rlx._native' in sys.modules)
"""
    assert run_python(program).split() == ["False", "True"]


def test_missing_native_module_says_how_to_build_it() -> None:
    program = (
        BLOCK_NATIVE
        + """
from rlx.support.errors import Error
from rlx.tick import Tick
for use in (Tick.now, lambda: Tick.source, Tick(0).elapsed_ns, lambda: Tick(1) - Tick(0)):
    try:
        use()
    except Error as error:
        print(repr(str(error)))
"""
    )
    messages = run_python(program).splitlines()
    assert len(messages) == 4
    for message in messages:
        assert "rlx._native" in message
        assert "`pip install .`" in message
        assert "cmake --build build" in message
