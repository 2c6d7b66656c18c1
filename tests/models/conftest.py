"""Models for tests: the real MiniLM, fetched once, and a small random BERT."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlx.models.embedder import SentenceEmbedder
from tests.models.tiny_bert import write_model


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def own_cache(cache_directory: Path) -> Iterator[None]:
    """Use a separate cache, so that programs compiled here do not go to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLX_CACHE_DIR", str(cache_directory))
        yield


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that compiles in half the time."""
    return write_model(tmp_path_factory.mktemp("models") / "one_layer", layers=1)


@pytest.fixture(scope="session")
def tiny(one_layer: Path) -> SentenceEmbedder:
    return SentenceEmbedder(one_layer)


@pytest.fixture(scope="session")
def minilm_directory() -> Path:
    """Return the files of all-MiniLM-L6-v2, from RLX_MINILM or fetched."""
    if given := os.environ.get("RLX_MINILM"):
        return Path(given)
    from tools.fetch_minilm import FetchError, fetch

    try:
        return fetch()
    except FetchError as problem:
        pytest.skip(f"NOT TESTED: the real all-MiniLM-L6-v2. {problem}")


@pytest.fixture(scope="session")
def minilm(minilm_directory: Path) -> SentenceEmbedder:
    return SentenceEmbedder(minilm_directory)
