"""Random integer graphs: the evaluator, C on this machine and C on a Cortex-M agree exactly."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.targets.c import emulate, toolchain
from tests.drawing import drawn
from tests.targets.c.graphs import random_graph
from tests.targets.c.programs import program_of, run_sanitized, write

CASES = 25  # the number of independent chains of ops in one program
needs_zig = pytest.mark.skipif(toolchain.zig() is None, reason="needs the package ziglang")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler with sanitizers")


@drawn("number", range(12))
def test_the_host_gives_what_the_evaluator_gives(number: int) -> None:
    graph, inputs = random_graph(1000 + number, CASES)
    got = rlx.Session("c").compile(graph, cache=False).run(inputs)
    for output, one, other in zip(graph.outputs, got, rlx.evaluate(graph, inputs), strict=True):
        assert np.array_equal(one, other), output.name


@needs_zig
@drawn("number", range(4))
@drawn("core", ["m4", "m7", "m33", "m0"], of_each=2)
def test_a_cortex_m_gives_what_the_evaluator_gives(core: str, number: int) -> None:
    pytest.importorskip("unicorn")
    graph, inputs = random_graph(2000 + number, CASES // 2)
    program = program_of(graph)
    machine = emulate.EmulatedMachine(emulate.build(program, core), program)
    arrays = [inputs[a.name] for a in graph.arguments]
    expected = rlx.evaluate(graph, inputs)
    for _ in range(2):  # the second run starts with the arena of the first run
        run = machine.run(arrays)
        for output, one, other in zip(graph.outputs, run.results, expected, strict=True):
            assert np.array_equal(one, other), output.name
    assert 0 < run.stack < 4096


def deep_products() -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """Products and convolutions with the largest possible sums, and lengths around those of a block of the sum."""
    g = rlx.Graph("deep")
    inputs, outputs = {}, {}
    for depth in (503, 504, 505, 512, 1008, 1013):
        for bits, extreme in ((4, -8), (2, -2)):
            x = g.input(f"x_{depth}_{bits}", (1, depth, 1, 2), "i8")
            inputs[f"x_{depth}_{bits}"] = np.full((1, depth, 1, 2), -128, np.int8)
            # The largest magnitudes, half of them negative.
            w = np.full((depth, 5), extreme, np.int8)
            w[::2, 1] = -extreme - 1
            row = g.reshape(g.slice(x, starts=[0, 0, 0, 0], limits=[1, depth, 1, 1], strides=[1, 1, 1, 1]), (1, depth))
            outputs[f"dense_{depth}_{bits}"] = g.q_matmul(row, g.constant(w), x_zero_point=127, dtype="i32")
            kernel = g.constant(np.ascontiguousarray(w.T)[:, :, None, None])
            outputs[f"conv_{depth}_{bits}"] = g.q_conv2d(x, kernel, x_zero_point=127, dtype="i32")
    g.set_outputs(outputs)
    return g, inputs


@pytest.mark.parametrize("core", ["host", "m4", "m0"])
def test_deep_products_do_not_overflow(core: str, tmp_path: Path) -> None:
    graph, inputs = deep_products()
    expected = rlx.evaluate(graph, inputs)
    if core == "host":
        got = rlx.Session("c").compile(graph, cache=False).run(inputs)
    else:
        if not emulate.available():
            pytest.skip("needs the packages ziglang and unicorn")
        program = program_of(graph)
        got = emulate.EmulatedMachine(emulate.build(program, core), program).run(list(inputs.values())).results
    for output, one, other in zip(graph.outputs, got, expected, strict=True):
        assert np.array_equal(one, other), output.name


@needs_cc
@drawn("number", range(4))
def test_sanitizers_are_silent(number: int, tmp_path: Path) -> None:
    graph, inputs = random_graph(3000 + number, CASES)
    run_sanitized(program_of(graph), tmp_path, inputs, rlx.evaluate(graph, inputs))


@drawn("number", range(3))
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_compiler_warns(compiler: str, number: int, tmp_path: Path) -> None:
    command = (shutil.which("gcc") and ["gcc"]) if compiler == "gcc" else toolchain.zig()
    if not command:
        pytest.skip(f"needs {compiler}")
    graph, _ = random_graph(4000 + number, CASES)
    for source in write(program_of(graph), tmp_path):
        toolchain.build([*command, *toolchain.WARNINGS, "-Werror", "-O2", "-c", source, "-o", "object.o"], tmp_path)


def test_arenas_are_near_the_bound() -> None:
    plans = [program_of(random_graph(5000 + seed, 12)[0]).memory.plan for seed in range(20)]
    assert sum(plan.peak_live_bytes for plan in plans) > 10_000
    assert max(plan.gap for plan in plans) <= 0.05
