"""`rlx compile`."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.iree.cpu import machine
from tests.cli.calling import HELLO, Command, W, X

SYMBOLIC = """\
!t = tensor<?x4xf32, #rlx.dims<["n"]>>
module {
  func.func @add(%a: !t {rlx.name = "a"}) -> !t {
    %0 = rlx.binary(%a, %a) {kind = "add"} : !t
    return %0 : !t
  }
}
"""


def test_the_artifact_runs(command: Command, hello: Path, tmp_path: Path) -> None:
    out = command.output("compile", hello, "--target=cpu", "-o", tmp_path / "hello.rlxa")
    assert out.startswith(f"{tmp_path / 'hello.rlxa'}: hello for cpu (host), ")
    program = rlx.load(tmp_path / "hello.rlxa", params={"w": np.eye(4, 2, dtype=np.float32)})
    (y,) = program.run({"x": np.array([[1, 2, 3, 4]], np.float32)})
    np.testing.assert_array_equal(y, [[1, 2]])


def test_what_a_program_needs_of_a_cpu_is_told_and_checked(command: Command, hello: Path, tmp_path: Path) -> None:
    for arch in ("x86-64", "x86-64-v3"):
        out = command.output("compile", hello, f"--arch={arch}", "-o", tmp_path / f"{arch}.rlxa")
        assert out.splitlines()[-1] == f"needs: {arch}"
    assert "\nneeds: " in command.output("compile", hello, "-o", tmp_path / "host.rlxa")
    assert "\nneeds: " not in command.output("compile", hello, "--target=cuda", "-o", tmp_path / "cuda.rlxa")
    foreign = "aarch64" if machine() == "x86_64" else "x86-64"
    command.output("compile", hello, f"--arch={foreign}", "-o", tmp_path / "foreign.rlxa")
    refused = command("run", tmp_path / "foreign.rlxa", f"--input={X}", f"--param={W}")
    assert refused.code == 1
    assert f"this machine is {machine()}, not" in refused.err
    assert "--arch=" in refused.err


@pytest.mark.parametrize(
    ("target", "arch", "compiled_for"),
    [("cuda", "sm_80", "cuda (sm_80)"), ("hip", "gfx942", "rocm (gfx942)"), ("vmvx", None, "vmvx (default)")],
)
def test_other_targets(
    command: Command, hello: Path, tmp_path: Path, target: str, arch: str | None, compiled_for: str
) -> None:
    options = [f"--target={target}", *([f"--arch={arch}"] if arch else [])]
    assert f"hello for {compiled_for}" in command.output("compile", hello, *options, "-o", tmp_path / "out.rlxa")
    artifact = Artifact.load(tmp_path / "out.rlxa")
    assert f"{artifact.target} ({artifact.arch})" == compiled_for
    assert artifact.program


def test_a_program_for_xla_runs(command: Command, hello: Path, tmp_path: Path) -> None:
    out = command.output("compile", hello, "--target=xla", "-o", tmp_path / "hello.rlxa")
    assert out.startswith(f"{tmp_path / 'hello.rlxa'}: hello for xla (cpu), ")
    program = rlx.load(tmp_path / "hello.rlxa", params={"w": np.eye(4, 2, dtype=np.float32)})
    np.testing.assert_array_equal(program.run({"x": np.array([[1, 2, 3, 4]], np.float32)})[0], [[1, 2]])


def test_target_stablehlo_writes_a_portable_artifact(command: Command, hello: Path, tmp_path: Path) -> None:
    out = command.output("compile", hello, "--target=stablehlo", "-o", tmp_path / "hello.mlirbc")
    assert "hello for stablehlo (portable)" in out
    assert (tmp_path / "hello.mlirbc").read_bytes().startswith(b"ML\xefR\rStableHLO_v")
    (tmp_path / "add.mlir").write_text(SYMBOLIC)
    bound = ["--bind=n=3", "-o", tmp_path / "add.mlirbc"]
    command.output("compile", tmp_path / "add.mlir", "--target=stablehlo", *bound)
    error = command.error("compile", tmp_path / "add.mlir", "--target=stablehlo", "-o", tmp_path / "out")
    assert "the size of n is a symbol" in error and "--bind=n=128" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["xla", "stablehlo"])
def test_stablehlo_is_what_xla_is_given(command: Command, hello: Path, target: str) -> None:
    out = command.output("compile", hello, f"--target={target}", "--emit=stablehlo", "-o", "-")
    assert "func.func @main(%arg0: tensor<1x4xf32>, %arg1: tensor<4x2xf32>)" in out
    assert "stablehlo.dot_general" in out
    assert "rlx." not in out
    assert "rlx.matmul" in command.output("compile", hello, f"--target={target}", "--emit=lir", "-o", "-")


def test_the_program_is_that_of_the_artifact(command: Command, hello: Path, tmp_path: Path) -> None:
    command.output("compile", hello, "-o", tmp_path / "hello.rlxa")
    command.output("compile", hello, "--emit=program", "-o", tmp_path / "hello.vmfb")
    assert (tmp_path / "hello.vmfb").read_bytes() == Artifact.load(tmp_path / "hello.rlxa").program


def test_linalg_is_what_iree_is_given(command: Command, hello: Path) -> None:
    out = command.output("compile", hello, "--emit=linalg", "-o", "-")
    assert 'initial_value = #flow.parameter.named<"model"::"w">' in out
    assert "linalg.matmul" in out
    assert "rlx." not in out


def test_lir_is_the_legal_graph(command: Command, tmp_path: Path) -> None:
    g = rlx.Graph("norm")
    g.set_outputs([g.layer_norm(g.input("x", (2, 8)), g.param("scale", (8,)), g.param("bias", (8,)))])
    (tmp_path / "norm.mlir").write_text(str(g))
    text = command.output("compile", tmp_path / "norm.mlir", "--emit=lir", "--kernels=off", "-o", "-")
    assert command.output("compile", tmp_path / "norm.mlir", "--emit=lir", "--kernels=off") == text
    assert "rlx.layer_norm" in command.output("compile", tmp_path / "norm.mlir", "--emit=lir", "--kernels=all")
    assert "a program needs a file: -o OUT" in command.error("compile", tmp_path / "norm.mlir")
    assert "rlx.layer_norm" not in text
    values = {"x": np.arange(16, dtype=np.float32).reshape(2, 8), "scale": np.ones(8, np.float32)}
    values["bias"] = np.zeros(8, np.float32)
    np.testing.assert_allclose(rlx.evaluate(rlx.parse(text), values)[0], rlx.evaluate(g, values)[0], atol=1e-6)


def test_bind_fixes_a_size(command: Command, tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(SYMBOLIC)
    command.output("compile", tmp_path / "add.mlir", "--bind=n=3", "-o", tmp_path / "add.rlxa")
    assert Artifact.load(tmp_path / "add.rlxa").signature.arguments[0].shape == (3, 4)


def test_flags_reach_the_compiler(command: Command, hello: Path, tmp_path: Path) -> None:
    flag = "--iree-opt-level=O1"
    command.output("compile", hello, f"--flag={flag}", "-o", tmp_path / "out.rlxa")
    assert Artifact.load(tmp_path / "out.rlxa").info["flags"][-1] == flag


def test_standard_input_and_output(
    hello_artifact: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(HELLO.encode())))
    from rlx.cli.main import main

    assert main(["compile", "-", "-o", "-"]) == 0
    written = Artifact.from_bytes(capsysbinary.readouterr().out)
    assert written.program == Artifact.load(hello_artifact).program


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target=cpuu"], "unknown target: 'cpuu'"),
        (["--target=xla", "--emit=linalg"], "--emit=linalg: target xla has no such form"),
        (["--target=cpu", "--emit=stablehlo"], "--emit=stablehlo: target cpu has no such form"),
        (["--target=xla", "--flag=--iree-opt-level=O1"], "expected an option of XLA, such as"),
        (["--target=cuda", "--arch=sm_1"], "unknown architecture of cuda: 'sm_1'"),
        (["--bind=n"], "--bind=n: expected SYMBOL=SIZE"),
        (["--bind=n=many"], "--bind=n=many: expected SYMBOL=SIZE"),
        (["--bind=n=2", "--bind=n=3"], "--bind: 'n' is bound twice"),
        (["--bind=n=2"], "the graph has no symbol n"),
        (["--function=other"], "the module has no function 'other'; it has hello"),
        (["--flag=--no-such-flag"], "no-such-flag"),
        (["--passes=no-such-pass"], "no-such-pass"),
    ],
)
def test_mistakes(command: Command, hello: Path, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in command.error("compile", hello, *options, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"module {", "in.mlir:1:"),
        (b'module { func.func @f() { "rlx.no_such_op"() : () -> () return } }', "no_such_op"),
        (b"module {}", "the module has no public function"),
        (b"\xff\xfe", ":1:1: neither UTF-8 text nor bytecode"),
        (b"ML\xefR1234", "not valid bytecode"),
        (b"PK\x03\x04damaged", "is not a compiled RLX program, or is damaged"),
        (b"", "in.mlir"),
    ],
)
def test_files_that_are_no_graph(command: Command, tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "in.mlir").write_bytes(content)
    error = command.error("compile", tmp_path / "in.mlir", "-o", tmp_path / "out")
    assert message in error
    assert "in.mlir" in error or content == b"module {}"
    assert not (tmp_path / "out").exists()


def test_a_compiled_file_is_not_compiled_again(command: Command, hello_artifact: Path, tmp_path: Path) -> None:
    assert "is compiled already" in command.error("compile", hello_artifact, "-o", tmp_path / "out")


def test_an_output_that_cannot_be_written_leaves_nothing(command: Command, hello: Path, tmp_path: Path) -> None:
    out = tmp_path / "no such folder" / "hello.rlxa"
    assert f"cannot write {out}" in command.error("compile", hello, "-o", out)
    assert [path.name for path in tmp_path.iterdir()] == ["hello.mlir"]


@pytest.mark.skipif(machine() != "x86_64", reason="it compiles for this machine's architecture and another one")
def test_several_programs_and_weights_in_one_file(
    command: Command, hello: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, weights = tmp_path / "hello.rlxa", tmp_path / "w.npz"
    np.savez(weights, w=np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32))
    several = ("--arch=x86-64-v2", "--also=cpu:x86-64", "--also=cpu:aarch64", f"--params={weights}")
    for more in ([], [f"--params-file={tmp_path / 'w.irpa'}"]):
        out = command.output("compile", hello, *several, *more, "-o", path)
        assert "hello for cpu (x86-64-v2) and cpu (x86-64) and cpu (aarch64), " in out
        assert "cpu (x86-64) needs: x86-64\n" in out
        told = command.output("inspect", path)
        assert "and for cpu (aarch64), " in told and "parameters with values: 1, " in told
        for level in ("", "x86-64"):
            monkeypatch.setenv("RLX_CPU_LEVEL", level)
            assert "[[4. 6.]]" in command.output("run", path, f"--input={X}")
        assert "[[3. 7.]]" in command.output("run", path, f"--input={X}", "--param=w=4x2xf32=1,0,1,0,0,1,0,1")
    monkeypatch.setenv("RLX_CPU_LEVEL", "riscv64")
    assert "has no program that this machine can run" in command.error("run", path, f"--input={X}")
    monkeypatch.delenv("RLX_CPU_LEVEL")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"sha256: {digest}" in out
    assert "[[4. 6.]]" in command.output("run", path, f"--input={X}", f"--verify={digest}")
    assert "another file than expected" in command.error("run", path, f"--input={X}", f"--verify={'0' * 64}")
    hello.write_text("")  # the hash is compared before the content is parsed
    assert "another file than expected" in command.error("run", hello, f"--verify={'0' * 64}")


def test_bytecode_is_the_linalg_of_iree(command: Command, hello: Path, tmp_path: Path) -> None:
    command.output("compile", hello, "--emit=bytecode", "-o", tmp_path / "hello.mlirbc")
    assert (tmp_path / "hello.mlirbc").read_bytes()[:4] == b"ML\xefR"
    tool = Path(sysconfig.get_path("scripts"), "iree-compile")
    if tool.exists():
        target = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=vmvx"]
        subprocess.run([tool, "hello.mlirbc", *target, "-o", "hello.vmfb"], cwd=tmp_path, check=True)
        assert (tmp_path / "hello.vmfb").stat().st_size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--also=cpu:no-such"], "no-such"),
        (["--also=no-such"], "unknown target: 'no-such'"),
        (["--also=cpu"], "two programs for cpu (host)"),
        (["--params=absent.npz"], "absent.npz"),
        (["--params-file=w.irpa"], "must be in the same folder"),
        (["--emit=program", "--also=cuda"], "--also: only an artifact for a device has that"),
        (["--target=stablehlo", "--params=w.npz"], "--params: only an artifact for a device has that"),
        (["--target=cortexm", "--params=w.npz"], "--passes='rlx-bind-params{file=w.npz}'"),
    ],
)
def test_what_cannot_be_put_into_a_file(
    command: Command, hello: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    assert message in command.error("compile", hello, *options, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
