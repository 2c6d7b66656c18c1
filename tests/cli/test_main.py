"""The command `rlx` itself: help, versions, errors and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rlx
from rlx.cli.main import COMMANDS
from tests.cli.calling import Command, start


def test_the_package_is_a_program(tmp_path: Path) -> None:
    """`python -m rlx` is the command, with its exit codes and without tracebacks."""
    path = os.pathsep.join([str(Path(rlx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    for argv, code, text in (
        (["--version"], 0, f"rlx {rlx.__version__}"),
        (["run", "absent.rlxa"], 1, "rlx: error: "),
        (["fly"], 2, "invalid choice: 'fly'"),
    ):
        process = subprocess.run(
            [sys.executable, "-m", "rlx", *argv], capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert process.returncode == code and text in process.stdout + process.stderr
        assert "Traceback" not in process.stderr


def test_version(command: Command) -> None:
    assert command.output("--version") == f"rlx {rlx.__version__}\n"


@pytest.mark.parametrize("argv", [["--help"], ["-h"], []])
def test_help_lists_the_commands(command: Command, argv: list[str]) -> None:
    out = command.output(*argv)
    for name, summary in COMMANDS.items():
        assert f"  {name}" in out
        assert summary in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Command, name: str) -> None:
    out = command.output(name, "--help")
    assert out.startswith(f"usage: rlx {name} ")
    assert "None" not in out


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["run", "--help"], ["embed", "--help"]])
def test_help_and_version_import_nothing_heavy(argv: list[str]) -> None:
    script = (
        "import sys, json\n"
        "from rlx.cli.main import main\n"
        "try: main(json.loads(sys.argv[1]))\n"
        "except SystemExit: pass\n"
        "print(json.dumps([m for m in sys.modules if '.' not in m]), file=sys.stderr)"
    )
    path = os.pathsep.join([str(Path(rlx.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.run(
        [sys.executable, "-c", script, json.dumps(argv)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    heavy = {"torch_mlir", "mlir", "iree", "ml_dtypes", "tokenizers", "safetensors", "jax"}
    heavy |= {"numpy"} if argv[0].startswith("--") else set()
    assert not heavy.intersection(json.loads(process.stderr))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["--fly"], "unrecognized arguments: --fly"),
        (["run"], "the following arguments are required: FILE"),
        (["run", "x.mlir", "--fly"], "unrecognized arguments: --fly"),
        (["run", "x.mlir", "--inputs=x=2xf32=1"], "--inputs=x=2xf32=1 (did you mean --input for --inputs?)"),
        (["run", "x.mlir", "--output_dir", "y", "--parms=w"], "--output-dir for --output_dir, --params for --parms?)"),
        (["--verison"], "(did you mean --version for --verison?)"),
        (["embed", "text"], "the following arguments are required: --model"),
        (["inspect", "x.mlir", "--stage=air"], "invalid choice: 'air'"),
    ],
)
def test_wrong_usage_exits_with_2(command: Command, argv: list[str], message: str) -> None:
    call = command(*argv)
    assert (call.code, call.out) == (2, "")
    assert message in call.err


def test_an_error_is_a_message_and_no_traceback(command: Command, tmp_path: Path) -> None:
    assert command.error("run", tmp_path / "none.mlir") == f"no such file: {tmp_path / 'none.mlir'}"


def test_an_error_of_the_system_is_a_message_as_well(command: Command, hello: Path) -> None:
    message = command.error(
        "run", hello, "--evaluate", "--input=x=1x4xf32=1", "--param=w=4x2xf32=1", "--save=/dev/null/y"
    )
    assert "/dev/null" in message


def test_a_traceback_can_be_had(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLX_TRACEBACK", "1")
    with pytest.raises(rlx.Error, match="no such file"):
        command("run", tmp_path / "none.mlir")
    monkeypatch.setenv("RLX_TRACEBACK", "0")
    assert command.error("run", tmp_path / "none.mlir")


def test_devices(command: Command) -> None:
    lines = command.output("devices").splitlines()
    assert any(line.startswith("local-sync") and " yes " in line for line in lines)
    found = {d["driver"]: d for d in json.loads(command.output("devices", "--json"))}
    assert found["local-task"]["available"]
    assert found["xla"]["available"]
    for device in found.values():
        assert device["available"] or device["reason"]


def test_a_reader_that_goes_away_is_no_error(hello: Path) -> None:
    process = start("inspect", hello)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much of a pipe has been read")
def test_ctrl_c_ends_quietly() -> None:
    # After reading this much, it has completed its imports and waits for standard input.
    process = start("run", "-")
    assert process.stdin is not None
    wait_until_it_reads(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


def wait_until_it_reads(process: subprocess.Popen[bytes]) -> None:
    """Return once the process has read the byte that is written to its standard input."""
    import fcntl
    import termios

    assert process.stdin is not None
    process.stdin.write(b"m")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        waiting = fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, b"\0" * 4)
        if int.from_bytes(waiting, sys.byteorder) == 0:
            return
        time.sleep(0.01)
    raise AssertionError("the command did not read its input")
