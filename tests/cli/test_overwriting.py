"""No command overwrites a file that it reads."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

import pytest

import rlx
from rlx.cli.files import INPUTS, OUTPUTS
from rlx.cli.main import COMMANDS, main
from tests.importers.test_onnx_external import written as model_with_external_weights

CALLS = [
    ("compile", "in.mlir", "--params=w.safetensors", "-o"),
    ("compile", "in.mlir", "--params=w.safetensors", "-o", "out", "--params-file"),
    ("tune", "in.mlir", "--params=w.safetensors", "-o"),
    ("quantize", "in.mlir", "--params=w.safetensors", "-o"),
    ("inspect", "in.mlir", "--svg"),
    ("inspect", "in.mlir", "--html"),
    ("profile", "in.mlir", "--trace"),
    ("run", "in.mlir", "--params=w.safetensors", "--save"),
    ("run", "in.mlir", "--input=x=@x.npy", "--save"),
    ("run", "in.mlir", "--param=w=@x.npy", "--save"),
    ("inspect", "in.mlir", "--input=x=@x.npy", "--html"),
]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_an_input_is_not_overwritten(
    call: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = [name for name in ("in.mlir", "w.safetensors", "x.npy") if any(name in word for word in call)]
    for name in inputs:
        Path(name).write_text("text")
    for name in inputs:
        os.link(name, f"linked-{name}")
        for output in (name, f"./{name}", str(tmp_path / name), f"linked-{name}"):
            assert main([*call, output]) == 1
            assert f"={output} is also an input" in capsys.readouterr().err
            assert Path(name).read_text() == "text"


def test_a_file_that_an_input_names_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model_with_external_weights(tmp_path)
    assert main(["compile", "m.onnx", "--target=numpy", "-o", "m.rlxa", "--params-file=m.irpa"]) == 0
    os.link("m.irpa", "linked.irpa")
    Path("indirect.bin").symlink_to("weights.bin")
    before = {name: Path(name).read_bytes() for name in ("weights.bin", "m.irpa")}
    for call in (
        ("run", "m.onnx", "--evaluate", "--input=x=2x4xf32=1", "--save=weights.bin"),
        ("run", "m.onnx", "--evaluate", "--input=x=2x4xf32=1", "--save=indirect.bin"),
        ("inspect", "m.onnx", "--svg=weights.bin"),
        ("compile", "m.onnx", "--target=numpy", "--params-file=weights.bin", "-o", "other.rlxa"),
        ("run", "m.rlxa", "--input=x=2x4xf32=1", "--save=m.irpa"),
        ("run", "m.rlxa", "--input=x=2x4xf32=1", "--save=linked.irpa"),
    ):
        capsys.readouterr()
        assert main(call) == 1, call
        assert "is also an input: this command has read it" in capsys.readouterr().err
        assert {name: Path(name).read_bytes() for name in before} == before
    assert not Path("other.rlxa").exists()
    assert main(["run", "m.rlxa", "--input=x=2x4xf32=1", "--save=y.npy"]) == 0
    assert (
        main(["run", "m.rlxa", "--input=x=2x4xf32=1", "--save=y.npy"]) == 0
    )  # outputs of another command are not inputs


def test_no_file_is_written_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    assert main(["compile", "in.mlir", "-o", str(output), f"--params-file={output}"]) == 1
    assert f"--params-file={output} is also an output, --output" in capsys.readouterr().err
    assert not output.exists()


def test_programs_in_two_languages_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both have a NET.md. With names of their own, they fit into one folder."""
    g = rlx.Graph("net")
    g.set_outputs([g.relu(g.input("x", (1, 4), "i8"))])
    (tmp_path / "net.mlir").write_text(g.text())
    for first, second, main_file in (("cortexm", "fpga", "net.c"), ("fpga", "cortexm", "net.sv")):
        folder = tmp_path / first
        call = ["compile", str(tmp_path / "net.mlir"), "-o", str(folder)]
        assert main([*call, f"--target={first}"]) == 0
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        capsys.readouterr()
        assert main([*call, f"--target={second}"]) == 1
        said = capsys.readouterr().err
        assert "net.md is also a file of the" in said and main_file in said and "--name=NAME" in said
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
        assert main([*call, f"--target={first}"]) == 0  # the same program again
        assert main([*call, f"--target={second}", "--name=other"]) == 0


def test_every_argument_that_names_a_file_is_checked() -> None:
    unknown: list[str] = []
    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"rlx.cli.{command}").add_arguments(parser)
        for action in parser._actions:
            names_file = any(word in str(action.metavar) for word in ("FILE", "OUT"))
            if names_file and action.dest not in (*INPUTS, *OUTPUTS):
                unknown.append(f"{command} {action.dest} {action.metavar}")
    assert not unknown


def _integers(name: str = "net") -> str:
    g = rlx.Graph(name)
    x = g.input("x", (1, 4), "i8")
    g.set_outputs({"y": g.rescale(g.cast(x, "i32") + 1, 0.5)})
    return str(g)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (["--target=cortexm", "--name=net"], ["--target=cortexm", "--name=net_test"], "net_test.c"),
        (["--target=cortexm", "--name=a-net"], ["--target=cortexm", "--name=a-net-weights"], "a_net_weights.h"),
        (["--target=fpga", "--name=eye", "--axi=stream"], ["--target=fpga", "--name=eye_axi"], "eye_axi.sv"),
        (["--target=fpga", "--name=eye"], ["--target=fpga", "--name=eye_tb"], "eye_tb.sv"),
    ],
)
def test_a_file_of_another_program_is_not_overwritten(
    first: list[str],
    second: list[str],
    shared: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two programs whose names differ may have files of the same name: the second one, in either order, is refused."""
    monkeypatch.chdir(tmp_path)
    Path("net.mlir").write_text(_integers())
    for i, (one, other) in enumerate([(first, second), (second, first)]):
        command = ["compile", "net.mlir", f"-o{i}"]
        assert main([*command, *one]) == 0
        written = {p.name: p.read_bytes() for p in Path(str(i)).iterdir()}
        assert shared in written
        capsys.readouterr()
        assert main([*command, *other]) == 1
        names = [next(w for w in words if "--name" in w).removeprefix("--name=") for words in (one, other)]
        told = capsys.readouterr().err
        assert f"{shared} is a file of the program {names[0]}, and also of {names[1]}" in told
        assert {p.name: p.read_bytes() for p in Path(str(i)).iterdir()} == written
        Path(str(i), shared).write_bytes(b"old")  # not a program's
        for _ in range(2):
            assert main([*command, *one]) == 0
        assert {p.name: p.read_bytes() for p in Path(str(i)).iterdir()} == written


def test_programs_with_long_names_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are named by the first letters of the graph's name. The comments have all of them, and are wrapped."""
    monkeypatch.chdir(tmp_path)
    for length in (64, 95, 100, 105, 110, 130):
        for i in range(2):
            Path(f"{i}.mlir").write_text(_integers(f"{'x' * length}{i}"))
        for one, other in ((0, 1), (1, 0)):
            folder = f"{length}-{one}"
            for _ in range(2):  # its own files are replaced
                assert main(["compile", f"{one}.mlir", "--target=cortexm", "-o", folder]) == 0
            written = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
            capsys.readouterr()
            assert main(["compile", f"{other}.mlir", "--target=cortexm", "-o", folder]) == 1
            assert "x.h is a file of the program x" in capsys.readouterr().err
            assert {p.name: p.read_bytes() for p in Path(folder).iterdir()} == written
