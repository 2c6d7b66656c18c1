"""The application inside other programs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import rlx
from rlx.serve.guard import AccessGuard
from tests.serve.serving import RunningServer, ScriptedModel

BODY: dict[str, Any] = {"model": "tiny", "prompt": "a"}


class _Mounted(RunningServer):
    """A server whose application is mounted in another one."""

    def __init__(self, model: rlx.llm.LLM, **settings: Any):
        super().__init__(model, **settings)
        outer = Starlette(routes=[Mount("/models", self.app)])
        self.server.config.app = outer


def test_mounted(model: rlx.llm.LLM) -> None:
    with _Mounted(ScriptedModel(model, "text"), api_keys=["key"]) as running:
        assert running.get("/models/health").status_code == 200
        assert "RLX chat" in running.get("/models/").text
        assert running.get("/models/v1/models").status_code == 401
        headers = {"Authorization": "Bearer key"}
        answer = httpx.post(f"{running.url}/models/v1/completions", json=BODY, headers=headers)
        assert answer.json()["choices"][0]["text"] == "text"
        text = running.get("/models/metrics", headers=headers).text
        assert 'rlx_requests_total{route="/v1/completions",status="200"} 1' in text


def test_an_application_runs_again(model: rlx.llm.LLM) -> None:
    """After the end of a server, another one can run the application."""
    first = RunningServer(ScriptedModel(model, "text"))
    second = RunningServer(ScriptedModel(model, "other"))
    second.server.config.app = first.app
    for running in (first, second):
        with running:
            assert running.post("completions", BODY).json()["choices"][0]["text"] == "text"


async def _nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_scopes_pass(kind: str) -> None:
    import asyncio

    asyncio.run(AccessGuard(_nothing, ["key"], [])({"type": kind}, _nothing, _nothing))  # type: ignore[arg-type]
