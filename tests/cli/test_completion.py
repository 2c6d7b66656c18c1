"""`rlx completion`: the scripts work in the shells."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlx.cli.completion import SHELLS, script
from rlx.cli.main import COMMANDS, main
from rlx.passes import base, native

# Words of a command line, and some expected completions of the last one.
CASES = [
    (("rlx", "com"), {"compile", "completion"}),
    (("rlx", ""), set(COMMANDS)),
    (("rlx", "inspect", "--memory-"), {"--memory-svg"}),
    (("rlx", "completion", ""), set(SHELLS)),
    (("rlx-opt", "--rlx-"), {f"--{name}" for name in base.load() if name.startswith("rlx-")}),
    (("rlx-opt", "--canon"), {"--canonicalize"}),
    (("rlx-opt", "--list-"), {"--list-passes"}),
    (("rlx-opt", "mod"), {"model.mlir"}),
]
_BASH = """
source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
$(complete -p "$1" | sed 's/.*-F \\([^ ]*\\).*/\\1/'); printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return a folder with a model, and with the script for a program and a shell."""
    made: dict[tuple[str, str], Path] = {}

    def folder(program: str, shell: str) -> Path:
        if (program, shell) not in made:
            path = made[program, shell] = tmp_path_factory.mktemp(shell)
            (path / "model.mlir").touch()
            (path / "script").write_text(script(program, shell))
        return made[program, shell]

    return folder


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_words_are_completed(
    words: tuple[str, ...], expected: set[str], shell: str, written: Callable[[str, str], Path]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    fish = ["fish", "-c", f"source script; complete -C '{' '.join(words)}'"]
    command = fish if shell == "fish" else ["bash", "-c", _BASH, "bash", *words]
    done = subprocess.run(command, cwd=written(words[0], shell), capture_output=True, text=True)
    shown = {line.partition("\t")[0] for line in done.stdout.splitlines()}
    assert expected <= shown and all(word.startswith(words[-1]) for word in shown), done.stderr


@pytest.mark.parametrize("program", ["rlx", "rlx-opt"])
def test_zsh_reads_the_script(program: str, written: Callable[[str, str], Path]) -> None:
    folder = written(program, "zsh")
    flags = (folder / "script").read_text()
    assert program == "rlx" or all(f"--{name}[" in flags for name in (*base.load(), *native.names()))
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    subprocess.run(["zsh", "-n", "script"], cwd=folder, check=True)


def test_bash_gets_both_programs_in_one_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    out = capsys.readouterr().out
    assert {line.split()[-1] for line in out.splitlines() if line.startswith("complete ")} == {"rlx", "rlx-opt"}
    assert main(["completion", "fish", "--for=rlx"]) == 0 and "--canonicalize" not in capsys.readouterr().out


def test_without_its_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 1
    assert "pip install 'rlx[completion]'" in capsys.readouterr().err
