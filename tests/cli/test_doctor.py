"""`rlx doctor`, and the progress output of commands."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from rlx.cli import doctor
from rlx.cli.display import Steps
from tests.cli.calling import Command


def test_a_sound_installation(command: Command) -> None:
    call = command("doctor")
    lines = call.out.splitlines()
    assert all(line.startswith("ok ") for line in lines), call.out
    assert call.code == 0
    for what, line in zip(("compile and run", "xla"), lines[-2:], strict=True):
        assert line.startswith(f"ok  {what} ")
        assert "off the evaluator" in line


def test_an_assumed_cpu_level_is_shown(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CHECKS", {"cpu": doctor._CHECKS["cpu"]})
    assert "RLX_CPU_LEVEL" not in command("doctor").out
    monkeypatch.setenv("RLX_CPU_LEVEL", "aarch64")
    assert "RLX_CPU_LEVEL=aarch64" in command("doctor").out
    monkeypatch.setenv("RLX_CPU_LEVEL", "x86-64-v9")
    call = command("doctor")
    assert call.code == 1 and "RLX_CPU_LEVEL is one of x86-64" in call.out


def test_what_is_broken_is_named(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr("rlx.native.native", lambda: 1 / 0)
    checks = {name: doctor._CHECKS[name] for name in ("python", "native module", "cache")}
    monkeypatch.setattr(doctor, "_CHECKS", checks)
    call = command("doctor", "--json")
    assert call.code == 1
    findings = {f["what"]: f for f in json.loads(call.out)}
    assert {name: f["ok"] for name, f in findings.items()} == {
        "python": True,
        "native module": False,
        "cache": False,
    }
    assert "ZeroDivisionError" in findings["native module"]["found"]
    assert "set RLX_CACHE_DIR" in findings["cache"]["found"]
    assert "BROKEN  native module" in command("doctor").out


@pytest.mark.skipif(os.name == "nt", reason="has no such permissions")
def test_why_there_is_no_cache(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "shared"))
    monkeypatch.setattr(doctor, "_CHECKS", {"cache": doctor._CHECKS["cache"]})
    (finding,) = json.loads(command("doctor", "--json").out)
    assert not finding["ok"] and f"{tmp_path / 'shared'} is writable by others" in finding["found"]


def test_a_program_that_computes_something_else_is_found_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.runtime.program import Program

    right = Program.run
    monkeypatch.setattr(Program, "run", lambda self, inputs: [y * 2 for y in right(self, inputs)])
    monkeypatch.setattr(doctor, "_CHECKS", {"compile and run": doctor._CHECKS["compile and run"]})
    call = command("doctor")
    assert call.code == 1
    assert "off the evaluator's" in call.out


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_steps_are_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    steps = Steps(stream)
    with steps("compile"):
        pass
    assert stream.getvalue() == "compile: 0.00 s\n"
    assert steps.seconds["compile"] >= 0


def test_steps_spin_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    with Steps(stream)("compile"):
        while "compile (" not in stream.getvalue():
            pass
    frames = stream.getvalue().split("\r\x1b[K")
    assert frames[1].startswith("| compile (0.")
    assert frames[-1].startswith("compile: ")
    assert frames[-1].endswith(" s\n")


def test_steps_that_fail_leave_a_clean_line() -> None:
    stream = Terminal()
    with pytest.raises(ValueError, match="bad"), Steps(stream)("compile"):
        raise ValueError("bad")
    assert stream.getvalue().endswith("\r\x1b[K")


def test_steps_only_for_terminals() -> None:
    stream = io.StringIO()
    with Steps(stream, only_terminal=True)("compile"):
        pass
    assert stream.getvalue() == ""
