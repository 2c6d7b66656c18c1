"""Calls of the command `rlx`, in this process or in a separate one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import rlx
from rlx.cli.main import main

HELLO = """\
!x = tensor<1x4xf32>
!w = tensor<4x2xf32>
!y = tensor<1x2xf32>
module attributes {rlx.stage = "mir"} {
  func.func @hello(
      %x: !x {rlx.kind = "input", rlx.name = "x"},
      %w: !w {rlx.kind = "param", rlx.name = "w"}) -> (!y {rlx.name = "y"}) {
    %y = rlx.matmul(%x, %w) : (!x, !w) -> !y
    return %y : !y
  }
}
"""
X, W = "x=1x4xf32=1,2,3,4", "w=4x2xf32=1,0,0,1,1,0,0,1"  # their product is 4, 6


@dataclass
class Call:
    """The result of a call of the command."""

    code: int
    out: str
    err: str


class Command:
    """Calls `rlx` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self.capsys = capsys

    def __call__(self, *argv: str | Path) -> Call:
        self.capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as stop:  # raised by argparse
            code = stop.code if isinstance(stop.code, int) else 1
        captured = self.capsys.readouterr()
        return Call(code, captured.out, captured.err)

    def output(self, *argv: str | Path) -> str:
        """Return the standard output of a call that succeeds."""
        call = self(*argv)
        assert call.code == 0, call.err
        return call.out

    def error(self, *argv: str | Path) -> str:
        """Return the message of a call that fails, and check that nothing else is printed."""
        call = self(*argv)
        assert (call.code, call.out) == (1, "")
        assert call.err.startswith("rlx: error: ")
        return call.err.removeprefix("rlx: error: ").rstrip("\n")


def start(*argv: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start `rlx` in a separate process."""
    path = os.pathsep.join([str(Path(rlx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "rlx.cli.main", *map(str, argv)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )
