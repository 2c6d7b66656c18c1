"""Terminals without Unicode, readers that close their pipe, and missing packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlx
from tests.cli.calling import HELLO, W, X

ROOT = str(Path(rlx.__file__).parents[1])


def call(program: str, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *argv],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=300,
        env=os.environ | {"PYTHONPATH": ROOT, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} | environment,
    )


MAIN = "import sys; from rlx.cli.{} import main; sys.exit(main())"


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONIOENCODING": ""}])
def test_ascii(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(HELLO.replace('"x"', '"\\C3\\A9"').replace('"y"', '"\\E2\\80\\A6"'), encoding="utf-8")
    calls = [[name, "--help"] for name in ("compile", "run", "inspect", "embed", "devices", "doctor")]
    calls += [["--help"], ["inspect", str(path)], ["devices"], ["run", str(path), "--evaluate"]]
    loop = (
        "import sys, json\nfrom rlx.cli.main import main\n"
        "for argv in json.loads(sys.argv[1]):\n"
        "    try: main(argv)\n    except SystemExit: pass\n"
        "from rlx.cli.opt import main\nmain(['--help'])\nmain(['--list-passes'])\n"
    )
    done = call(loop, json.dumps(calls), **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr and done.stdout.isascii()
    assert "\\xe9" in done.stderr  # the missing input


@pytest.mark.parametrize(
    ("absent", "hint"),
    [
        ("iree.runtime", "pip install iree-base-runtime"),
        ("iree.compiler", "iree-base-compiler"),
        ("safetensors", "pip install safetensors"),
        ("ml_dtypes", "pip install ml_dtypes"),
        ("jax", "pip install 'rlx[jax]'"),
    ],
)
def test_packages_that_are_not_there(absent: str, hint: str, tmp_path: Path) -> None:
    (tmp_path / "w").write_text("weights")
    program = f"""
import sys
sys.modules[{absent!r}] = None
import numpy as np, rlx
g = rlx.Graph("g")
try:
    g.set_outputs([g.input("x", (2, 3), "bf16" if {absent!r} == "ml_dtypes" else "f32") * 2.0])
    session = rlx.Session("xla" if {absent!r} == "jax" else "cpu")
    compiled = session.compile(g, cache=False, params=None if {absent!r} != "safetensors" else {str(tmp_path / "w")!r})
    compiled.run({{"x": np.ones((2, 3), "f4")}})
except rlx.Error as error:
    print(error)
"""
    done = call(program)
    assert done.returncode == 0, done.stderr[-2000:]
    assert hint in done.stdout


def test_a_reader_that_goes(tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(HELLO, encoding="utf-8")
    argv = [sys.executable, "-m", "rlx.cli.main", "run", str(path), "--evaluate", f"--input={X}", f"--param={W}"]
    environment = os.environ | {"PYTHONPATH": ROOT}
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, env=environment, timeout=300)
    os.close(write)
    assert done.returncode == 141 and done.stderr == b""
