"""`rlx embed`, on a small random BERT."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from rlx.models.embedder import SentenceEmbedder
from tests.cli.calling import Command
from tests.models.tiny_bert import write_model

TEXTS = ["the cat sleeps", "a man eats red food", "Dog!"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), layers=1)


@pytest.fixture(scope="module")
def expected(model: Path) -> np.ndarray:
    return SentenceEmbedder(model).embed(TEXTS)


def give_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def vectors(out: str) -> np.ndarray:
    data = json.loads(out)
    assert list(data) == ["embeddings"]
    return np.array(data["embeddings"], np.float32)


def test_json_holds_unit_vectors_in_order(command: Command, model: Path, expected: np.ndarray) -> None:
    got = vectors(command.output("embed", *TEXTS, "--model", model, "--json"))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)


def test_options_may_stand_between_the_texts(command: Command, model: Path, expected: np.ndarray) -> None:
    first, *rest = TEXTS
    np.testing.assert_array_equal(vectors(command.output("embed", first, "--json", "--model", model, *rest)), expected)


def test_the_size_of_a_batch_changes_nothing(command: Command, model: Path, expected: np.ndarray) -> None:
    got = vectors(command.output("embed", *TEXTS, "--model", model, "--json", "--batch=1", "--threads=1"))
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("words", [[], ["-"]])
def test_lines_of_standard_input(
    command: Command, model: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    give_input(monkeypatch, "\r\n".join(TEXTS).encode())
    np.testing.assert_array_equal(vectors(command.output("embed", *words, "--model", model, "--json")), expected)


def test_no_lines_give_no_vectors(command: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_input(monkeypatch, b"")
    assert json.loads(command.output("embed", "--model", model, "--json")) == {"embeddings": []}
    give_input(monkeypatch, b"")
    assert command.output("embed", "--model", model) == ""


def test_one_readable_line_for_each_text(command: Command, model: Path, expected: np.ndarray) -> None:
    long = "cat" * 100  # one unknown word
    lines = command.output("embed", *TEXTS[:2], long, "--model", model).splitlines()
    start = " ".join(f"{x:+.4f}" for x in expected[0][:6])
    assert lines[0] == f"[{start} … 26 more]  {TEXTS[0]}"
    assert lines[2].endswith("…")
    assert len(lines) == 3


def test_standard_input_that_is_no_text(command: Command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_input(monkeypatch, b"caf\xe9\n")
    assert "standard input is not utf-8 text" in command.error("embed", "--model", model)


def test_mistakes(command: Command, model: Path, tmp_path: Path) -> None:
    assert "no such directory" in command.error("embed", "x", "--model", tmp_path / "none")
    assert "no such file" in command.error("embed", "x", "--model", tmp_path)
    assert "batch must be a positive integer" in command.error("embed", "x", "--model", model, "--batch=0")
    assert "not valid Unicode" in command.error("embed", "\udcff", "--model", model)
