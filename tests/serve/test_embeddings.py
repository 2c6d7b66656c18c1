"""`/v1/embeddings` with OpenAI's client: the vectors are those of `LLM.embed`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

import rlx
from tests.llm.tiny_model import write_model
from tests.serve.serving import RunningServer

TEXTS = ["the man", "in the inn"]


def test_texts(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    expected = model.embed(TEXTS)
    packed = client.embeddings.create(model="small", input=TEXTS)  # the client asks for base64
    plain = client.embeddings.create(model="small", input=TEXTS, encoding_format="float", dimensions=expected.shape[1])
    for result in (packed, plain):
        assert [entry.index for entry in result.data] == [0, 1] and result.object == "list"
        np.testing.assert_array_equal(np.array([entry.embedding for entry in result.data], np.float32), expected)
        assert result.usage.prompt_tokens == sum(len(model.tokenizer.encode(text)) for text in TEXTS)
    one = client.embeddings.create(model="small", input=TEXTS[0])
    np.testing.assert_array_equal(np.array(one.data[0].embedding, np.float32), expected[0])


def test_token_ids(client: openai.OpenAI, model: rlx.llm.LLM) -> None:
    ids = [model.tokenizer.encode(text) for text in TEXTS]
    for given, count in ((ids, 2), (ids[0], 1)):
        result = client.embeddings.create(model="small", input=given)
        found = np.array([entry.embedding for entry in result.data], np.float32)
        np.testing.assert_array_equal(found, model.embed(TEXTS)[:count])


def test_mistakes(server: RunningServer, model: rlx.llm.LLM) -> None:
    wrong = [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", 3]}, "input[1]"),
        ({"input": [-1]}, "input"),
        ({"input": [1, True]}, "input[1]"),
        ({"input": {"a": 1}}, "input"),
        ({}, "input"),
        ({"input": "a", "dimensions": 3}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "pooling": "last"}, "pooling"),
    ]
    for body, param in wrong:
        answer = server.post("embeddings", {"model": "small", **body})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), body
    answer = server.post("embeddings", {"model": "small", "input": [9] * (model.context + 1)})
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_first_requests_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for one compilation."""
    compiled: list[object] = []
    original = rlx.Session.compile

    def counted(self: rlx.Session, graphs: Any, *arguments: Any, **options: Any) -> Any:
        compiled.append(graphs)
        return original(self, graphs, *arguments, **options)

    monkeypatch.setattr(rlx.Session, "compile", counted)
    with (
        rlx.llm.load(write_model(tmp_path / "tiny.gguf"), threads=1) as model,
        RunningServer(model) as running,
        ThreadPoolExecutor(4) as pool,
    ):
        bodies = [{"model": "tiny", "input": text} for text in ("a", "b", "c", "d")]
        answers = list(pool.map(lambda body: running.post("embeddings", body), bodies))
        assert [answer.status_code for answer in answers] == [200] * 4
        expected = model.embed(["a", "b", "c", "d"])
        for answer, vector in zip(answers, expected, strict=True):
            np.testing.assert_array_equal(np.array(answer.json()["data"][0]["embedding"], np.float32), vector)
    assert len(compiled) == 1
