"""Ctrl-C at any moment: exit code 130, nothing printed, and no file half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlx.targets.artifacts.artifact import Artifact
from tests.cli.calling import HELLO
from tests.drawing import drawn

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")
COMPILE = ("rlx.cli.main", "compile", "--no-cache", "hello.mlir", "-o", "out")
TICKS = os.sysconf("SC_CLK_TCK") if os.name == "posix" else 1
OPT = ("rlx.cli.opt", "--canonicalize", "--rlx-decompose", "hello.mlir", "-o", "out")


def start(folder: Path, module: str, *arguments: str, tell_imports: bool = False) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder / "tmp")}
    options = ["-X", "importtime"] if tell_imports else []
    return subprocess.Popen(
        [sys.executable, *options, "-m", module, *arguments],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hello.mlir").write_text(HELLO)
    (tmp_path / "tmp").mkdir()
    return tmp_path


@pytest.mark.parametrize("command", [COMPILE, OPT], ids=["compile", "opt"])
@pytest.mark.parametrize("seen", ["rlx.cli", "rlx.support.errors", "rlx.ir.shape", "rlx.ops.norm"])
def test_an_interrupt_while_modules_are_imported(folder: Path, command: tuple[str, ...], seen: str) -> None:
    """The interpreter reports the module that it has imported; then the interrupt is sent."""
    (folder / "out").write_text("before")
    process = start(folder, *command, tell_imports=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.split("|")[-1].strip() == seen:
            break
    else:
        pytest.fail("it was not imported")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert out == ""
    assert not [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (folder / "out").read_text() == "before"
    assert sorted(path.name for path in folder.iterdir()) == ["hello.mlir", "out", "tmp"]


_INTERRUPTING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"] and "numpy" in sys.modules:
            os.environ["INTERRUPT_AT"] = ""
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("command", [COMPILE, OPT], ids=["compile", "opt"])
@pytest.mark.parametrize("name", ["datetime", "numpy._core._exceptions", "torch_mlir._mlir_libs._mlir"])
def test_an_interrupt_in_the_c_code_of_a_module(folder: Path, command: tuple[str, ...], name: str) -> None:
    """NumPy and others import Python modules from C, and crash if such an import raises an exception."""
    (folder / "sitecustomize.py").write_text(_INTERRUPTING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "INTERRUPT_AT": name}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), done
    assert not (folder / "out").exists()


def test_an_interrupt_while_the_compiler_works(folder: Path) -> None:
    process = start(folder, *COMPILE)
    end = time.monotonic() + 60
    while not list((folder / "tmp").glob("rlx-worker-*/stderr")) and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # It may have finished before the signal was sent.
    if process.returncode == 0:
        Artifact.load(folder / "out")
    else:
        assert (process.returncode, out, err) == (130, "", "")
        assert not (folder / "out").exists()
    while list((folder / "tmp").iterdir()) and time.monotonic() < end:
        time.sleep(0.02)
    assert not list((folder / "tmp").iterdir()), "the compiler's folder is left"


ENDLESS = """func.func @endless(%arg0: tensor<f32> {rlx.name = "x"}) -> (tensor<f32> {rlx.name = "y"}) {
  %0 = rlx.while(%arg0) : tensor<f32> cond {
  ^bb0(%arg1: tensor<f32>):
    %1 = rlx.compare(%arg1, %arg1) {kind = "eq"} : (tensor<f32>, tensor<f32>) -> tensor<i1>
    rlx.yield %1 : tensor<i1>
  } body {
  ^bb0(%arg1: tensor<f32>):
    %1 = rlx.activation(%arg1) {kind = "cos"} : tensor<f32>
    rlx.yield %1 : tensor<f32>
  }
  return %0 : tensor<f32>
}
"""
SECONDS_UNTIL_IT_RUNS = 3.0  # of processor time


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at /proc")
@drawn("option", ["--device=cpu", "--device=xla", "--evaluate"], weights={"--evaluate": 0.1})
def test_an_interrupt_while_a_program_runs(folder: Path, option: str) -> None:
    """Compiled code does not run Python's handlers: the signal itself ends the process."""
    (folder / "endless.mlir").write_text(ENDLESS)
    process = start(folder, "rlx.cli.main", "run", "endless.mlir", "--input=x=f32=1", "--save=y=y.npy", option)
    stat = Path(f"/proc/{process.pid}/stat")
    while sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) < SECONDS_UNTIL_IT_RUNS * TICKS:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == (130 if option == "--evaluate" else -signal.SIGINT), (out, err)
    assert not out and not err and not (folder / "y.npy").exists()
