"""The real all-MiniLM-L6-v2, compared with plain NumPy in f64."""

from __future__ import annotations

import numpy as np

from rlx.models.embedder import SentenceEmbedder
from tests.drawing import drawn
from tests.models.numpy_bert import sentence_vector

PROSE = """
A compiler reads a program in one language and writes it in another, and on the way it may notice that some of
the work need not be done at all. The cat, who knows nothing of this, sleeps on the warm keyboard; its owner
drinks a third cup of coffee, looks out of the window at the rain over Zürich, and waits for the tests to end.
"""


def sentence(embedder: SentenceEmbedder, length: int, start: int = 0) -> list[int]:
    """Return token ids of prose, with the special tokens at both ends of every sentence."""
    first, *body, last = embedder.tokenizer.encode(PROSE * 8).ids
    return [first, *body[start : start + length - 2], last]


def cosines(embedder: SentenceEmbedder, sentences: list[list[int]]) -> list[float]:
    """Return the inner product of each vector and its reference. A vector with a length other than 1 is visible too."""
    got = embedder.embed_ids(sentences)
    expected = [sentence_vector(embedder.config, embedder.weights, ids) for ids in sentences]
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
    return [float(a @ b) for a, b in zip(got, expected, strict=True)]


@drawn("length", [3, 17, 128, 256])
def test_one_sentence(minilm: SentenceEmbedder, length: int) -> None:
    assert cosines(minilm, [sentence(minilm, length)])[0] >= 0.99999


def test_a_batch_of_eight_ragged_sentences(minilm: SentenceEmbedder) -> None:
    lengths = [3, 60, 7, 41, 22, 5, 58, 33]
    sentences = [sentence(minilm, length, start=7 * i) for i, length in enumerate(lengths)]
    assert min(cosines(minilm, sentences)) >= 0.99999


def test_like_sentences_are_near_each_other(minilm: SentenceEmbedder) -> None:
    # Short, so that they run in the program of the shortest sentence.
    texts = ["a dog barks", "the hound is barking", "prices rose sharply"]
    vectors = np.concatenate([minilm.embed([text]) for text in texts])
    dog_and_hound, dog_and_prices = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert dog_and_hound > 0.7
    assert dog_and_prices < 0.2
