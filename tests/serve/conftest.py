"""The models of these tests, and one server that most of them share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

import rlx
from tests.llm.tiny_model import write_model
from tests.serve.serving import RunningServer


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rlx.llm.LLM]:
    path = write_model(tmp_path_factory.mktemp("serve") / "tiny.gguf")
    with rlx.llm.load(path, cache="f32", threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def server(model: rlx.llm.LLM) -> Iterator[RunningServer]:
    with RunningServer(model, alias="small", body_limit=100_000, body_timeout=1.0) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with server.client() as made:
        yield made


@pytest.fixture
def tool_model(model: rlx.llm.LLM, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rlx.llm.LLM]:
    """A model with the chat template of the parameter, which is loaded and not compiled."""
    changes = {"tokenizer.chat_template": request.param, "llama.context_length": 1024}
    with rlx.llm.load(write_model(tmp_path / "tools.gguf", **changes)) as loaded:
        yield loaded
