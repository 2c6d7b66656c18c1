"""Compilers and tools of other languages accept programs of graphs with hostile names."""

from __future__ import annotations

import ast
import inspect
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.targets.c import emulate, toolchain
from rlx.targets.c.host import SOURCE, harness
from rlx.targets.c.lower.files import files_of
from rlx.targets.c.lower.program import CSource
from rlx.targets.compilation import Compilation
from rlx.targets.registry import RLX, backend_of, backends, target_of
from tests.drawing import drawn
from tests.names import readers
from tests.names.hostile import BENIGN, KINDS, LONG, NAMES, arrays_of, graph_of, is_harmless
from tests.packages import needs_package

BACKENDS = [backend for backend in backends() if backend.origin == RLX]
TARGETS = [target for backend in BACKENDS for target in backend.targets]
SHARES = 6
HARDWARE = ("fpga", "fpga-sim")


def module(text: str) -> list[str]:
    """Return the ops of MLIR, in order."""
    found = []

    def visit(op: Any) -> Any:
        found.append(op.name)
        return mlir.ir.WalkResult.ADVANCE

    with mlir.context(), mlir.unregistered_dialects_allowed():
        mlir.walk(mlir.ir.Module.parse(text).operation, visit)
    return found


# The readers of the forms and files of programs. A form without a reader fails the tests.
FORMS: Mapping[str, Callable[[str], Any]] = {
    "linalg": module,
    "stablehlo": module,
    "c": readers.c,
    "emitc": module,
    "hw": module,
    "verilog": readers.verilog,
}
BYTES = ("bytecode",)
FILES: Mapping[str, Callable[[str], Any]] = {
    ".c": readers.c,
    ".h": readers.c,
    ".sv": readers.verilog,
    ".md": readers.markdown,
    ".mem": readers.plain,
    ".lpf": readers.plain,
    ".pcf": readers.plain,
    ".cmake": readers.plain,
    ".txt": readers.plain,
    ".pdsc": readers.svg,
    ".xdc": readers.plain,
    ".f": readers.plain,
    ".py": readers.python,
    ".sh": readers.plain,
    ".ys": readers.plain,
    ".sdc": readers.plain,
    ".tcl": readers.plain,
}


def hardware_graph(names: Any, name: str) -> Any:
    return graph_of(names, name, kinds=("input", "state"), dtype="i8", size=2)


def graph_for(target: str, names: Any, name: str) -> Any:
    return hardware_graph(names, name) if target in HARDWARE else graph_of(names, name)


def share_of(names: tuple[str, ...], share: int) -> tuple[str, ...]:
    return names[share::SHARES]


def forms_of(target: str) -> list[str]:
    """Return the text forms of a target, from the code that produces them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(backend_of(target).compiler.emit)))
    body = tree.body[0].body[1:]  # type: ignore[attr-defined]
    texts = [
        n.value for part in body for n in ast.walk(part) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    return [text for text in dict.fromkeys(texts) if text.isidentifier()]


@drawn("share", range(SHARES))
def test_every_form_of_every_target_has_the_structure_of_one_with_plain_names(share: int) -> None:
    """Only one target of each compiler back end is tested: GPUs get the same linalg as CPUs."""
    read: set[str] = set()
    for target in TARGETS:
        if (backend_of(target).name == "iree" and target != "cpu") or target == "tpu":
            continue
        forms = forms_of(target)
        pair = [
            Compilation(graph_for(target, share_of(names, share), name), target_of(target))
            for names, name in ((NAMES, NAMES[share]), (BENIGN, "benign"))
        ]
        for form in forms:
            hostile, benign = (backend_of(target).compiler.emit(form, c) for c in pair)
            if hostile is None:
                continue
            read.add(form)
            if isinstance(hostile, bytes):
                assert form in BYTES
                continue
            assert is_harmless(hostile), (target, form)
            assert FORMS[form](hostile) == FORMS[form](str(benign)), (target, form)
    assert read == {*FORMS, *BYTES}


def test_the_forms_are_those_of_the_code() -> None:
    known = {*FORMS, *BYTES}
    for target in TARGETS:
        unknown = {form for form in forms_of(target) if form not in known and len(form) > 1}
        assert unknown <= {"sdy", "utf", "linalg"}, f"{target} has a form that no test reads"


@pytest.mark.parametrize("target", [t for t in TARGETS if hasattr(backend_of(t).compiler, "files")])
@drawn("share", range(SHARES))
def test_every_file_of_every_target_has_the_structure_of_one_with_plain_names(target: str, share: int) -> None:
    if target == "fpga-sim":
        return  # a program for this process, without files for tools
    if target == "fpga":
        pytest.importorskip("markdown_it")
    compiler: Any = backend_of(target).compiler
    pair = [
        dict(compiler.files(Compilation(graph_for(target, share_of(names, share), name), target_of(target)).artifact()))
        for names, name in ((NAMES, "always" if target == "fpga" else NAMES[share]), (BENIGN, "benign"))
    ]
    assert len(pair[0]) == len(pair[1])
    for (name, hostile), benign in zip(pair[0].items(), pair[1].values(), strict=True):
        text = hostile.decode()
        read = FILES[Path(name).suffix]
        assert is_harmless(text + name, keep="\n") and len(name) < 128, name
        assert read(text) == read(benign.decode()), name


# --- C --------------------------------------------------------------------------------------------------------


@cache
def program(turn: int) -> CSource:
    return CSource(rlx.Pipeline(target="c").compile(graph_of(NAMES, "int", turn)).lir)


def write(made: CSource, folder: Path) -> None:
    folder.mkdir()
    for name, text in {**files_of(made), SOURCE: harness(made)}.items():
        (folder / name).write_text(text, encoding="utf-8")


@drawn("turn", range(len(KINDS)))
def test_c_with_hostile_names_gives_the_numbers_of_the_evaluator(turn: int) -> None:
    graph = graph_of(NAMES, "int", turn)
    params, inputs = arrays_of(graph, "param"), arrays_of(graph, "input")
    states = arrays_of(graph, "state")
    compiled = rlx.Session("c").compile(graph, params=params)
    for name, value in states.items():
        compiled.set_state(name, value)
    expected = rlx.evaluate(graph, {**params, **inputs, **states})
    results = compiled.run(inputs)
    assert len(results) == len(NAMES)
    for name, result, wanted in zip(NAMES, results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted, err_msg=repr(name))
    for name in states:
        np.testing.assert_array_equal(compiled.state(name), results[NAMES.index(name)], err_msg=repr(name))


@drawn("turn", range(len(KINDS)))
def test_compilers_have_nothing_to_say_of_c_with_hostile_names(turn: int, tmp_path: Path) -> None:
    made = program(turn)
    write(made, tmp_path / "a")
    assert (
        toolchain.build(
            [*toolchain.compiler(), *toolchain.WARNINGS, "-Werror", "-fsyntax-only", made.files.source], tmp_path / "a"
        )
        == ""
    )
    if shutil.which("g++"):
        (tmp_path / "a" / "main.cpp").write_text(f'#include "{made.files.header}"\n')
        assert (
            toolchain.build(
                ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "main.cpp"], tmp_path / "a"
            )
            == ""
        )
    if emulate.available():
        emulate.build(made, "m4", ("-O1",))  # warnings are errors there


@drawn("share", range(SHARES))
def test_graphs_may_have_any_name_in_c(share: int, tmp_path: Path) -> None:
    names = [*share_of(NAMES, share), "rlx", LONG]
    sources: list[str] = []
    for i, name in enumerate(names):
        made = CSource(rlx.Pipeline(target="c").compile(graph_of(("first", "second", name), name)).lir)
        write(made, tmp_path / str(i))
        sources += [f"{i}/{file}" for file in (made.files.source, made.files.weights, SOURCE)]
    command = [*toolchain.compiler(), *toolchain.WARNINGS, "-Werror", "-fsyntax-only"]
    assert toolchain.build([*command, *sources], tmp_path) == ""


def test_names_of_buffers_are_no_names_of_tables_types_and_macros(tmp_path: Path) -> None:
    """Any identifier of a program with the program's name as prefix may also be the name of an input."""

    def graph(names: list[str]) -> Any:
        g: Any = rlx.Graph("m")
        weights = g.constant(np.arange(1, 13, dtype=np.int8).reshape(4, 3))
        rows = [g.input(name, (1, 3), "i8") for name in names]
        g.set_outputs([g.sum(g.cast(x, "i32"), axes=1) + g.constant(np.arange(4, dtype=np.int32)) for x in rows])
        sums = g.q_matmul(rows[0], g.transpose(weights, (1, 0)), dtype="i32")
        state = g.state("s", (1, 4), "i32")
        g.update(state, sums)
        g.set_outputs(
            {
                "y": sums,
                "constant": g.constant(np.arange(4, dtype=np.int32)),
                "z": state + g.cast(rows[-1][:, :1], "i32"),
            }
        )
        return g

    plain = CSource(rlx.Pipeline(target="c").compile(graph(["x", "v"])).lir)
    own = [word for text in files_of(plain).values() for word in set(readers.re.findall(r"\b[mM]_\w+", text))]
    names = sorted({*own, *plain.tables})
    assert len(names) > 8 and plain.tables
    for i in range(0, len(names) - 1, 2):
        made = graph([names[i], names[i + 1]])
        inputs = arrays_of(made, "input")
        inputs = {n: a[:1].repeat(3).reshape(1, 3).astype(np.int8) for n, a in inputs.items()}
        for got, wanted in zip(rlx.Session("c").compile(made).run(inputs), rlx.evaluate(made, inputs), strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=names[i])


# --- hardware -------------------------------------------------------------------------------------------------


@needs_package("pycde", "fpga")
@needs_package("llvmlite", "fpga")
@drawn("share", range(SHARES))
def test_hardware_with_hostile_names_runs_and_is_read_by_other_tools(share: int, tmp_path: Path) -> None:
    graph = hardware_graph(share_of(NAMES, share), NAMES[-share - 2])
    inputs = arrays_of(graph, "input")
    run = rlx.Session("fpga-sim").compile(graph).run(inputs)
    for name, got, wanted in zip(share_of(NAMES, share), run, rlx.evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=repr(name))
    flags = ("--axi=lite",) if share % 2 else ()
    artifact = Compilation(graph, target_of("fpga", None, flags)).artifact()
    files = backend_of("fpga").compiler.files(artifact)  # type: ignore[attr-defined]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert len({name.lower() for name in files}) == len(files)
    sources = [name for name in files if name.endswith(".sv")]
    (top,) = (name.removesuffix(".f") for name in files if name.endswith(".f"))
    ran = False
    if shutil.which("iverilog"):
        wrapper = "_axi" if flags else ""
        run_tool(tmp_path, "iverilog", "-g2012", "-s", f"{top}{wrapper}_tb", "-o", "tb", *sources)
        assert "PASS" in run_tool(tmp_path, "vvp", "tb", "+hesitate")
        ran = True
    if shutil.which("verilator"):
        lint = ("--lint-only", "-Wall", "-Wno-UNUSEDSIGNAL", "--top-module", f"{top}_axi" if flags else top)
        assert run_tool(tmp_path, "verilator", *lint, "-f", f"{top}.f") == ""
        ran = True
    if not ran:
        pytest.skip("neither iverilog nor verilator is installed")


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
def test_designs_have_names_that_verilog_takes(tmp_path: Path) -> None:
    from rlx.targets.fpga.lower.design import Design, Network

    tops = sorted({Design(Network(name, {})).top for name in NAMES})
    (tmp_path / "a.sv").write_text("".join(f"module {top};\nendmodule\n" for top in tops))
    run_tool(tmp_path, "iverilog", "-g2012", "-o", "a", "a.sv")


def run_tool(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


# --- programs that run here -----------------------------------------------------------------------------------


@drawn("device", ["cpu", "xla"])
@drawn("share", range(SHARES))
def test_programs_with_hostile_names_give_the_numbers_of_the_evaluator(device: str, share: int) -> None:
    names = share_of(NAMES, share)
    graph = graph_of(names, NAMES[share + 1], share)
    given = {kind: arrays_of(graph, kind) for kind in KINDS}
    compiled = rlx.Session(device).compile(graph, params=given["param"])
    for name, value in given["state"].items():
        compiled.set_state(name, value)
    expected = rlx.evaluate(graph, {name: array for arrays in given.values() for name, array in arrays.items()})
    for name, got, wanted in zip(names, compiled.run(given["input"]), expected, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=repr(name))
