"""The models of these tests, loaded once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rlx
from tests.llm.tiny_model import write_model


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("llm") / "tiny.gguf")


@pytest.fixture(scope="session")
def model(model_path: Path) -> Iterator[rlx.llm.LLM]:
    with rlx.llm.load(model_path, cache="f32", threads=1) as loaded:
        yield loaded
