"""Bytecode, and text with formats of other dialects: another process reads them, so that this one survives a crash."""

from __future__ import annotations

import concurrent.futures
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.cli import main, opt
from rlx.ir.text import isolated

# The parser of this op continues after a list that it could not read.
CRASHING = """\
module {
  func.func @main(%x: tensor<3x4xf32>) {
    %0 = tensor.empty() : tensor<4x3xf32>
    %1 = linalg.transpose ins(%x : tensor<3x4xf32>) outs(%0 : tensor<4x3xf32>) permutation = [4x
    return
  }
}
"""


@pytest.fixture(scope="module")
def graph() -> Any:
    g = rlx.Graph("f")
    x = g.input("x", ("n", 4))
    g.set_outputs({"y": g.relu(x) + g.constant(np.array([0.5, 1.5, 2.5, np.nan], np.float32))})
    return g


@pytest.fixture(scope="module")
def file(graph: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    buffer = io.BytesIO()
    graph.module.operation.write_bytecode(buffer)
    path = tmp_path_factory.mktemp("bytecode") / "model.bc"
    path.write_bytes(buffer.getvalue())
    return path


def test_parse_reads_bytecode(graph: Any, file: Path) -> None:
    assert str(rlx.parse(file)) == str(graph)
    again = rlx.parse(file)
    here = again.function.entry_block.operations[0].location
    assert Path(__file__).name in str(here)  # it still knows the line of its op


def test_the_commands_read_bytecode(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main([str(file), "--emit-bytecode", "-o", str(tmp_path / "again.bc")]) == 0
    again = str(tmp_path / "again.bc")
    assert main.main(["inspect", again]) == 0
    assert "1 relu" in capsys.readouterr().out
    assert main.main(["run", again, "--input=x=1x4xf32=1"]) == 0
    assert "[[1.5 2.5 3.5 nan]]" in capsys.readouterr().out
    assert main.main(["compile", again, "--target=cpu", "-o", str(tmp_path / "out")]) == 0


def test_damaged_bytecode_is_an_error(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, damaged = file.read_bytes(), tmp_path / "damaged.bc"
    for content in (data[:4], data[: len(data) // 2], data[:5] + b"\xff" * 60 + data[65:]):
        damaged.write_bytes(content)
        with pytest.raises(rlx.ParseError, match="bytecode"):
            rlx.parse(damaged)
        assert opt.main([str(damaged), "-o", str(damaged)]) == 1
        assert "error: " in capsys.readouterr().err
        assert damaged.read_bytes() == content


def test_a_reader_that_dies_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "SECONDS", 0.1)
    monkeypatch.setattr(isolated, "_START", 0.1)
    isolated.close()
    for program, told in (("kill -9 $$", "it ended"), ("exec sleep 60", "it took too long")):
        command = ["/bin/sh", "-c", program]
        monkeypatch.setattr(isolated, "_command", lambda *_, command=command: command)
        with pytest.raises(rlx.ParseError):
            isolated.bytecode_text(b"ML\xefR")
        with pytest.raises(rlx.Error, match=f"cannot start.*{told}"):
            isolated.attempt("linalg.fill")
    monkeypatch.setattr(isolated, "_START", 60)
    long = "linalg.fill" + " " * (1 << 20)  # more than a pipe holds, so that writing it blocks
    for program, told in (("kill -9 $$", "crashes on"), ("exec sleep 60", "takes more than 0.1 s")):
        command = ["/bin/sh", "-c", f"head -c 8 > /dev/null; printf .; {program}"]
        monkeypatch.setattr(isolated, "_command", lambda *_, command=command: command)
        for text in ("linalg.fill", long):
            with pytest.raises(rlx.ParseError, match=f"MLIR's parser {told}"):
                isolated.attempt(text)
    monkeypatch.setattr(isolated, "_command", lambda *_: ["/no/such/program"])
    with pytest.raises(rlx.Error, match="cannot start"):
        isolated.bytecode_text(b"ML\xefR")
    with pytest.raises(rlx.Error, match="cannot start"):
        isolated.attempt("linalg.fill")


def test_text_that_crashes_a_parser_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(rlx.ParseError, match="crashes on this text"):
        rlx.parse(CRASHING)
    path = tmp_path / "m.mlir"
    path.write_text(CRASHING)
    assert opt.main([str(path), "-o", str(path)]) == 1
    assert "crashes on this text" in capsys.readouterr().err
    assert path.read_text() == CRASHING
    # A new process reads the next text.
    assert "linalg.transpose" in str(rlx.parse(CRASHING.replace("[4x", "[1, 0]")))


def test_the_process_may_be_killed_and_is_shared_by_threads() -> None:
    good = CRASHING.replace("[4x", "[1, 0]")
    isolated.attempt(good)
    assert isolated._process is not None
    isolated._process.kill()
    isolated._process.wait()
    isolated.attempt(good)
    os.kill(isolated._process.pid, signal.SIGKILL)
    texts = [good, good, CRASHING, good] * 2
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = [f.exception() for f in [pool.submit(isolated.attempt, text) for text in texts]]
    assert [type(problem) for problem in found] == [type(None), type(None), rlx.ParseError, type(None)] * 2


def test_a_process_that_does_not_even_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    isolated.close()
    program = "import sys, time; sys.stdout.write('.'); sys.stdout.flush(); time.sleep(600)"
    monkeypatch.setattr(isolated, "_command", lambda *_: [sys.executable, "-c", program])
    monkeypatch.setattr(isolated, "SECONDS", 0.1)
    longer_than_a_pipe = CRASHING + "// " + "x" * (1 << 20)
    with pytest.raises(rlx.ParseError, match=r"takes more than 0\.1 s"):
        isolated.attempt(longer_than_a_pipe)
    assert isolated._process is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"rlx.matmul"(%a, %b) {rlx.x = "a.b"} : () -> () loc("model.py":1:2)', False),
        ("rlx.matmul(%a.b, @c.d) // linalg.fill", False),
        ("func.func @a.b() { return }", False),
        ("arith.constant 1 : i32", True),
        ("x_rlx.constant", True),
        ('"foo.1"()', True),
        ('"rlx.1"() {a = 1.5, b = 2.e3}', False),
        ('"linalg.fill"() : () -> ()', True),
        ('"linalg.fill" <{}>', True),
        ("#linalg.iterator_type<parallel>", True),
        ("!llvm.ptr", True),
        ("tensor<2x!quant.uniform<i8:f32, 1.0>>", True),
        ("tensor<2x!quant<uniform<i8:f32, 1.0>>>", True),
        ("#linalg<iterator_type<parallel>>", True),
        ('#rlx<dims> tensor<?xf32, #rlx.dims<["n"]>>', False),
        ('"linalg.fill" // so\n ()', True),
        (r'"linalg\2Efill"()', True),
        (r'"a\22b" "c"(', False),
        ("affine_map<(d0) -> (d0)>", True),
        ('{rlx.x = "affine_map"} // affine_map', False),
        ("%vector, @memref, %x.sparse, array<i64: 1>", False),
        ("tensor<4xf32, sparse", True),
        ('{-# dialect_resources: { builtin: { a: "0x00" } } #-}', True),
    ],
)
def test_text_of_other_dialects_is_found(text: str, expected: bool) -> None:
    assert isolated.is_foreign(text) == expected


LEAST = "(-9223372036854775807 - 1)"
RESOURCES = "{{-# dialect_resources: {{ builtin: {{ a: {} }} }} #-}}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"#m = affine_map<(d0) -> ({LEAST} floordiv -1 + {LEAST} ceildiv -1)>\n",
        f"func.func private @f(memref<4xf32, affine_map<(d0) -> ((d0 * {LEAST}) floordiv -1)>>)",
        f"#s = affine_set<(d0) : ((d0 * {LEAST}) ceildiv -1 == 0)>\nfunc.func private @f() attributes {{x = #s}}",
        f"func.func private @f() attributes {{x = affine_map<(d0) -> ((d0 * {LEAST}) ceildiv -1)>}}",
        f"func.func private @f() loc(fused<affine_map<(d0) -> ((d0 * {LEAST}) floordiv -1)>>[unknown])",
        f"func.func private @f(tensor<4xf32, affine_map<(d0) -> ((d0 * {LEAST}) floordiv -1)>>)",
        f"func.func private @f(tensor<4xf32, #sparse_tensor<encoding<{{map=(d0) -> ((d0 * {LEAST}) floordiv -1 : dense)}}>>>)",
        RESOURCES.format('"0x0000000000000000"') + "module {}",
        RESOURCES.format('"0x0300000000000000"') + "module {}",
        RESOURCES.format('"0x0000008000000000"') + "module {}",
    ],
)
def test_builtin_text_that_ends_a_process_is_an_error(text: str) -> None:
    with pytest.raises(rlx.Error):
        rlx.parse(text + "\n")


def test_an_interrupted_question_is_not_answered_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    good = CRASHING.replace("[4x", "[1, 0]")
    isolated.attempt(good)
    asked = isolated._process
    assert asked is not None

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # twice: while waiting, and during the cleanup
        patched.setattr(isolated, "_answer", interrupted)
        patched.setattr(isolated, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            isolated.attempt(good)
    with pytest.raises(rlx.ParseError, match="crashes on"):
        isolated.attempt(CRASHING)
    assert asked.returncode is not None  # and the process has ended
