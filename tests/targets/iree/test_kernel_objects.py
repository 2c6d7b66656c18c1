"""Kernels as object files: the same results, kept in the cache one by one, and left in the program where that fails."""

import struct
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.ir.graph.evaluate import evaluate
from rlx.targets.compilation import Compilation
from rlx.targets.iree import backend, kernel_objects
from rlx.targets.iree.compiler import compile_object
from rlx.targets.iree.elf import ElfError, with_visible
from rlx.targets.options import CompileOptions
from rlx.targets.registry import target_of

ARGUMENTS = {"x": np.linspace(-3, 3, 5 * 40, dtype="f4").reshape(5, 40)}


def _graph(*ops: str) -> rlx.Graph:
    """A graph whose outputs are results of ops with kernels, each of the one input."""
    g = rlx.Graph("kernels")
    x = g.input("x", (5, 40))
    results = {
        "softmax": lambda: g.softmax(x, axis=-1),
        "cumsum": lambda: g.cumsum(x, 1),
        "sort": lambda: g.sort(x, 1),
        "sum": lambda: g.sum(x, 0),
        "topk": lambda: g.topk(x, 3)[0],
        "fft": lambda: g.abs(g.fft(x)),
    }
    g.set_outputs([results[op]() for op in ops])
    return g


@pytest.fixture(autouse=True)
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each program, the number of kernels whose code is left in it."""
    counts: list[int] = []
    take_out = kernel_objects.take_out_kernels

    def counted(module: mlir.Module, *args: object, **options: object) -> object:
        files = take_out(module, *args, **options)  # type: ignore[arg-type]
        counts.append(str(module).count("memref.reinterpret_cast"))
        return files

    monkeypatch.setattr(backend, "take_out_kernels", counted)
    return counts


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of kernels in each object file that is compiled."""
    counts: list[int] = []
    compile_object = kernel_objects.compile_object

    def counted(text: str, *args: object, **options: object) -> bytes:
        counts.append(text.count('"func.func"'))
        return compile_object(text, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_objects, "compile_object", counted)
    return counts


def _check(graph: rlx.Graph, cache: object, arch: str | None = None) -> None:
    program = rlx.Session("cpu", arch=arch).compile(graph, cache=cache, kernels="all")  # type: ignore[arg-type]
    for result, expected in zip(program.run(ARGUMENTS), evaluate(graph, ARGUMENTS), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_program_with_object_file_has_the_results_of_the_evaluator(
    arch: str, compiled: list[int], left: list[int]
) -> None:
    """Two kernels have arguments of the same types, all results are parts of one buffer, and one kernel reads a table."""
    _check(_graph("softmax", "cumsum", "sort", "sum", "topk", "fft"), False, arch)
    assert len(compiled) == 1 and left == [0]


def test_programs_for_other_architectures_have_kernels_too(compiled: list[int], left: list[int]) -> None:
    for arch in ("aarch64", "x86-64-v4", "apple"):
        rlx.Session("cpu", arch=arch).compile(_graph("softmax", "topk"), cache=False, kernels="all")
    assert [count >= 2 for count in compiled] == [True] * 3 and left == [0] * 3


def test_cache_has_each_kernel_for_itself(tmp_path: Path, compiled: list[int]) -> None:
    _check(_graph("softmax", "cumsum"), tmp_path)
    _check(_graph("cumsum", "softmax"), tmp_path)
    assert compiled == [2]
    _check(_graph("softmax", "cumsum", "sort"), tmp_path)
    assert compiled == [2, 1]
    _check(_graph("sort", "softmax"), tmp_path, "x86-64-v2")
    assert compiled == [2, 1, 2]


def test_kernels_are_compiled_again_if_a_part_of_the_cache_is_lost(tmp_path: Path, compiled: list[int]) -> None:
    _check(_graph("softmax", "cumsum"), tmp_path)

    def objects() -> list[Path]:
        return [path for path in tmp_path.glob("*/*.rlxc") if b"\x7fELF" in path.read_bytes()[:100]]

    def damage() -> None:
        for path in objects():
            path.write_bytes(path.read_bytes()[:-1])

    first, *_ = sorted(tmp_path.glob("*/*.rlxc"), key=lambda path: path.stat().st_size)
    (program,) = [path for path in tmp_path.glob("*/*.rlxc") if b"func @kernels" in path.read_bytes()]
    for lose, count in ((first.unlink, 1), (objects()[0].unlink, 1), (damage, 2)):
        program.unlink()
        lose()
        _check(_graph("softmax", "cumsum"), tmp_path)
        assert compiled.pop() == count


def test_kernels_stay_in_the_program_if_they_do_not_compile_alone(
    monkeypatch: pytest.MonkeyPatch, left: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object, **__: object) -> bytes:
        raise rlx.CompileError("no such instruction")

    truncated = [lambda *_, data=data, **__: data for data in (b"", b"\x7fELF", bytes(64))]
    with caplog.at_level("INFO", "rlx"):
        for answer in (*truncated, refused):
            monkeypatch.setattr(kernel_objects, "compile_object", answer)
            _check(_graph("softmax", "cumsum"), False)
            assert left.pop() > 0
    assert "no such instruction" in caplog.text


def test_diagnostics_of_kernels_are_errors() -> None:
    text = "hal.executable.source public @kernels { no_such_op }"
    with pytest.raises(rlx.CompileError, match=r"could not compile kernels: .*no_such_op"):
        compile_object(text, target_of("cpu"))  # type: ignore[arg-type]


def test_kernels_stay_in_programs_of_other_formats(compiled: list[int]) -> None:
    session = rlx.Session("cpu", flags=("--iree-llvmcpu-link-embedded=true",))
    session.compile(_graph("softmax"), cache=False, kernels="all").run(ARGUMENTS)
    assert compiled == []


def test_names_of_executables_do_not_matter() -> None:
    """The kernels of two programs with other numbers of kernels before them are the same."""
    keys = []
    for ops in (("softmax", "cumsum"), ("sum", "cumsum", "softmax")):
        compilation = Compilation(_graph(*ops), target_of("cpu"), CompileOptions(kernels="all"))
        with mlir.entered():
            keys.append({code.key for code in kernel_objects._codes(compilation.lowered(), "")})
    assert len(keys[0]) == 2 and keys[0] < keys[1]


def test_damaged_object_files_are_errors() -> None:
    header = struct.pack("<4sBB10xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 1, 0)
    null = bytes(64)
    sections = header[:40] + struct.pack("<Q", 64) + header[48:60] + struct.pack("<HH", 2, 0)
    table = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 192, 24, 0, 0, 8, 24)
    endless = sections + null + table + struct.pack("<IBBHQQ", 200, 0, 0, 1, 0, 0) + b"name"
    for data in (b"", b"\x7fELF", bytes(100), header, header + null, header[:40] + b"\xff" * 24, endless):
        with pytest.raises(ElfError):
            with_visible(data, {"f"})
