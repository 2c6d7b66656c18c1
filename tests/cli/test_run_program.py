"""`rlx-run`: compiled programs without a compiler."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.cli.run_program import main

W = np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program, one with entry points, and one with buckets."""
    folder = tmp_path_factory.mktemp("programs")
    session = rlx.Session()

    def graph(name: str, rows: int | str) -> rlx.Graph:
        g = rlx.Graph(name)
        g.set_outputs({"y": g.input("x", (rows, 4)) @ g.param("w", (4, 2))})
        return g

    session.compile(graph("single", 1), params={"w": W}).save(folder / "single.rlxa", params=True)
    both = {"first": graph("first", 1), "second": graph("second", 2)}
    session.compile(both, params={"w": W}).save(folder / "several.rlxa", params=True)
    session.compile(graph("bucketed", "n"), buckets={"n": [2, 4]}).save(folder / "bucketed.rlxa")
    (folder / "graph.mlir").write_text(str(graph("graph", 1)))
    np.save(folder / "x.npy", np.ones((3, 4), np.float32))
    np.savez(folder / "w.npz", w=2 * W)
    return folder


def test_programs_run(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder / "single.rlxa"), "--input=x=1x4xf32=1", f"--save=y={tmp_path / 'y.npy'}"]) == 0
    assert capsys.readouterr().out == "y: f32[1, 2]\n[[12. 16.]]\n"
    assert np.load(tmp_path / "y.npy").tolist() == [[12, 16]]
    assert main([str(folder / "several.rlxa"), "--entry=second", "--input=x=2x4xf32=1", "--repeat=2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 runs: median ") and out.endswith("[[12. 16.]\n [12. 16.]]\n")
    assert main([str(folder / "bucketed.rlxa"), f"--params={folder / 'w.npz'}", f"--input=x=@{folder / 'x.npy'}"]) == 0
    assert "f32[3, 2]" in (out := capsys.readouterr().out) and "[24. 32.]" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["graph.mlir"], "is not a compiled RLX program"),
        (["absent.rlxa"], "absent.rlxa"),
        (["several.rlxa", "--input=x=1x4xf32=1"], "has several entry points: 'first', 'second'"),
        (["single.rlxa", "--entry=first", "--input=x=1x4xf32=1"], "has no entry points by name"),
        (["single.rlxa"], "input 'x' (f32[1, 4]) is missing: add --input=x=1x4xf32=0"),
        (["single.rlxa", "--input=x=1x3xf32=1"], "input 'x' must be f32[1, 4], got float32[1, 3]"),
        (["single.rlxa", "--input=x=1x4xf32=1", "--device=cuda"], "is compiled for cpu, not for cuda"),
        (["single.rlxa", "--input=x=1x4xf32=1", "--repeat=0"], "--repeat must be a positive number"),
        (["single.rlxa", "--input=x=1x4xf32=1", f"--verify={hashlib.sha256(b'').hexdigest()}"], "SHA-256"),
        (["single.rlxa", "--input=x=1x4xf32=1", "--save=z=z.npy"], "there is no output 'z'"),
    ],
)
def test_errors_are_one_message(
    folder: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main(argv) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("rlx-run: error: ") and message in shown.err and "Traceback" not in shown.err


def test_the_cpu_is_checked(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_CPU_LEVEL", "riscv64")
    assert main([str(folder / "single.rlxa"), "--input=x=1x4xf32=1"]) == 1
    assert "this machine is riscv64 (RLX_CPU_LEVEL is riscv64)" in capsys.readouterr().err


def test_the_program_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = folder / "single.rlxa"
    before = program.read_bytes()
    assert main([str(program), "--input=x=1x4xf32=1", f"--save=y={program}"]) == 1
    assert "is also an input" in capsys.readouterr().err
    assert program.read_bytes() == before
