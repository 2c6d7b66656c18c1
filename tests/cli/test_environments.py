"""Commands in unusual environments: closed or full streams, no home, no temporary folder, few descriptors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.drawing import drawn

TEXT = """\
func.func @f(%x: tensor<4xf32> {rlx.name = "x"}) -> tensor<4xf32> {
  %0 = rlx.activation(%x) {kind = "tanh"} : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
RUN = "rlx.cli.main run - --input=x=4xf32=0"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no sh")


def shell(line: str, environment: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a shell line that reads `TEXT`, with the module of a command for `{…}`. None unsets a variable."""
    line = re.sub(r"\{(.*?)\}", rf"'{sys.executable}' -m \1", line)
    variables = {name: value for name, value in {**os.environ, **(environment or {})}.items() if value is not None}
    return subprocess.run(
        ["/bin/sh", "-c", line], input=TEXT, capture_output=True, text=True, check=False, timeout=300, env=variables
    )


@pytest.mark.parametrize(
    ("output", "said"),
    [
        pytest.param(
            ">/dev/full",
            "cannot write to standard output: No space left on device",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="no such device"),
        ),
        (">&-", "standard output is closed"),
    ],
)
@drawn(
    "call",
    [
        "rlx.cli.opt",
        "rlx.cli.opt --help",
        "rlx.cli.main compile - --emit=lir -o -",
        "rlx.cli.main inspect -",
        "rlx.cli.main devices",
        "rlx.cli.main completion bash",
        RUN,
    ],
    of_each=2,
)
def test_a_result_that_cannot_be_written_is_an_error_of_the_user(call: str, output: str, said: str) -> None:
    done = shell(f"{{{call}}} {output}")
    assert done.returncode == 1
    assert re.fullmatch(rf"rlx(-opt)?: error: {said}(\n.*(hint|note): .*)?\n", done.stderr), done.stderr


PRODUCT = """\
func.func @f(%x: tensor<2x4xf32> {rlx.name = "x"}) -> tensor<2x3xf32> {
  %w = rlx.constant() {value = dense<0.5> : tensor<4x3xf32>} : tensor<4x3xf32>
  %0 = rlx.matmul(%x, %w) : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""


@pytest.mark.parametrize(
    "call",
    [
        "inspect model.mlir --html=out",
        "inspect model.mlir --memory --memory-svg=out",
        "inspect model.mlir model.mlir --html=out",
        "profile model.mlir --trace=out --repeat=1",
        "quantize model.mlir --data=data.npz --sensitivity -o out",
    ],
)
def test_files_are_written_though_the_reader_of_the_text_ends(call: str, tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(PRODUCT)
    np.savez(tmp_path / "data.npz", x=np.ones((1, 2, 4), np.float32))
    done = shell(f"cd '{tmp_path}' && {{rlx.cli.main}} {call} | true")
    assert "error" not in done.stderr, done.stderr
    assert (tmp_path / "out").stat().st_size > 100, done.stderr


@pytest.mark.parametrize("call", ["rlx.cli.opt", "rlx.cli.main inspect -", "rlx.cli.main run -"])
def test_standard_input_may_be_closed(call: str) -> None:
    done = shell(f"{{{call}}} <&-")
    assert done.returncode == 1 and not done.stdout
    assert re.fullmatch(r"rlx(-opt)?: error: standard input is closed\n.*(hint|note): .*\n", done.stderr), done.stderr


@drawn("streams", ["2>&-", "<&- 2>&-", "2>/dev/full"])
def test_nobody_reads_messages(streams: str, tmp_path: Path) -> None:
    """Messages to standard error do not go to another file, although opened files get its descriptor."""
    path, output = tmp_path / "f.mlir", tmp_path / "f.rlx"
    path.write_text(TEXT)
    compiling = shell(f"{{rlx.cli.main compile {path} -o {output}}} {streams}")
    assert compiling.returncode == 0 and output.exists() and "error" not in compiling.stdout
    failing = shell(f"{{rlx.cli.main run {path}}} {streams}")
    assert failing.returncode == 1 and failing.stdout == ""
    running = shell(f"{{rlx.cli.main run {output} --input=x=4xf32=0}} {streams}")
    assert running.returncode == 0 and running.stdout.startswith("output0: f32[4]")


ENVIRONMENTS: dict[str, Mapping[str, str | None]] = {
    "without a home": {"HOME": None, "XDG_CACHE_HOME": None, "RLX_CACHE_DIR": None},
    "home is no folder": {"HOME": "/etc/passwd", "XDG_CACHE_HOME": None, "RLX_CACHE_DIR": None},
    "home is relative": {"HOME": "a/b", "XDG_CACHE_HOME": None, "RLX_CACHE_DIR": None},
    "cache is a device": {"RLX_CACHE_DIR": "/dev/null"},
    "no temporary folder": {"TMPDIR": "/nonexistent"},
    "unknown locale": {"LC_ALL": "xx_YY.UTF-8", "LANG": "xx"},
    "locale of ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "no docstrings": {"PYTHONOPTIMIZE": "2"},
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no programs": {"PATH": ""},
    "a narrow terminal": {"COLUMNS": "0", "TERM": "dumb"},
    "columns are no number": {"COLUMNS": "abc"},
    "unknown time zone": {"TZ": "Nowhere/X"},
}
LIMITS = {"few descriptors": "ulimit -n 64", "no permissions": "umask 0777", "SIGPIPE is ignored": "trap '' PIPE"}


@drawn("name", [*ENVIRONMENTS, *LIMITS], of_each=3)
def test_odd_environments(name: str, tmp_path: Path) -> None:
    done = shell(f"cd {tmp_path}; {LIMITS.get(name, ':')}; {{{RUN}}}", ENVIRONMENTS.get(name))
    assert done.returncode == 0 and done.stdout == "output0: f32[4]\n[0. 0. 0. 0.]\n", done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 1, done.stderr
