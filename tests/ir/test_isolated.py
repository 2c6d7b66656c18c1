"""Bytecode, and text in the formats of other dialects, is read by another process: this one survives what is in it."""

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
from rlx.ir import isolated

# Its parser goes on with a list that it could not read.
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
    assert Path(__file__).name in str(here)  # it still knows the line that built it


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
    for program in ("kill -9 $$", "exec sleep 60"):
        command = ["/bin/sh", "-c", program]
        monkeypatch.setattr(isolated, "_command", lambda *_, command=command: command)
        with pytest.raises(rlx.ParseError):
            isolated.bytecode_text(b"ML\xefR")
        with pytest.raises(rlx.ParseError, match="MLIR's parser"):
            isolated.attempt("linalg.fill")
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
    # The next text is read by a new process.
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
    monkeypatch.setattr(isolated, "_command", lambda *_: [sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(isolated, "SECONDS", 0.1)
    monkeypatch.setattr(isolated, "_START", 0.1)
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
    ],
)
def test_text_of_other_dialects_is_found(text: str, expected: bool) -> None:
    assert isolated.is_foreign(text) == expected
