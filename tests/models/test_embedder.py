"""`SentenceEmbedder` on a small random BERT."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rlx import Error
from rlx.models.embedder import SentenceEmbedder
from tests.drawing import drawn
from tests.models.numpy_bert import sentence_vector
from tests.models.tiny_bert import CONFIG

LONGEST = CONFIG["max_position_embeddings"]
CLS, SEP = 2, 3


def check(embedder: SentenceEmbedder, vectors: np.ndarray, ids: list[list[int]]) -> None:
    """Compare vectors with the reference."""
    expected = [sentence_vector(embedder.config, embedder.weights, sentence) for sentence in ids]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=2e-6)
    assert vectors.dtype == np.float32


@drawn("length", [1, 5, 8, LONGEST])
def test_one_sentence(tiny: SentenceEmbedder, length: int) -> None:
    ids = [[CLS, *(4 + i % 20 for i in range(length - 1))]]
    check(tiny, tiny.embed_ids(ids), ids)


def test_a_ragged_batch(tiny: SentenceEmbedder) -> None:
    rng = np.random.default_rng(0)
    ids = [rng.integers(2, 24, n).tolist() for n in (1, 16, 7, 3, 12, 2)]
    check(tiny, tiny.embed_ids(ids), ids)


def test_vectors_are_in_the_order_of_the_texts(tiny: SentenceEmbedder) -> None:
    texts = ["the cat sleeps on the big red dog and the dog sleeps", "a man", "the dog eats food", "water"]
    # Two at a time, sorted by length: the first text runs in the last batch.
    vectors = tiny.embed(texts, batch=2)
    check(tiny, vectors, [tiny.tokenizer.encode(text).ids for text in texts])


def test_any_iterable_of_texts_will_do(tiny: SentenceEmbedder) -> None:
    texts = ["a man", "a cat"]
    np.testing.assert_array_equal(tiny.embed(text for text in texts), tiny.embed(tuple(texts)))


def test_no_texts_give_no_vectors(tiny: SentenceEmbedder) -> None:
    assert tiny.embed([]).shape == (0, CONFIG["hidden_size"])


def test_the_empty_text_has_a_vector(tiny: SentenceEmbedder) -> None:
    check(tiny, tiny.embed([""]), [[CLS, SEP]])


@pytest.mark.parametrize("text", ["Ünïcödé 🤖 文字", "cat\x00dog", "﻿‏ cat", "e\N{COMBINING ACUTE ACCENT}"])
def test_unicode(tiny: SentenceEmbedder, text: str) -> None:
    (ids,) = tiny.tokenize([text])
    assert (ids[0], ids[-1]) == (CLS, SEP)
    check(tiny, tiny.embed([text]), [ids])


def test_long_texts_are_truncated(tiny: SentenceEmbedder) -> None:
    (ids,) = tiny.tokenize(["cat " * 1000])
    assert ids == [CLS, *[8] * (LONGEST - 2), SEP]
    check(tiny, tiny.embed(["cat " * 1000]), [ids])


def test_max_length_truncates_earlier(one_layer: Path) -> None:
    embedder = SentenceEmbedder(one_layer, max_length=8)
    assert len(embedder.tokenize(["cat " * 9])[0]) == 8
    check(embedder, embedder.embed(["cat " * 9]), [[CLS, *[8] * 6, SEP]])


def test_the_models_own_max_length_is_read(one_layer: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(one_layer, tmp_path / "model")
    (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    assert len(SentenceEmbedder(directory).tokenize(["cat " * 9])[0]) == 4
    assert len(SentenceEmbedder(directory, max_length=7).tokenize(["cat " * 9])[0]) == 7


def test_half_precision_weights_are_widened(one_layer: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(one_layer, tmp_path / "model")
    weights = load_file(directory / "model.safetensors")
    save_file({name: array.astype(np.float16) for name, array in weights.items()}, directory / "model.safetensors")
    embedder = SentenceEmbedder(directory)
    ids = [[CLS, 8, 10, SEP]]
    check(embedder, embedder.embed_ids(ids), ids)


def test_progress_opens_and_closes_each_step(one_layer: Path) -> None:
    events = []

    @contextlib.contextmanager
    def progress(what: str) -> Iterator[None]:
        events.append(f"begin {what}")
        yield
        events.append(f"end {what}")

    SentenceEmbedder(one_layer, progress=progress).embed(["cat"])
    steps = ["read the weights", "compile for 1 x 8 tokens", "load for 1 x 8 tokens"]
    assert events == [f"{edge} {step}" for step in steps for edge in ("begin", "end")]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a string", "expected a list of strings, got str"),
        (b"bytes", "expected a list of strings, got bytes"),
        (None, "expected a list of strings, got NoneType"),
        (["cat", 7], "item 1 is of type int"),
        ([["cat"]], "item 0 is of type list"),
        (["cat", "dog \ud800"], "text 1 is not valid Unicode"),
    ],
)
def test_what_is_no_list_of_strings_is_refused(tiny: SentenceEmbedder, texts: object, message: str) -> None:
    with pytest.raises(Error, match=message):
        tiny.embed(texts)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [0, -1, 2.5, True])
def test_a_batch_is_a_positive_integer(tiny: SentenceEmbedder, batch: object) -> None:
    with pytest.raises(Error, match="batch must be a positive integer"):
        tiny.embed(["cat"], batch=batch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1] * (LONGEST + 1)], f"{LONGEST + 1} tokens are more than {LONGEST}"),
        ([[1]] * 33, "33 sentences are more than 32"),
        ([[1], []], "sentence 1 has no tokens"),
        ([[CLS, 40]], r"sentence 0 has a token id outside 0 … 39"),
        ([[CLS, -1]], r"sentence 0 has a token id outside 0 … 39"),
    ],
)
def test_ids_that_the_model_does_not_take_are_refused(
    tiny: SentenceEmbedder, ids: list[list[int]], message: str
) -> None:
    with pytest.raises(Error, match=message):
        tiny.embed_ids(ids)
