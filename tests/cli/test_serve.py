"""rlx serve, on a small random model."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import rlx
from rlx.cli.main import main
from rlx.serve.settings import ServerSettings
from tests.llm.tiny_model import write_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("serve") / "tiny.gguf"))


@pytest.fixture
def servers() -> Iterator[list[Any]]:
    """Processes of a test, which are ended if it fails."""
    started: list[Any] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def _started(servers: list[Any], path: str, *words: str, **variables: str) -> tuple[Any, str]:
    """Start the command on a free port. Return its process and URL."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-m", "rlx.cli.main", "serve", path, "--port", "0", "-t", "1", *words]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    servers.append(process)
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("serving "):
            return process, line.split(" at ")[1].strip()
    pytest.fail("".join(lines))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve(servers: list[Any], path: str, number: int) -> None:
    process, url = _started(servers, path, "--alias", "small", "-c", "64")
    assert url.startswith("http://127.0.0.1:")
    body = {"model": "small", "prompt": "the man", "max_tokens": 4, "temperature": 0}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
    with rlx.llm.load(path, context=64) as model:
        assert answer["choices"][0]["text"] == model.generate("the man", max_tokens=4).text
    assert httpx.post(f"{url}/v1/completions", json={**body, "prompt": [9] * 65}).status_code == 400
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out == ""
    first, second = err.splitlines()
    assert " 127.0.0.1 POST /v1/completions 200 " in first and " POST /v1/completions 400 " in second


def test_keys_of_the_environment(servers: list[Any], path: str) -> None:
    process, url = _started(servers, path, "--quiet", RLX_API_KEY="secret")
    assert httpx.get(f"{url}/v1/models").status_code == 401
    assert httpx.get(f"{url}/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
    process.terminate()
    assert process.communicate(timeout=60) == ("", "")


def test_mistakes(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for words, message in (
            (["--port", "70000"], "--port must be from 0 to 65535"),
            (["--port", port], f"cannot listen on 127.0.0.1, port {port}: Address already in use"),
            (["--host", "no such host", "--port", "0"], "cannot listen on no such host"),
            (["--parallel", "0"], "parallel must be an integer from 1 to 256"),
            (["--timeout", "nan"], "timeout must be a number of seconds"),
            (["--port", "0", "-c", "1000"], "context must be an integer from 1 to 128"),
        ):
            assert main(["serve", path, *words]) == 1
            output = capsys.readouterr()
            assert message in output.err and not output.out
    assert main(["serve", str(Path(path).parent / "nothing.gguf"), "--port", "0"]) == 1


@pytest.mark.parametrize(("words", "warns"), [([], True), (["--api-key", "key"], False)])
def test_open_addresses(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], warns: bool
) -> None:
    """A server that other machines can reach, without a key, is reported."""
    monkeypatch.setattr("rlx.serve.server.run_server", lambda *_, **__: None)
    monkeypatch.setattr(rlx.llm.LLM, "generate", lambda *_, **__: None)  # it would compile
    assert main(["serve", path, "--host", "0.0.0.0", "--port", "0", *words]) == 0
    assert ("0.0.0.0 is open to other machines, without a key" in capsys.readouterr().err) is warns


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ([], {}),
        (
            ["--alias", "a", "--parallel", "2", "--queue", "3", "--timeout", "5", "--body-limit", "100"],
            {"alias": "a", "parallel": 2, "queue": 3, "timeout": 5.0, "body_limit": 100},
        ),
        (
            ["--api-key", "k", "--api-key", "l", "--allow-host", "b", "--cors", "https://c.example"],
            {"api_keys": ["k", "l"], "hosts": ["b"], "cors": ["https://c.example"]},
        ),
    ],
)
def test_settings(path: str, monkeypatch: pytest.MonkeyPatch, words: list[str], settings: Any) -> None:
    """Options are those of `rlx.serve.application`, with the same defaults."""
    served: list[Any] = []
    monkeypatch.delenv("RLX_API_KEY", raising=False)
    monkeypatch.setattr("rlx.serve.server.run_server", lambda app, *_, **__: served.append(app))
    monkeypatch.setattr(rlx.llm.LLM, "generate", lambda *_, **__: None)  # it would compile
    assert main(["serve", path, "--port", "0", *words]) == 0
    assert served[0].state.service.settings == ServerSettings(**settings)


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_missing_packages(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["serve", path]) == 1
    error = capsys.readouterr().err
    assert f"rlx serve needs the package '{package}'" in error and "pip install 'rlx[serve]'" in error
