"""IREE runs its linker through a shell without quotes: the shell must not interpret paths."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from rlx.targets.iree import process
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.executable import IreeExecutable
from rlx.targets.iree.targets import target
from rlx.targets.worker.pool import WorkerPool

pytestmark = pytest.mark.skipif(os.name != "posix", reason="about a POSIX shell")

DOUBLE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def compiles() -> None:
    pool = WorkerPool(1)
    module = compile_module(DOUBLE, target("cpu"), worker=pool, name="$(touch run) `touch run`;touch run;.mlir")
    pool.close()
    assert len(module.attempts) == 1
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(IreeExecutable(module.vmfb).function("main")([x])[0], 2 * x)


@pytest.mark.parametrize("name", ["a b", "$(touch run)", "`touch run`;touch run;"])
def test_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    hostile = tmp_path / name
    hostile.mkdir()
    monkeypatch.chdir(tmp_path)
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(hostile))
    monkeypatch.setattr(tempfile, "tempdir", None)
    compiles()
    assert [path.name for path in tmp_path.iterdir()] == [name], "something was run"
    assert not list(hostile.iterdir())


def test_the_compilers_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = process.compiler_library()
    hostile = tmp_path / "a b;touch run;`touch run`"
    hostile.symlink_to(library.parent)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "compiler_library", lambda: hostile / library.name)
    compiles()
    assert list(tmp_path.iterdir()) == [hostile], "something was run"
