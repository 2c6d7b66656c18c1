"""`rlx tune`: its output, files and errors. `tests/runtime/test_tuning.py` tests the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlx.runtime import tuning
from rlx.targets.artifacts.artifact import Artifact
from tests.cli.calling import HELLO, Command, W, X


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    monkeypatch.setenv("RLX_CACHE_DIR", str(cache))
    path = tmp_path / "hello.mlir"
    path.write_text(HELLO)
    return path


def test_a_program_is_tuned_written_and_run(command: Command, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "choices_of", lambda request: _choices(request)[:1])
    output = file.with_suffix(".rlx")
    said = command("tune", file, "--seconds=0.001", "-o", output, f"--input={X}")
    assert said.code == 0 and "@hello: as given: 0.001 s were too few" in said.out
    assert "as given: kept" in said.err
    assert Artifact.load(output).signature.name == "hello"
    assert "4" in command.output("run", output, f"--input={X}", f"--param={W}")


_choices = tuning.choices_of


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds=0",), "--seconds must be a positive number of seconds"),
        (("--seconds=soon",), "--seconds must be a positive number of seconds, got 'soon'"),
        (("--input=y=1x4xf32=0",), "there is no input or state 'y'"),
        (("--device=cuda", "--no-cache"), "cuda"),
        (("--params=/nonexistent",), "no such file"),
    ],
)
def test_a_wrong_use_says_what_is_wrong(command: Command, file: Path, words: tuple[str, ...], said: str) -> None:
    output = file.with_suffix(".rlx")
    assert said in command.error("tune", file, "-o", output, *words)
    assert not output.exists()


def test_an_interrupt_says_how_to_go_on(command: Command, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlx.runtime.tuning.tune_program", interrupted)
    for words, said in (([], "with --seconds=1 this command takes it"), (["--no-cache"], "")):
        call = command("tune", file, "--seconds=5", *words)
        assert (call.code, call.out) == (130, "") and said in call.err and "Traceback" not in call.err
