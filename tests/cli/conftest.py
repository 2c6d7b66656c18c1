"""Shared fixtures of the tests of the command `rlx`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.calling import HELLO, Command


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def own_cache(cache_directory: Path) -> Iterator[None]:
    """Use a separate cache, so that programs compiled here do not go to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(cache_directory))
        yield


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """Return a file with a graph of one matmul."""
    path = tmp_path / "hello.mlir"
    path.write_text(HELLO)
    return path


@pytest.fixture(scope="session")
def hello_artifact(cache_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same graph, compiled for the CPU."""
    import rlx

    path = tmp_path_factory.mktemp("compiled") / "hello.rlxa"
    rlx.Session("cpu").compile(rlx.parse(HELLO), cache=cache_directory).save(path)
    return path
