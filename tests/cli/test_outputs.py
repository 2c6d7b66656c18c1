"""Output is never lost: an unreadable input is an error, and a failing call does not change a file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import rlx
from rlx.cli import main as rlx_command
from rlx.cli import opt
from tests.cli.calling import HELLO, Command, W, X

if TYPE_CHECKING:
    from typing_extensions import Buffer

GOOD = HELLO
SILENT = "func.func @f() {\n  rlx.yield = 3\n  return\n}\n"  # MLIR's parser fails without a message
UNREADABLE = {
    "an rlx op where none stands": SILENT,
    "an rlx op in brackets": "func.func @f() attributes {a = [rlx.matmul]} {\n  return\n}\n",
    "an unknown op": GOOD.replace("rlx.matmul", "rlx.matmult"),
    "an op of a misspelt dialect": GOOD.replace("rlx.matmul", "rxl.matmul"),
    "a type that is missing": GOOD.replace(": (!x, !w) -> !y", ""),
    "an end that is missing": GOOD[:-5],
    "an attribute that is wrong": GOOD.replace("(%x, %w) :", "(%x, %w) {nothing} :"),
    "operands that do not fit": GOOD.replace("(%x, %w)", "(%w, %x)").replace("(!x, !w)", "(!w, !x)"),
    "aliases alone": "!a = tensor<4xf32>\n#b = loc(unknown)\n",
    "a second op that is wrong": "func.func private @g()\n" + SILENT,
    "an rlx op alone": "%0 = rlx.constant {value = dense<1.0> : tensor<f32>} : tensor<q32>\n",
    "bytecode that is damaged": "ML\xefR garbage",
}


def _encoded(text: str) -> bytes:
    return text.encode("latin-1") if text.startswith("ML") else text.encode()


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("flags", [(), ("--split-input-file",), ("--emit-bytecode",), ("--cse", "--mlir-timing")])
def test_what_cannot_be_read_is_an_error(
    text: str, flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The call gives exit code 1 and a location, never an empty output. An input that is also the output is unchanged."""
    for data in (
        (_encoded(text), b"// a comment\n" + _encoded(text)) if not text.startswith("ML") else (_encoded(text),)
    ):
        file = tmp_path / "model.mlir"
        file.write_bytes(data)
        for output in ("-", str(file)):
            assert opt.main([str(file), *flags, "-o", output]) == 1
            shown = capsys.readouterr()
            assert shown.out == "" and "error: " in shown.err and "Traceback" not in shown.err
            assert f"{file}:" in shown.err
            assert file.read_bytes() == data and os.listdir(tmp_path) == ["model.mlir"]
    if not text.startswith("ML"):
        with pytest.raises(rlx.ParseError) as caught:
            rlx.parse(text)
        assert ":0:" not in (caught.value.location or ":0:")


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("command", ["compile", "inspect", "run"])
def test_no_command_takes_what_cannot_be_read(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "model.mlir", tmp_path / "out"
    file.write_bytes(_encoded(text))
    out.write_bytes(b"as it was")
    flags = {
        "compile": ["-o", str(out), "--emit=lir"],
        "inspect": ["--svg", str(out)],
        "run": ["--evaluate", f"--save={out}"],
    }[command]
    assert rlx_command.main([command, str(file), *flags]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "error: " in shown.err and "Traceback" not in shown.err
    assert out.read_bytes() == b"as it was" and sorted(os.listdir(tmp_path)) == ["model.mlir", "out"]


def test_diagnostics_that_were_expected_empty_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.mlir"
    text = SILENT.replace("= 3", "= 3 // expected-error {{'rlx.yield' is not expected here}}")
    file.write_text(text)
    assert opt.main([str(file), "--verify-diagnostics", "-o", str(file)]) == 0
    assert file.read_text() == text
    assert opt.main([str(file), "--verify-diagnostics=only-expected", "--split-input-file"]) == 0
    assert capsys.readouterr() == ("", "")


def test_text_without_ops_is_an_empty_module_only_if_it_is_blank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.mlir"
    for text in ("", "\n", "// nothing\n", " \t\r\n// a\n\n// b"):
        file.write_text(text)
        assert opt.main([str(file)]) == 0
        assert capsys.readouterr().out == "module {\n}\n"
        with pytest.raises(rlx.ParseError, match="there is no op"):
            rlx.parse(file)


def test_several_ops_keep_their_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Functions without a module have the file's name in their locations, whatever text precedes them."""
    for start in ("", "// a\n", "!a = i32\n", "\n\n"):
        file = tmp_path / "model.mlir"
        file.write_text(start + "func.func private @f()\nfunc.func private @g()\n")
        assert opt.main([str(file), "--mlir-print-debuginfo"]) == 0
        shown = capsys.readouterr().out
        line = start.count("\n") + 1
        assert f'"{file}":{line}:1' in shown and f'"{file}":{line + 1}:1' in shown


# --- commands that fail after their input was read ------------------------------------------------


def _opt(file: Path, out: Path) -> int:
    return opt.main([str(file), "--rlx-simplify", "-o", str(out)])


def _opt_bytecode(file: Path, out: Path) -> int:
    return opt.main([str(file), "--emit-bytecode", "-o", str(out)])


def _compile(file: Path, out: Path) -> int:
    return rlx_command.main(["compile", str(file), "--emit=lir", "-o", str(out)])


def _lower(file: Path, out: Path) -> int:
    return rlx_command.main(["compile", str(file), "--target=stablehlo", "-o", str(out)])


def _svg(file: Path, out: Path) -> int:
    return rlx_command.main(["inspect", str(file), f"--svg={out}"])


def _save(file: Path, out: Path) -> int:
    return rlx_command.main(["run", str(file), "--evaluate", f"--input={X}", f"--param={W}", f"--save={out}"])


def _artifact(file: Path, out: Path) -> int:
    from rlx.targets.artifacts.artifact import Artifact
    from rlx.targets.artifacts.signature import Signature

    try:
        Artifact("cpu", "any", Signature.of(rlx.parse(file)), b"program").save(out)
    except rlx.Error:
        return 1
    return 0


def _checkpoint(file: Path, out: Path) -> int:
    from rlx.train.checkpoint import write

    try:
        write(out, {"w": np.zeros(3, np.float32)})
    except rlx.Error:
        return 1
    return 0


class Full(io.FileIO):
    """A file on a disk that is full after some bytes."""

    def __init__(self, path: str):
        super().__init__(path, "wb")

    def write(self, data: Buffer, /) -> int:
        super().write(memoryview(data)[:3])
        raise OSError(28, "No space left on device")


WRITERS = [_opt, _opt_bytecode, _compile, _lower, _svg, _save, _artifact, _checkpoint]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("disk", ["full", "full at the end", "read only"])
def test_a_write_that_fails_leaves_the_file_as_it_was(
    write: Callable[[Path, Path], int], disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If writing a file fails, the old file is unchanged, and no other file remains."""
    file = tmp_path / "model.mlir"
    file.write_text(GOOD)
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "file.svg"
    assert write(file, out) == 0 and out.stat().st_size
    out.write_bytes(b"as it was")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def half(path: Path, data: bytes) -> int:
        with open(path, "wb") as opened:
            opened.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    if disk == "full at the end":
        monkeypatch.setattr(os, "replace", full)
    elif disk == "full":
        monkeypatch.setattr(Path, "write_bytes", half)
        for module in ("rlx.weights.safetensors", "rlx.targets.artifacts.archive"):
            monkeypatch.setattr(f"{module}.open", lambda path, _: Full(path), raising=False)
    else:
        real = os.open
        refused = lambda path, flags, *rest, **more: (  # noqa: E731
            full() if flags & os.O_CREAT else real(path, flags, *rest, **more)
        )
        monkeypatch.setattr(os, "open", refused)
    assert write(file, out) == 1
    assert out.read_bytes() == b"as it was"
    assert os.listdir(folder) == [out.name]


def test_a_pass_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.mlir"
    file.write_text(GOOD + "// -----\n" + GOOD.replace("@hello", "@other"))
    before = file.read_bytes()
    for flags in (["--rlx-bind=n=3"], ["--rlx-no-such"], ["--rlx-to-linalg", "--rlx-grad"], ["--emit-bytecode"]):
        assert opt.main([str(file), "--split-input-file", *flags, "-o", str(file)]) == 1
        assert file.read_bytes() == before and os.listdir(tmp_path) == ["model.mlir"]
    file.write_text(GOOD)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert opt.main([str(file), "--rlx-simplify", "-o", str(file)]) == 0
    assert "rlx.matmul(%arg0, %arg1)" in file.read_text()


@pytest.mark.parametrize("name", ["mödel.mlir", 'a "b".mlir', "a\\b.mlir", "a b:1:2.mlir", "no text \udcff.mlir"])
def test_places_in_files_of_any_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    line = '  %0 = rlx.activation %x {kind = "exp"} : f %1 = rlx.activation %x {kind = "tanhh"} : f\n'
    file.write_text("func.func @f(%x: f) {\n" + line + "  return\n}\n")
    file.write_text(file.read_text().replace(": f", ": tensor<4xf32>"))
    column = file.read_text().split("\n")[1].index("rlx.activation", 20) + 1
    assert opt.main([str(file)]) == 1
    shown = capsys.readouterr().err
    printed = str(file).encode(errors="backslashreplace").decode()
    assert shown.startswith(f"{printed}:2:{column}: error: 'rlx.activation' op attribute 'kind'"), shown
    with pytest.raises(rlx.ParseError) as caught:
        rlx.parse(file)
    assert (caught.value.location or "").endswith(f":2:{column}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "-o", "OUT"),
        ("inspect", "--svg", "OUT"),
        ("inspect", "--html", "OUT"),
        ("inspect", "--memory-svg", "OUT"),
        ("profile", "--trace", "OUT"),
        ("quantize", "-o", "OUT"),
        ("quantize", "-o", "-", "--save-record", "OUT"),
        ("quantize", "-o", "-", "--output-params", "OUT"),
        ("tune", "-o", "OUT"),
    ],
    ids=" ".join,
)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    arguments: tuple[str, ...], tmp_path: Path, command: Command
) -> None:
    """The error is raised before the input, which does not exist, is read."""
    (tmp_path / "file").write_text("")
    wrong = {"no folder/out": "No such file or directory", "file/out": "Not a directory", ".": "Is a directory"}
    for name, reason in wrong.items():
        out = str(tmp_path / name)
        words = [out if word == "OUT" else word for word in arguments]
        assert command.error(words[0], "missing.mlir", *words[1:]) == f"cannot write {out}: {reason}"
    assert sorted(os.listdir(tmp_path)) == ["file"]
