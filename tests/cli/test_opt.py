"""`rlx-opt` as a program: exit codes, files, streams. `tests/filecheck` tests its effect on text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import rlx
from rlx import mlir
from rlx.cli import opt
from rlx.cli.main import main as rlx_main
from rlx.passes.base import load

TEXT = """\
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = rlx.activation(%x) {kind = "relu"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
INVALID = TEXT.replace("relu", "rely")


def program(*arguments: str, given: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rlx.cli.opt", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, cwd=cwd, check=False, timeout=60)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.mlir"
    path.write_text(TEXT)
    return path


def call(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> tuple[int, str, str]:
    code = opt.main(arguments)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_program_reads_standard_input_and_writes_standard_output() -> None:
    done = program("-", "--rlx-simplify", given=TEXT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("module {\n  func.func @main(%arg0: tensor<4xf32>)")
    assert program(given=done.stdout).stdout == done.stdout


def test_a_program_fails_with_one_message_and_no_traceback() -> None:
    done = program("-", given=INVALID)
    assert (done.returncode, done.stdout) == (1, "")
    first, source, caret, *rest = done.stderr.split("\n")
    assert first.startswith("<stdin>:2:8: error: 'rlx.activation' op attribute 'kind': 'rely' is not one of")
    assert source == INVALID.split("\n")[1]
    assert caret == " " * 7 + "^"
    assert rest == [""]


def test_the_version_loads_nothing_that_takes_long() -> None:
    code = (
        "import sys, rlx.cli.opt as o; o.main(['--version'])\n"
        "assert not {'rlx.mlir', 'numpy', 'jax'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rlx-opt ") and not done.stderr


@pytest.mark.skipif(os.name == "nt", reason="pipes close otherwise there")
def test_a_reader_that_goes_away_is_no_error_message() -> None:
    command = [sys.executable, "-m", "rlx.cli.opt"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()  # before there is anything to read
        process.stdin.write(TEXT)
        process.stdin.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 141


def test_help_lists_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, ["--help"])
    assert code == 0
    for flag in ("-o FILE", "--pass-pipeline=TEXT", "--check-numerics[=SEED]", "--mlir-timing", "--split-input-file"):
        assert flag in out
    assert call(capsys, ["-h"])[1] == out


def test_list_passes_lists_ours(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, ["--list-passes"])
    assert code == 0 and "--canonicalize" not in out and out.endswith(" passes of MLIR: --list-passes=all\n")
    assert all(f"  --{name} " in out for name in load())


def test_list_passes_lists_mlirs_behind_ours_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, ["--list-passes=mine"])[0] == 1
    code, out, _ = call(capsys, ["--list-passes=all"])
    assert code == 0
    for name in (*load(), "canonicalize", "cse"):
        assert f"  --{name} " in out
    assert "    except=<a list (a string, …)>: more ops to keep" in out


def test_output_goes_to_a_file(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    target = file.with_name("out.mlir")
    assert call(capsys, [str(file), "--cse", "-o", str(target)]) == (0, "", "")
    assert target.read_text().startswith("module {")
    assert sorted(p.name for p in file.parent.iterdir()) == ["model.mlir", "out.mlir"]


def test_nothing_is_written_when_something_fails(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    target = file.with_name("out.mlir")
    target.write_text("as it was")
    both = TEXT + "// -----\n" + INVALID
    file.write_text(both)
    code, out, err = call(capsys, [str(file), "--split-input-file", "-o", str(target)])
    assert (code, out) == (1, "")
    assert f"{file}:7:8: error: " in err
    assert target.read_text() == "as it was"
    assert len(list(file.parent.iterdir())) == 2


def test_output_to_a_device_and_through_a_link(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert call(capsys, [str(file), "-o", os.devnull])[0] == 0
    target, link = file.with_name("out.mlir"), file.with_name("link.mlir")
    target.write_text("")
    link.symlink_to(target)
    assert call(capsys, [str(file), "-o", str(link)])[0] == 0
    assert link.is_symlink() and target.read_text().startswith("module {")


def test_bytecode_goes_out_and_in(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    target = file.with_name("out.mlirbc")
    assert call(capsys, [str(file), "--emit-bytecode", "-o", str(target)])[0] == 0
    assert target.read_bytes().startswith(b"ML\xefR")
    code, out, _ = call(capsys, [str(target)])
    assert code == 0
    assert out == call(capsys, [str(file)])[1]


@pytest.mark.parametrize(
    ("target", "kind", "op"),
    [("cpu", "linalg", "util.global"), ("cortexm", "emitc", "emitc.file"), ("fpga", "hw", "hw.module")],
)
def test_what_rlx_compile_emits_is_read_without_a_flag(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, target: str, kind: str, op: str
) -> None:
    """Ops of IREE and CIRCT are unknown to MLIR's bindings. Other unknown ops are still errors."""
    g = rlx.Graph("added")
    x = g.input("x", (8,), "i8")
    g.set_outputs({"z": x + (g.param("w", (8,), "i8") if kind == "linalg" else g.input("y", (8,), "i8"))})
    (tmp_path / "g.mlir").write_text(str(g))
    emitted = tmp_path / "emitted.mlir"
    command = ["compile", str(tmp_path / "g.mlir"), f"--target={target}", f"--emit={kind}", "-o", str(emitted)]
    assert rlx_main(command) == 0
    assert op in emitted.read_text()
    code, out, err = call(capsys, [str(emitted)])
    assert (code, err) == (0, "") and op in out
    assert call(capsys, [str(emitted), "--canonicalize"])[0] == 0
    emitted.write_text(emitted.read_text().rstrip()[:-1] + '"utils.global"() : () -> ()\n}\n')
    code, out, err = call(capsys, [str(emitted)])
    assert (code, out) == (1, "")
    assert "emitted.mlir:" in err and "utils.global" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.mlir"], "rlx-opt: error: cannot open input file 'nowhere.mlir': No such file or directory"),
        (["a.mlir", "b.mlir"], "rlx-opt: expected one input file, got 'a.mlir' and 'b.mlir'"),
        (["--pass-pipeline"], "rlx-opt: --pass-pipeline takes a value: --pass-pipeline=TEXT"),
        (["--verify-each=perhaps"], "rlx-opt: --verify-each is 0 or 1, not 'perhaps'"),
        (["--check-numerics=x"], "rlx-opt: --check-numerics takes a number, not 'x'"),
        (["--verify-diagnostics=some"], "rlx-opt: --verify-diagnostics is all or only-expected, not 'some'"),
        (["--mlir-timings"], "rlx-opt: unknown command line argument '--mlir-timings'"),
        (["-o", "/nowhere/at/all.mlir", "FILE"], "rlx-opt: error: cannot write /nowhere/at/all.mlir"),
        (["FILE", "--bisect"], "error: --bisect takes passes to search in"),
        (["FILE", "--rlx-simplify", "--bisect", "--reduce"], "error: --bisect and --reduce are two searches"),
        (["FILE", "--rlx-bind=n=3"], "error: rlx-bind: the module has no symbol 'n'"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], file: Path, arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, [str(file) if a == "FILE" else a for a in arguments])
    assert (code, out) == (1, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "model.mlir:1:1: error: neither UTF-8 text nor bytecode"),
        (b"func.func @f() {\n  \xff\n}", "model.mlir:2:3: error: neither UTF-8"),
        (b"ML\xefR garbage", "error: "),
        (b"func.func @f(", "model.mlir:1:13: error: "),
        (b"\x00\x01", "error: "),
    ],
)
def test_a_damaged_input_is_an_error_with_a_place(
    capsys: pytest.CaptureFixture[str], file: Path, data: bytes, message: str
) -> None:
    file.write_bytes(data)
    code, out, err = call(capsys, [str(file)])
    assert (code, out) == (1, "")
    assert message in err
    assert "Traceback" not in err and "internal error" not in err


def test_an_empty_input_is_an_empty_module(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text("")
    assert call(capsys, [str(file)]) == (0, "module {\n}\n", "")


def test_split_inputs_come_out_split(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(TEXT + "// -----\n" + TEXT)
    code, out, _ = call(capsys, [str(file), "--split-input-file"])
    assert code == 0
    first, second = out.split("// -----\n")
    assert first == second
    file.write_text(TEXT + "// ====\n" + TEXT)
    assert call(capsys, [str(file), "--split-input-file=// ===="])[1] == out


def test_verification_can_be_left_out(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    # Binding n to 0 leaves a gather from an empty table, which the verifier refuses.
    text = """\
func.func @main(%t: tensor<?x4xf32, #rlx.dims<["n"]>>, %i: tensor<2xi32>) {
  %0 = rlx.gather(%t, %i) {axis = 0} : (tensor<?x4xf32, #rlx.dims<["n"]>>, tensor<2xi32>) -> tensor<2x4xf32>
  return
}
"""
    file.write_text(text)
    code, _, err = call(capsys, [str(file), "--rlx-bind=n=0"])
    assert code == 1
    assert f"{file}:2:8: error: rlx-bind gave an invalid module: 'rlx.gather' op axis 0" in err
    code, out, _ = call(capsys, [str(file), "--rlx-bind=n=0", "--verify-each=0"])
    assert code == 0 and "tensor<0x4xf32>" in out


def test_check_numerics_names_the_pass(
    capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlx.ops.elementwise.activation import ACTIVATIONS

    code, _, err = call(capsys, [str(file), "--check-numerics=7", "--rlx-simplify", "--cse"])
    assert (code, err) == (0, "")
    # A drifting evaluator has the same effect as a wrong pass.
    calls = iter(range(100))
    monkeypatch.setitem(ACTIVATIONS, "relu", lambda x: x + next(calls))
    code, _, err = call(capsys, [str(file), "--check-numerics=7", "--rlx-simplify", "--cse"])
    assert code == 1
    assert "check-numerics: rlx-simplify changes the result of @main: output 'output0' at [0] was" in err


def test_ops_of_unknown_dialects_need_a_flag(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text('func.func @f() {\n  "foo.bar"() : () -> ()\n  return\n}\n')
    code, _, err = call(capsys, [str(file)])
    assert code == 1 and f"{file}:2:12: error: " in err
    code, out, _ = call(capsys, [str(file), "--allow-unregistered-dialect"])
    assert code == 0 and '"foo.bar"()' in out
    assert call(capsys, [str(file)])[0] == 1


def test_ops_of_unknown_dialects_that_a_pass_emits_need_none(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    lowering = [str(file), "--rlx-to-linalg", "--rlx-iree-globals", "--cse", "--canonicalize"]
    file.write_text(TEXT.replace("tensor<4xf32>)", 'tensor<4xf32> {rlx.name = "w", rlx.kind = "param"})'))
    code, out, _ = call(capsys, lowering)
    assert code == 0 and '"util.global.load"() {global = @param.w}' in out
    for flags in (["--bisect"], ["--rewrite-limit=1000"], ["--mlir-print-ir-after-all"], ["--emit-bytecode"]):
        assert call(capsys, [*lowering, *flags, "-o", str(file.with_suffix(".out"))])[0] == 0
        assert not mlir.context().allow_unregistered_dialects
    file.write_text(out)
    assert call(capsys, [str(file)])[:2] == (0, out)
    file.write_text(out.replace("util.global", "mine.global"))
    code, _, err = call(capsys, [str(file)])
    assert code == 1 and "there is no op 'mine.global'" in err


def test_a_defect_is_one_line_unless_a_traceback_is_wanted(
    capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(opt.OptRun, "_parts", broken)
    monkeypatch.delenv("RLX_TRACEBACK", raising=False)
    code, _, err = call(capsys, [str(file)])
    assert code == 1
    assert err.startswith("rlx-opt: internal error: ZeroDivisionError: oh\n")
    monkeypatch.setenv("RLX_TRACEBACK", "0")
    assert call(capsys, [str(file)])[0] == 1
    monkeypatch.setenv("RLX_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        opt.main([str(file)])
