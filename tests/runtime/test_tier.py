"""`tier="auto"`: the quick program, the optimised one, and the change from one to the other between two runs."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.runtime import tier
from rlx.runtime.build import Build
from rlx.runtime.shared_data import SharedData
from rlx.runtime.tier import first_entries
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of

QUICK = ("numpy", "xla")
_X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold optimised programs back until this event is set."""
    event, entries = threading.Event(), Build.entries

    def delayed(self: Build) -> Any:
        if self.target.name == "cpu" and threading.current_thread().name == "rlx-tier":
            assert event.wait(60)
        return entries(self)

    monkeypatch.setattr(Build, "entries", delayed)
    yield event
    event.set()


def _linear(factor: float = 1.0) -> Any:
    g: Any = rlx.Graph("linear")
    g.set_outputs([g.tanh(g.input("x", (2, 3)) @ g.param("w", (3, 4))) * factor])
    return g


def _counter() -> Any:
    g: Any = rlx.Graph("counter")
    total = g.state("total", (2, 3), init=1.0)
    new = total + g.input("x", (2, 3))
    g.update(total, new)
    g.set_outputs([new])
    return g


def _auto(graph: Any, **options: Any) -> rlx.Program:
    return rlx.Session().compile(graph, tier="auto", cache=False, **options)


def test_results_and_tiers(gate: threading.Event) -> None:
    w = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    program = _auto(_linear(), params={"w": w})
    assert program.tier == "quick" and "linear" in repr(program)
    np.testing.assert_allclose(program.run({"x": _X})[0], np.tanh(_X @ w), rtol=1e-5)
    gate.set()
    program.wait_for_best()
    assert program.tier == "best" and program.artifact.target == "cpu"
    np.testing.assert_allclose(program.run({"x": _X})[0], np.tanh(_X @ w), rtol=1e-5)


def _product(rows: int) -> Any:
    g: Any = rlx.Graph("product")
    g.set_outputs([g.input("x", (rows, 2048)) @ g.input("w", (2048, 2048))])
    return g


def _loop() -> Any:
    g: Any = rlx.Graph("loop")
    last, _ = g.scan(lambda carry, _: (carry * 2.0, carry), g.input("x", (2, 3)), length=1000)
    g.set_outputs([last])
    return g


@pytest.mark.parametrize(
    ("graph", "target"),
    [(_linear, "numpy"), (lambda: _product(8), "numpy"), (lambda: _product(2048), "xla"), (_loop, "xla")],
)
def test_graphs_with_few_operations_are_evaluated_first(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch, graph: Callable[[], Any], target: str
) -> None:
    entries, _, improve = first_entries(_build(graph()))
    (entry,) = entries.values()
    assert entry.function is not None and entry.function.artifact.target == target and improve is not None


def _build(graph: Any) -> Build:
    return Build(graph, target_of("cpu"), CompileOptions())


def test_best_is_ready_at_once() -> None:
    program = rlx.Session().compile(_linear())
    program.wait_for_best()
    assert program.tier == "best"


def test_states_go_on(gate: threading.Event) -> None:
    program = _auto(_counter())
    for count in range(1, 4):
        np.testing.assert_array_equal(program.run({"x": _X})[0], 1 + count * _X)
    gate.set()
    program.wait_for_best()
    np.testing.assert_array_equal(program.state("total"), 1 + 3 * _X)
    np.testing.assert_array_equal(program.run({"x": _X})[0], 1 + 4 * _X)
    program.reset_state()
    np.testing.assert_array_equal(program.run({"x": _X})[0], 1 + _X)


@pytest.mark.parametrize("runs_before", [0, 1])
def test_weights_and_states_that_are_set_in_between(gate: threading.Event, runs_before: int) -> None:
    g: Any = rlx.Graph("scaled")
    scale = g.state("scale", (), init=2.0)
    g.set_outputs([g.input("x", (2, 3)) @ g.param("w", (3, 4)) * scale])
    program = _auto(g)
    w = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    program.set_params({"w": w})
    for _ in range(runs_before):
        np.testing.assert_allclose(program.run({"x": _X})[0], 2 * _X @ w, rtol=1e-5)
    program.set_state("scale", 3.0)
    program.set_params({"w": 2 * w})
    gate.set()
    program.wait_for_best()
    np.testing.assert_allclose(program.run({"x": _X})[0], 6 * _X @ w, rtol=1e-5)
    assert program.state("scale") == 3


def test_runs_while_the_programs_change(gate: threading.Event) -> None:
    """Each run of several threads counts exactly once, in the quick or in the optimised program."""
    program, runs, failures = _auto(_counter()), 200, []
    program.run({"x": np.ones((2, 3), np.float32)})

    def work() -> None:
        try:
            for _ in range(runs):
                program.run({"x": np.ones((2, 3), np.float32)})
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    gate.set()
    futures = [program.run_async({"x": np.ones((2, 3), np.float32)}) for _ in range(50)]
    for thread in threads:
        thread.join()
    program.wait_for_best()
    assert not failures
    assert len({float(future.result()[0][0, 0]) for future in futures}) == 50
    np.testing.assert_array_equal(program.state("total"), np.full((2, 3), 1 + 1 + 3 * runs + 50, np.float32))


def test_entry_points_share_states(gate: threading.Event) -> None:
    reading: Any = rlx.Graph("reading")
    reading.set_outputs([reading.state("total", (2, 3), init=1.0) * 2])
    program = _auto({"add": _counter(), "read": reading})
    add, read = program["add"], program["read"]
    add.run({"x": _X})
    np.testing.assert_array_equal(read.run()[0], 2 * (1 + _X))
    gate.set()
    read.wait_for_best()
    assert program["add"] is add and add.artifact.target == read.artifact.target == "cpu"
    add.run({"x": _X})
    np.testing.assert_array_equal(read.run()[0], 2 * (1 + 2 * _X))


def test_buckets(gate: threading.Event) -> None:
    g: Any = rlx.Graph("rows")
    g.set_outputs([g.sum(g.input("x", ("n", 3)) * 2.0, 1)])
    program = _auto(g, buckets={"n": [2, 4]})
    small = program.program_for(n=2)
    np.testing.assert_allclose(program.run({"x": _X})[0], 2 * _X.sum(1))
    gate.set()
    program.wait_for_best()
    assert small.artifact.target == "cpu"
    for rows in (1, 2, 3):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_allclose(program.run({"x": x})[0], 2 * x.sum(1))


def test_arrays_on_the_device_of_the_quick_program(gate: threading.Event) -> None:
    program = _auto(_counter())
    (first,) = program.run_device({"x": _X})
    (second,) = program.run_device({"x": first})
    gate.set()
    program.wait_for_best()
    (third,) = program.run_device({"x": second})
    np.testing.assert_allclose(np.asarray(third), 1 + _X + np.asarray(first) + np.asarray(second))


@pytest.mark.parametrize(
    "use",
    [
        lambda program: program.artifact.target,
        lambda program: pickle.loads(pickle.dumps(program)).artifact.target,
        lambda program: rlx.load(_saved(program)).artifact.target,
    ],
    ids=["artifact", "pickle", "save"],
)
def test_artifacts_are_of_the_optimised_program(use: Callable[[Any], str]) -> None:
    assert use(_auto(_counter())) == "cpu"


def _saved(program: rlx.Program) -> Path:
    path = Path(os.environ["RLX_CACHE_DIR"]) / "tier.rlxa"
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)
    return path


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))


def test_a_cached_program_is_the_best_at_once() -> None:
    session = rlx.Session()
    session.compile(_linear())
    assert session.compile(_linear(), tier="auto").tier == "best"
    program = session.compile(_linear(2.0), tier="auto")
    assert program.tier == "quick"
    program.wait_for_best()
    assert session.compile(_linear(2.0), tier="auto").tier == "best"


def _fail_to_compile(monkeypatch: pytest.MonkeyPatch, targets: tuple[str, ...], error: rlx.Error) -> None:
    entries = Build.entries

    def failing(self: Build) -> Any:
        if self.target.name in targets:
            raise error
        return entries(self)

    monkeypatch.setattr(Build, "entries", failing)


def _fail_to_load(monkeypatch: pytest.MonkeyPatch, error: rlx.Error) -> None:
    """Let quick programs fail when they are loaded."""
    loaded = SharedData.loaded

    def failing(self: SharedData, function: Any, *arguments: Any) -> Any:
        if function.artifact.target in QUICK:
            raise error
        return loaded(self, function, *arguments)

    monkeypatch.setattr(SharedData, "loaded", failing)


def test_a_substitute_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the quick program cannot be compiled or loaded, the optimised one is used from the start."""
    _fail_to_compile(monkeypatch, QUICK, rlx.Error("broken"))
    assert _auto(_linear()).tier == "best"


def test_a_substitute_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_to_load(monkeypatch, rlx.ExecutionError("XLA has no CPU client"))
    program = _auto(_counter())
    np.testing.assert_array_equal(program.run({"x": _X})[0], 1 + _X)
    assert program.tier == "best"


def test_an_optimised_program_that_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    _fail_to_compile(monkeypatch, ("cpu",), rlx.CompileError("broken"))
    with caplog.at_level(logging.WARNING, "rlx"):
        program = _auto(_counter())
        with pytest.raises(rlx.CompileError, match="broken"):
            program.wait_for_best()
    assert "broken" in caplog.text and program.tier == "quick"
    np.testing.assert_array_equal(program.run({"x": _X})[0], 1 + _X)
    with pytest.raises(rlx.CompileError, match="broken"):
        program.artifact  # noqa: B018


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that runs quick programs is missing: the first run waits for the optimised program."""
    _fail_to_load(monkeypatch, rlx.Error("XLA needs JAX, which cannot be imported"))
    program = _auto(_linear())
    with pytest.raises(rlx.Error, match="1 parameters are not set"):
        program.run({"x": _X})
    program.set_params({"w": np.ones((3, 4), np.float32)})
    np.testing.assert_allclose(program.run({"x": _X})[0], np.tanh(_X @ np.ones((3, 4))), rtol=1e-5)
    assert program.tier == "best"


def test_dropped_programs_are_not_compiled(gate: threading.Event) -> None:
    """Programs are compiled one after the other in the background, and those that are not used any more are left out."""
    programs = [_auto(_linear(1.0 + number)) for number in range(3)]
    improvements: list[Any] = [program._data.improvement for program in programs]
    several = _auto({"add": _counter()})
    part = several["add"]
    del programs, several
    gate.set()
    part.wait_for_best()
    assert part.artifact.target == "cpu"
    for improvement in improvements:
        improvement.wait(60)
    assert not tier._running


def test_an_error_that_is_raised_again_has_no_old_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Build) -> Any:
        raise rlx.CompileError("broken")

    program = _auto(_counter())
    monkeypatch.setattr(Build, "entries", failing)
    lengths = set()
    for _ in range(3):
        with pytest.raises(rlx.CompileError, match="broken") as caught:
            program.wait_for_best()
        lengths.add(len(caught.traceback))
    assert len(lengths) == 1


def test_wrong_options_are_one_error() -> None:
    with pytest.raises(rlx.Error, match="zz") as caught:
        _auto(_linear(), bind={"zz": 3})
    assert caught.value.__context__ is None or "zz" not in str(caught.value.__context__)


@pytest.mark.parametrize("timeout", [0, -1, True, float("nan"), float("inf"), 1e30, "x", []])
def test_wrong_time_limits(timeout: Any) -> None:
    with pytest.raises(rlx.Error, match="timeout must be a positive number of seconds"):
        rlx.Session().compile(_counter()).wait_for_best(timeout)


def test_waiting_is_limited(gate: threading.Event) -> None:
    program = _auto(_counter())
    with pytest.raises(rlx.Error, match=r"not ready after 0\.05 s"):
        program.wait_for_best(timeout=0.05)
    gate.set()
    program.wait_for_best(60)


def test_targets_without_a_substitute() -> None:
    program = rlx.Session("xla").compile(_counter(), tier="auto", cache=False)
    assert program.tier == "best" and program.artifact.target == "xla"


@pytest.mark.parametrize("wrong", ["fast", None, 1, []])
def test_wrong_tiers(wrong: Any) -> None:
    with pytest.raises(rlx.Error, match="'auto', 'best'"):
        rlx.Session().compile(_linear(), tier=wrong)
    with pytest.raises(rlx.Error, match="'auto', 'best'"):
        rlx.jit(lambda x: x, tier=wrong)


def test_tuning_is_of_optimised_programs() -> None:
    with pytest.raises(rlx.Error, match="tune goes with tier='best'"):
        rlx.Session().compile(_linear(), tier="auto", tune=1)


def test_jit(gate: threading.Event) -> None:
    @rlx.jit(tier="auto")
    def double(x: Any) -> Any:
        return x * 2 + 1

    np.testing.assert_allclose(double(_X), 2 * _X + 1)
    gate.set()
    np.testing.assert_allclose(double(_X), 2 * _X + 1)


_EXIT = """
import rlx
g = rlx.Graph("g")
x = g.input("x", (64, 64))
for _ in range({depth}):
    x = g.tanh(g.sin(x @ x))
g.set_outputs([x])
program = rlx.Session().compile(g, tier="auto", cache=False)
if {ran}:
    import numpy as np
    program.run({{"x": np.zeros((64, 64), np.float32)}})
{end}
"""


@pytest.mark.parametrize(
    ("end", "ran"), [("", False), ("raise KeyboardInterrupt", True), ("import time; time.sleep(1)", True)]
)
def test_a_process_may_end_before_the_optimised_program_is_ready(end: str, ran: bool) -> None:
    code = _EXIT.format(depth=20, ran=ran, end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    expected = "KeyboardInterrupt" if "Keyboard" in end else ""
    assert done.stderr.strip().splitlines()[-1:] == ([expected] if expected else []), done.stderr
    # Python returns 1 instead of ending itself by the signal if C code of the other thread runs `PyRun_String` at that time.
    assert done.returncode in ((-2, 1) if expected else (0,))


_FORK = """
import os, sys, warnings, rlx, numpy as np
warnings.filterwarnings("ignore", "os.fork")  # JAX warns of it
g = rlx.Graph("g")
g.set_outputs([g.input("x", (4,)) * 2])
program = rlx.Session().compile(g, tier="auto", cache=False)
x = np.ones(4, np.float32)
program.run({"x": x})
child = os.fork()
assert program.run({"x": x})[0][0] == 2
if child == 0:
    assert program.tier == "best"
    os._exit(0)
_, status = os.waitpid(child, 0)
program.wait_for_best()
assert program.run({"x": x})[0][0] == 2
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_compiles_for_itself() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_the_thread_ends_soon_when_python_exits(gate: threading.Event) -> None:
    program = _auto(_counter())
    improvement: Any = program._data.improvement
    started = time.monotonic()
    gate.set()
    improvement.stop()
    assert time.monotonic() - started < 60 and improvement not in tier._running
