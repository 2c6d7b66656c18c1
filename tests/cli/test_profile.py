"""`rlx profile`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlx.report.roofline import MachineLimits
from rlx.runtime import profiling
from tests.cli.calling import Command


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the measurement of this machine, which takes a second."""
    monkeypatch.setattr(profiling, "this_machine", lambda threads: MachineLimits(1e9, 1e9))


def test_the_command(command: Command, hello: Path, tmp_path: Path) -> None:
    out = command.output("profile", hello, "--repeat=2", "--threads=1", f"--trace={tmp_path / 'trace.json'}")
    assert "profile of @hello for cpu" in out and "matmul" in out and f"{hello.name}:" in out
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert "no input or parameter 'q'" in command.error("profile", hello, "--input", "q=2xf32=1")
    assert "is compiled already" not in command.error("profile", hello, "--input", "x=2xf32=1")
