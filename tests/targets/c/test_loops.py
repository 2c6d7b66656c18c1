"""Branches and loops in C: numbers, memory, reports, self-tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.support.errors import CompileError, UnsupportedError
from rlx.targets.c import emulate, footprint, toolchain
from rlx.targets.c.lower import vectors
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.selftest import self_test_of
from rlx.targets.c.misra import suppressions_of
from rlx.targets.registry import target_of
from tests.drawing import drawn
from tests.targets.c.loops import random_loops
from tests.targets.c.programs import program_of, run_sanitized, write
from tests.targets.c.recurrent import GATE, INPUT, FloatLstm

CASES = 12  # the number of independent branches and loops in one program
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler with sanitizers")


def assert_same(graph: rlx.Graph, got: Any, expected: Any) -> None:
    for output, one, other in zip(graph.outputs, got, expected, strict=True):
        assert np.allclose(one, other, rtol=1e-5, atol=1e-5, equal_nan=True), output.name
        assert other.dtype.kind == "f" or np.array_equal(one, other), output.name


def check(graph: rlx.Graph, *, calls: int = 1, **inputs: np.ndarray) -> CSource:
    """Compare a program on this machine with the evaluator, and return it."""
    compiled = rlx.Session("c").compile(graph, cache=False)
    for _ in range(calls):
        assert_same(graph, compiled.run(inputs), rlx.evaluate(graph, inputs))
    return program_of(graph)


def run_text(program: CSource) -> str:
    """The text of the function that runs a program."""
    text = files_of(program)[program.files.source]
    return text[text.rindex(f"void {program.name}_run(") :]


# --- random graphs --------------------------------------------------------------------------------


@drawn("number", range(8))
def test_the_host_gives_what_the_evaluator_gives(number: int) -> None:
    graph, inputs = random_loops(number, CASES)
    assert_same(graph, rlx.Session("c").compile(graph, cache=False).run(inputs), rlx.evaluate(graph, inputs))


@drawn("number", range(2))
@drawn("core", ["m4", "m0"], of_each=1)
def test_a_cortex_m_gives_what_the_evaluator_gives(core: str, number: int) -> None:
    pytest.importorskip("unicorn")
    graph, inputs = random_loops(1000 + number, 4)
    program = program_of(graph)
    machine = emulate.EmulatedMachine(emulate.build(program, core), program)
    expected = rlx.evaluate(graph, inputs)
    for _ in range(2):  # the second run starts with the arena of the first run
        assert_same(graph, machine.run([inputs[a.name] for a in graph.arguments]).results, expected)


@needs_cc
@drawn("number", range(3))
def test_sanitizers_are_silent(number: int, tmp_path: Path) -> None:
    graph, inputs = random_loops(300 + number, 6)
    run_sanitized(program_of(graph), tmp_path, inputs, rlx.evaluate(graph, inputs))


@drawn("number", range(2))
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_compiler_warns(compiler: str, number: int, tmp_path: Path) -> None:
    command = (shutil.which("gcc") and ["gcc"]) if compiler == "gcc" else toolchain.zig()
    if not command:
        pytest.skip(f"needs {compiler}")
    graph, _ = random_loops(2000 + number, 6)
    for source in write(program_of(graph), tmp_path):
        toolchain.build([*command, *toolchain.WARNINGS, "-Werror", "-O2", "-c", source, "-o", "object.o"], tmp_path)


def test_arenas_are_near_the_bound() -> None:
    plans = [program_of(random_loops(5000 + seed, 3)[0]).memory.plan for seed in range(4)]
    assert sum(plan.peak_live_bytes for plan in plans) > 200
    assert max(plan.gap for plan in plans) <= 0.05


# --- memory ---------------------------------------------------------------------------------------


def test_rows_are_read_and_written_in_place() -> None:
    """No copy: the carry and the stacked values are in the arrays of the caller, and so are the rows that are read."""
    g: Any = rlx.Graph("rows")
    x, start = g.input("x", (7, 5), "i16"), g.input("start", (5,), "i16")

    def body(c: Any, row: Any) -> Any:
        difference = c - row  # the last read of the carry is that of its next value
        return c + row, difference

    last, every = g.scan(body, start, x)
    g.set_outputs({"last": last, "every": every})
    program = check(g, x=np.arange(35, dtype=np.int16).reshape(7, 5), start=np.arange(5, dtype=np.int16))
    loop = run_text(program).partition("for (int32_t iteration")[2]
    assert loop and "memcpy" not in loop
    assert program.arena_size <= 8


def test_a_carry_that_is_read_after_its_next_value_is_written_has_a_copy() -> None:
    g: Any = rlx.Graph("product")
    weights = g.constant(np.random.default_rng(0).integers(-9, 9, (6, 6)).astype(np.int32))
    start = g.input("start", (1, 6), "i32")
    last, _ = g.scan(lambda c, _: (c @ weights, None), start, length=3)
    g.set_outputs({"last": last})
    program = check(g, start=np.arange(6, dtype=np.int32).reshape(1, 6))
    assert run_text(program).count("memcpy") == 2  # the first value, and the next one
    assert program.arena_size == 24


def test_a_view_of_a_carry_is_read_before_its_next_value_is_written() -> None:
    """The kernel that reads the view runs after the op that computes the next value."""
    g: Any = rlx.Graph("views")
    x, start = g.input("x", (4, 2, 3), "i32"), g.input("start", (2, 3), "i32")

    def body(c: Any, row: Any) -> Any:
        tripled = g.reshape(c, (6,)) * 3
        following = c + row
        return following, tripled - 1

    last, every = g.scan(body, start, x)
    g.set_outputs({"last": last, "every": every})
    check(g, x=np.arange(24, dtype=np.int32).reshape(4, 2, 3), start=np.ones((2, 3), np.int32))


@pytest.mark.parametrize("reverse", [False, True])
def test_carries_that_change_places(reverse: bool) -> None:
    g: Any = rlx.Graph("places")
    a, b, x = g.input("a", (3,), "i32"), g.input("b", (3,), "i32"), g.input("x", (5, 3), "i32")
    (one, other), every = g.scan(lambda c, row: ((c[1], c[0] + row), c[0]), (a, b), x, reverse=reverse)
    g.set_outputs({"one": one, "other": other, "every": every})
    arrays = np.random.default_rng(0).integers(-99, 99, (7, 3)).astype(np.int32)
    program = check(g, a=arrays[0], b=arrays[1], x=arrays[2:])
    assert program.memory.carried  # both are read before one of them is written
    assert ("iteration >= 0" in run_text(program)) == reverse


def test_loops_without_iterations() -> None:
    g: Any = rlx.Graph("none")
    x, start = g.input("x", (0, 3), "i32"), g.input("start", (3,), "i32")
    last, every = g.scan(lambda c, row: (c + row, c), start, x)
    once = g.while_(lambda c: g.sum(c) < 1000, lambda c: c + 1, start, max_iterations=0)
    never = g.while_(lambda n, c: n < 0, lambda n, c: (n + 1, c + n), 0, start)[1]
    g.set_outputs({"last": last, "every": every, "once": once, "never": never})
    program = check(g, x=np.zeros((0, 3), np.int32), start=np.array([1, -2, 3], np.int32))
    assert "iteration < 0" not in run_text(program)


def test_states_parameters_and_constants_in_bodies() -> None:
    g: Any = rlx.Graph("stateful")
    x, scale = g.input("x", (4, 3), "f32"), g.param("scale", (3,), "f32")
    total = g.state("total", (3,), "f32")
    table = g.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    last, every = g.scan(lambda c, rows: (c * 0.5 + rows[0] * scale, rows[1] - total), total, (x, table))
    g.update(total, last)
    g.set_outputs({"every": every, "last": last})
    arrays = {"x": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "scale": np.array([1, -2, 0.5], np.float32)}
    session = rlx.Session("c").compile(g, cache=False)
    session.set_params({"scale": arrays["scale"]})
    known = np.zeros(3, np.float32)
    for _ in range(2):
        want = rlx.evaluate(g, {**arrays, "total": known})
        assert_same(g, session.run({"x": arrays["x"]}), want)
        known = want[1]


def test_loops_in_loops_and_branches() -> None:
    g: Any = rlx.Graph("nested")
    x, start = g.input("x", (3, 4, 2), "i32"), g.input("start", (2,), "i32")

    def outer(c: Any, rows: Any) -> Any:
        c, sums = g.scan(lambda d, row: (d + row, d), c, rows, reverse=True)
        kept = g.if_(g.sum(c) > 20, lambda: g.while_(lambda d: g.max(d) > 5, lambda d: d - 3, c), lambda: c)
        return kept, (sums, kept)

    last, (sums, kept) = g.scan(outer, start, x)
    g.set_outputs({"last": last, "sums": sums, "kept": kept})
    arrays = np.random.default_rng(1).integers(-9, 20, (3, 4, 2)).astype(np.int32)
    program = check(g, x=arrays, start=np.array([3, 4], np.int32))
    text = run_text(program)
    assert text.count("for (int32_t iteration") == 2 and "for (;;)" in text and "if (" in text
    assert len(program.memory.rows) == 1  # the sums of the inner loop are rows of rows of an array of the caller
    assert all(f"iteration{n}" in text for n in ("", "_2"))


# --- loops without a bound ------------------------------------------------------------------------


def halved(max_iterations: int | None = None) -> rlx.Graph:
    g: Any = rlx.Graph("halved")
    x = g.input("x", (3,), "i32")
    body = lambda n, c: (n + 1, g.binary("shift_right", c, g.constant(np.int32(1))))  # noqa: E731
    made = g.while_(lambda n, c: g.max(c) > 4, body, 0, x, max_iterations=max_iterations)
    g.set_outputs(dict(zip(("count", "value"), made, strict=True)))
    return g


def test_a_while_runs_until_its_condition_is_false() -> None:
    x = np.array([1000, -7, 90], np.int32)
    assert rlx.evaluate(halved(), {"x": x})[0] == 8
    assert "for (;;)" in run_text(check(halved(), x=x))
    assert "iteration < 3" in run_text(check(halved(3), x=x))


def test_predictions_name_loops_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "available", lambda: False)
    text, bounded = (
        footprint.footprint(program_of(halved(n)), target_of("cortexm", "m4"))  # type: ignore[arg-type]
        for n in (None, 5)
    )
    assert "with one iteration of each loop that has no bound" in text and "no bound" not in bounded
    once, five = (footprint.predicted_instructions(program_of(halved(n)), "m4") for n in (None, 5))
    assert five == 5 * once


@pytest.mark.parametrize("outside", [False, True])
def test_a_condition_that_never_changes_is_refused(outside: bool) -> None:
    g: Any = rlx.Graph("endless")
    x, flag = g.input("x", (3,), "i32"), g.input("flag", (), "bool")
    g.set_outputs([g.while_(lambda _: flag if outside else g.constant(np.array(True)), lambda c: c + 1, x)])
    with pytest.raises(UnsupportedError, match="never changes") as caught:
        rlx.Pipeline(target="cortexm").compile(g).artifact()
    assert "max_iterations" in str(caught.value) and "test_loops.py" in str(caught.value)


def test_vectors_leave_out_inputs_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of u8 begin with a 0, whose loop does not terminate; random inputs pass 100. No input becomes 1."""
    monkeypatch.setattr(vectors, "_MOST_OPS", 500)

    def doubled(limit: int) -> rlx.Graph:
        g: Any = rlx.Graph("doubled")
        x = g.cast(g.input("x", (1,), "u8"), "i32")
        ends = lambda c: g.sum(c) < 100 if limit else g.sum(c) != 1  # noqa: E731
        g.set_outputs([g.while_(ends, lambda c: c + c, x)])
        return g

    assert len(program_of(doubled(100)).vectors.inputs) == 2
    with pytest.raises(CompileError, match="no test vector of 'doubled' comes to an end") as caught:
        self_test_of(program_of(doubled(0)))
    assert "max_iterations" in str(caught.value)


# --- a recurrent network of 8-bit integers --------------------------------------------------------


def sequence(steps: int, seed: int = 0) -> np.ndarray:
    numbers = np.random.default_rng(seed).normal(0, 1, (steps, 1, 8))
    return np.clip(np.round(numbers / INPUT), -128, 127).astype(np.int8)


def test_an_lstm_of_integers_is_near_that_of_floats() -> None:
    network, x = FloatLstm(12), sequence(12)
    scores, every = rlx.evaluate(network.quantized(), {"x": x})
    wanted, states = network.run(x[:, 0] * INPUT)
    assert np.abs(every[:, 0] / 128 - states).max() < 0.08 and np.abs(scores[0] * GATE - wanted).max() < 0.15
    program = check(network.quantized(), x=x)
    loop = run_text(program).partition("iteration++) {")[2].partition("\n    }")[0]
    assert loop.count("memcpy") == 1  # the state is carried and stacked; the cell is updated in place


@pytest.mark.parametrize("compiler", ["clang", *(["gcc"] if shutil.which(toolchain.ARM_GCC) else [])])
def test_an_lstm_on_a_cortex_m(compiler: str) -> None:
    """Code, constants and memory do not depend on the number of steps, and the loop is as fast as its steps."""
    pytest.importorskip("unicorn")
    few, many = (program_of(FloatLstm(steps).quantized()) for steps in (12, 40))
    unrolled = program_of(rlx.passes.run(FloatLstm(40).quantized(), "rlx-lower-control-flow"))
    assert few.arena_size == many.arena_size < unrolled.arena_size
    assert few.constant_bytes == many.constant_bytes
    images = [emulate.build(p, self_test=self_test_of(p), compiler=compiler) for p in (few, many, unrolled)]
    assert abs(images[0].code - images[1].code) < 32 < 1000 < images[2].code - images[1].code
    runs, x = [], sequence(40)
    for program, image in ((many, images[1]), (unrolled, images[2])):
        machine = emulate.EmulatedMachine(image, program)
        assert machine.self_test() == 0
        runs.append(machine.run([x]))
    assert_same(many.graph, runs[0].results, rlx.evaluate(many.graph, {"x": x}))
    assert runs[0].instructions < 1.02 * runs[1].instructions
    assert 0.5 < footprint.predicted_instructions(many, "m4") / runs[0].instructions < 2


def test_the_report_of_an_lstm() -> None:
    pytest.importorskip("unicorn")
    program = program_of(FloatLstm(6).quantized())
    text = footprint.footprint(program, target_of("cortexm", None, ("--part=nrf52840",)))  # type: ignore[arg-type]
    assert "self-test in the emulator: passed" in text
    assert re.search(rf"^lstm_state: arena +{program.arena_size}$", text, re.MULTILINE)
    assert re.search(r"^step_2_dense +3,072 ", text, re.MULTILINE)  # 6 steps of 8 * 64
    stack = re.search(r"^stack, worst case +(\d+)  lstm_run", text, re.MULTILINE)
    measured = re.search(r"^stack of a call, measured in the emulator: (\d+)", text, re.MULTILINE)
    assert stack and measured and int(measured[1]) - 64 <= int(stack[1]) <= int(measured[1]) + 16


@pytest.mark.skipif(shutil.which("cppcheck") is None, reason="needs cppcheck")
def test_cppcheck_reports_only_the_deviations(tmp_path: Path) -> None:
    for graph in (FloatLstm(5).quantized(), halved(), halved(4)):
        program = program_of(graph)
        files = {**files_of(program), program.files.test: self_test_of(program)}
        files[program.files.misra] = suppressions_of(program)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        words = ["cppcheck", "--addon=misra", "--std=c99", "--enable=warning,style,performance,portability", "-q"]
        words += [f"--suppressions-list={program.files.misra}", *(name for name in files if name.endswith(".c"))]
        said = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        assert said.stderr == ""


def test_layers_of_floats_are_loops() -> None:
    rng = np.random.default_rng(0)
    g: Any = rlx.Graph("layers")
    x, outputs = g.input("x", (1, 7, 5)), {}
    for kind, gates in (("lstm", 4), ("gru", 3)):
        shapes = [(5, 6 * gates), (6, 6 * gates), (6 * gates,), *([(6 * gates,)] if kind == "gru" else [])]
        weights = [g.constant(rng.normal(0, 0.3, shape).astype(np.float32)) for shape in shapes]
        zeros = [g.constant(np.zeros((1, 6), np.float32))] * (2 if kind == "lstm" else 1)
        for reverse in (False, True):
            results = getattr(g, kind)(x, *zeros, *weights, reverse=reverse)
            outputs |= {f"{kind}_{reverse}_{i}": value for i, value in enumerate(results)}
    g.set_outputs(outputs)
    program = check(g, x=rng.normal(0, 1, (1, 7, 5)).astype(np.float32))
    assert run_text(program).count("for (int32_t iteration") == 4


def test_zeros_of_both_signs_are_not_one_value() -> None:
    g: Any = rlx.Graph("signs")
    zeros = np.array([0.0, -0.0], np.float32)
    g.set_outputs([g.if_(g.input("c", (), "bool"), lambda: g.constant(zeros), lambda: g.constant(zeros[::-1].copy()))])
    compiled = rlx.Session("c").compile(g, cache=False)
    for choice in (True, False):
        result = np.asarray(compiled.run({"c": np.array(choice)}))
        assert np.signbit(result.reshape(-1)).tolist() == [not choice, choice]


def test_names_in_comments_are_not_used() -> None:
    """The comment of a loop has the word `scan`, which is also the name of an unused input."""
    g: Any = rlx.Graph("prune")
    g.input("scan", (2,))
    total, _ = g.scan(lambda c, x: (c + x, ()), g.zeros((3,)), g.input("xs", (4, 3)))
    g.set_outputs([total])
    assert "(void)scan;" in run_text(program_of(g))
