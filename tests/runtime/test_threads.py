"""Many threads in the same place at the same time, arranged by barriers instead of chance."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.runtime.program import Program
from rlx.support import locks
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.cache import DiskCache
from rlx.targets.protocol import CachingRuntime
from rlx.targets.registry import runtime_of
from tests.interrupts import Interrupts

COUNT = 8
ONES = np.ones(4, np.float32)


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions in threads that start together. Return their results, or raise the first exception."""
    barrier = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    raised: list[BaseException] = []

    def work(index: int, function: Callable[[], Any]) -> None:
        barrier.wait(60)
        try:
            results[index] = function()
        except BaseException as problem:
            raised.append(problem)

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if raised:
        raise raised[0]
    return results


def counter() -> rlx.Graph:
    """Return a product with a weight, with a state that counts the runs."""
    g: Any = rlx.Graph("counter")
    x, w, n = g.input("x", (4,)), g.param("w", (4,)), g.state("n", ())
    g.set_outputs({"y": x * w})
    g.update(n, n + 1.0)
    return g


@pytest.fixture(scope="module", params=["cpu", "xla"])
def artifact(request: pytest.FixtureRequest) -> Artifact:
    if request.param == "xla":
        pytest.importorskip("jax")
    return rlx.Session(request.param, threads=1).compile(counter()).artifact


# ---- compiled programs


def test_the_first_run_loads_once(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = runtime_of(artifact.target)
    name = "load_cached" if isinstance(backend, CachingRuntime) else "load"
    load, second, loads = getattr(backend, name), threading.Event(), []

    def slow_load(*arguments: Any) -> Any:
        loads.append(1)
        if len(loads) > 1:
            second.set()
        second.wait(0.1)  # gives other threads time to arrive
        return load(*arguments)

    monkeypatch.setattr(backend, name, slow_load)
    for _ in range(5):
        program = Program(artifact, threads=1)
        program.set_params({"w": ONES})
        loads.clear()
        at_once(*[lambda program=program: program.run({"x": ONES})] * COUNT)
        assert len(loads) == 1
        assert program.state("n") == COUNT


def test_everything_at_once(artifact: Artifact, tmp_path: Path) -> None:
    program = Program(artifact, threads=1)
    program.set_params({"w": ONES})

    def run() -> list[float]:
        return [float(program.run({"x": ONES})[0][0]) for _ in range(20)]

    def set_weights() -> None:
        for factor in range(1, 8):
            program.set_params({"w": ONES * factor})

    def use_states() -> None:
        for _ in range(10):
            assert 0 <= program.state("n") <= 1000
            program.set_state("n", np.float32(3))
            program.reset_state()

    def save() -> None:
        for _ in range(5):
            program.save(tmp_path / "saved.rlxa")
            program.load()

    *runs, _, _, _ = at_once(run, run, run, set_weights, use_states, save)
    assert {value for values in runs for value in values} <= set(range(1, 8))
    program.reset_state()
    program.run({"x": ONES})
    assert program.state("n") == 1
    assert rlx.load(tmp_path / "saved.rlxa").artifact == artifact


def test_weights_and_states_change_in_turn(artifact: Artifact) -> None:
    """Setting weights during many runs does not lose a state."""
    program = Program(artifact, threads=1)
    program.set_params({"w": ONES})
    done = threading.Event()

    def run() -> None:
        for _ in range(30):
            program.run({"x": ONES})
        done.set()

    def set_weights() -> None:
        while not done.is_set():
            program.set_params({"w": ONES})

    at_once(run, set_weights)
    assert program.state("n") == 30


def test_an_interrupt_at_any_step_of_a_run_leaves_a_program_that_runs(artifact: Artifact) -> None:
    from rlx.runtime import call_inputs, program_values, shared_data, shared_states
    from rlx.runtime import program as programs
    from rlx.targets.iree import executable, transfer
    from rlx.targets.xla import backend as xla
    from rlx.targets.xla import client
    from rlx.weights import arrays

    ours = [programs, program_values, call_inputs, shared_data, shared_states, arrays, locks]
    interrupts = Interrupts([*ours, executable, transfer, xla, client])

    def work(program: Program) -> None:
        program.set_param("w", ONES * 2)
        program.run({"x": ONES})
        program.set_state("n", np.float32(5))
        program.state("n")
        program.reset_state()

    def made() -> Program:
        program = Program(artifact, threads=1)
        program.set_params({"w": ONES})
        program.run({"x": ONES})
        return program

    program = made()
    for step in interrupts.steps(partial(work, program)):
        program = made()
        interrupts.at(step, partial(work, program))
        at_once(lambda program=program: program.run({"x": ONES}))  # in another thread, to find locks still held
        program.set_params({"w": ONES * 3})
        before = float(program.state("n"))
        assert program.run({"x": ONES})[0][0] == 3, step
        assert program.state("n") == before + 1, step


# ---- models, sessions, training


def test_the_first_call_of_a_model() -> None:
    @rlx.model
    def scaled(x: rlx.Input(4), w: rlx.Param(4), factor: int = 1) -> Any:  # type: ignore[valid-type]
        traced.append(factor)
        return x * w * float(factor)

    traced: list[int] = []
    weights = [np.full(4, i, np.float32) for i in range(COUNT)]
    results = at_once(*[lambda w=w: [scaled(ONES, w) for _ in range(5)] for w in weights])
    for weight, result in zip(weights, results, strict=True):
        np.testing.assert_array_equal(result, [weight] * 5)
    assert traced == [1]


def test_compiling_equal_and_different_graphs(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)

    def compile(size: int) -> Any:
        g: Any = rlx.Graph("g")
        x = g.input("x", (size,))
        g.set_outputs([g.softmax(x) + float(size)])
        return rlx.Session(threads=1).compile(g, cache=cache).run({"x": np.zeros(size, np.float32)})[0]

    sizes = (3, 3, 3, 5)
    for size, result in zip(sizes, at_once(*[lambda n=n: compile(n) for n in sizes]), strict=True):
        np.testing.assert_allclose(result, np.full(size, size + 1 / size), rtol=1e-6)


def test_a_checkpoint_is_that_of_one_step(tmp_path: Path) -> None:
    g: Any = rlx.Graph("line")
    w = g.param("w", ())
    g.set_outputs({"loss": w * g.input("x", ())})
    step = rlx.train.TrainStep(g, rlx.train.SGD(1.0), params={"w": np.float32(0)}, threads=1)
    x = np.float32(1)
    done = threading.Event()

    def train() -> None:
        for _ in range(60):
            step({"x": x})
        done.set()

    def save() -> None:
        from safetensors.numpy import load_file

        while not done.is_set():
            step.save(tmp_path / "saved.safetensors")
            saved = load_file(tmp_path / "saved.safetensors")
            assert saved["w"] == -saved["train/step"]

    at_once(train, save)


# ---- MLIR


def built(index: int) -> str:
    g: Any = rlx.Graph(f"g{index}")
    x = g.input("x", ("n", 4))
    with g.named(f"scope{index}"):
        for _ in range(5):
            x = g.gelu(g.layer_norm(x, g.param(f"w{len(g.params)}", (4,)), np.zeros(4, np.float32), axis=-1))
    g.set_outputs([x])
    return g.module.operation.get_asm(enable_debug_info=True)


def test_building_different_graphs() -> None:
    alone = [built(i) for i in range(COUNT)]
    assert at_once(*[lambda i=i: built(i) for i in range(COUNT)]) == alone


def test_reading_printing_evaluating_and_passes() -> None:
    text = built(0)
    alone = str(rlx.passes.run(rlx.parse(text), "builtin.module(rlx-decompose,canonicalize,cse)"))

    def use() -> None:
        for _ in range(3):
            graph = rlx.parse(text)
            assert str(graph) == str(rlx.parse(str(graph)))
            assert str(rlx.passes.run(graph, "builtin.module(rlx-decompose,canonicalize,cse)")) == alone
            values = {
                a.name: np.ones([d if type(d) is int else 2 for d in a.shape.dims], np.float32) for a in graph.arguments
            }
            assert rlx.evaluate(graph, values)[0].shape == (2, 4)

    at_once(*[use] * 4)


def test_an_error_goes_to_the_thread_that_made_it() -> None:
    bad = (
        "\n" * 3 + 'func.func @m(%x: tensor<4xf32>) -> tensor<4xf32> {\n %y = "rlx.softmax"(%x) {axis = AXIS : i64} : '
        "(tensor<4xf32>) -> tensor<4xf32>\n return %y : tensor<4xf32>\n}\n"
    )

    def read(axis: int) -> None:
        for _ in range(20):
            with pytest.raises(rlx.ParseError) as caught:
                rlx.parse(bad.replace("AXIS", str(axis)))
            assert str(axis) in str(caught.value)
            assert caught.value.location == "<text>:5:7"

    at_once(*[lambda axis=axis: read(axis) for axis in range(100, 100 + COUNT)], *[lambda: built(9)] * 2)


def test_a_switch_of_the_context_is_one_threads_own() -> None:
    """One thread allows ops of unknown dialects, while others must not read them."""
    inside, tried = threading.Event(), threading.Event()

    def allow() -> None:
        with mlir.unregistered_dialects_allowed():
            inside.set()
            tried.wait(0.2)

    def read() -> None:
        assert inside.wait(60)
        with pytest.raises(rlx.ParseError):
            rlx.parse('func.func @m() {\n "no.such"() : () -> ()\n return\n}\n')
        tried.set()

    at_once(allow, read)
    assert not mlir.context().allow_unregistered_dialects


def test_a_cache(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, max_bytes=2000)
    keys = [f"{i:04x}" for i in range(8)]

    def use() -> None:
        for _ in range(10):
            for key in keys:
                cache.put(key, key.encode() * 100)
                assert cache.get(key) in (None, key.encode() * 100)
        cache.clear()

    at_once(*[use] * 4)
