"""Caches of packed keys and values: accuracy, memory, and texts that do not depend on their company."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.llm import engine
from tests.llm.tiny_model import LAYERS, write_model

_OPTIONS: dict[str, Any] = {"max_tokens": 10, "temperature": 1.0, "logprobs": 2, "ignore_eos": True}
_START = [7 + i % 40 for i in range(300)]
_PROMPTS = [_START + [i] * (1 + 40 * i) for i in range(3)] + [[9] * 250]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    long: Any = {"llama.context_length": 768}
    return write_model(tmp_path_factory.mktemp("packed") / "wide.gguf", scheme="q8_0", lanes=32, **long)


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[rlx.llm.LLM]:
    with rlx.llm.load(path, cache="q8_0", threads=1) as model:
        yield model


def _content(completion: Any) -> Any:
    return completion.text, completion.tokens, completion.logprobs


def test_logits_differ_from_those_of_a_cache_of_f32_by_less_than_a_bound(path: Path) -> None:
    """The error of a block is up to 1/254 of its largest number. Two layers and a product with the head enlarge it."""
    tokens, text = _START[:80], "the man in the inn and then the end of an inn " * 8
    results: dict[str, Any] = {}
    for kind in ("f32", "q8_0"):
        with rlx.llm.load(path, cache=kind, activations="f32", threads=1) as model:
            logits = model.logits(tokens)
            options = {"max_tokens": 4, "ignore_eos": True, "logit_bias": {0: 0.0}, "logprobs": 3}
            completion = model.generate(tokens, **options)
            own = model.logits([*tokens, *completion.tokens])[len(tokens) - 1 : -1].astype(np.float64)
            results[kind] = logits, np.log(model.perplexity(text, context=64))
            # A text in the cache has the logits of the text as a whole, whose keys and values are rounded to the same blocks.
            own -= np.log(np.exp(own).sum(-1, keepdims=True))
            for row, likely in zip(own, completion.logprobs, strict=True):
                for token, value in likely.items():
                    assert abs(row[token] - value) < 0.02, kind
    difference = results["q8_0"][0] - results["f32"][0]
    size = np.sqrt(np.mean(results["f32"][0] ** 2))
    assert 0 < np.sqrt(np.mean(difference**2)) < 0.02 * size and np.abs(difference).max() < 0.1 * size
    # Per token, of 5 to 15.
    assert 0 < abs(results["q8_0"][1] - results["f32"][1]) < 0.05


def test_texts_in_any_company_have_the_bits_that_they_have_alone(
    monkeypatch: pytest.MonkeyPatch, path: Path, alone: rlx.llm.LLM
) -> None:
    """Shared pages, copied parts of pages, and texts that are moved out of the cache and back."""
    expected = [_content(alone.generate(prompt, seed=i, **_OPTIONS)) for i, prompt in enumerate(_PROMPTS)]
    with rlx.llm.load(path, cache="q8_0", threads=1, parallel=3) as model:
        several = [model.generate(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(_PROMPTS)]
        assert [_content(c) for c in several] == expected
        assert several[1].cached_tokens == 300  # whole pages are shared, and the rest is copied
        assert _content(model.generate(_PROMPTS, seed=0, **_OPTIONS)[0]) == expected[0]
    monkeypatch.setattr(engine, "LARGEST_CACHE", 0)
    with rlx.llm.load(path, cache="q8_0", threads=1, parallel=3) as model:
        streams = [model.stream(prompt, seed=i, **_OPTIONS) for i, prompt in enumerate(_PROMPTS)]
        texts = [""] * len(streams)
        for _ in range(30):
            for i, stream in enumerate(streams):
                chunk = next(stream, None)
                texts[i] += "" if chunk is None else chunk.text
        assert texts == [text for text, *_ in expected]
        assert _content(model.generate(_PROMPTS, seed=0, **_OPTIONS)[0]) == expected[0]


def test_the_bytes_of_a_token_are_counted(monkeypatch: pytest.MonkeyPatch, path: Path, alone: rlx.llm.LLM) -> None:
    config = alone.config
    assert [config.cache_bytes(kind) for kind in ("f32", "f16", "q8_0")] == [LAYERS * 128 * n for n in (4, 2, 34 / 32)]
    states = [s for s in alone.engine._generation.states if s.name.startswith(("key_", "value_"))]
    rows = states[0].shape.static[0] * states[0].shape.static[1]
    assert sum(np.prod(s.shape.static) * s.shape.dtype.itemsize for s in states) == rows * config.cache_bytes("q8_0")
    monkeypatch.setattr("rlx.llm.loading.LARGEST_CACHE", 300 * config.cache_bytes("f16"))
    contexts = [rlx.llm.load(path, cache=kind).context for kind in ("f32", "f16", "q8_0")]
    assert contexts == [256, 256, 512]


def test_a_draft_with_a_packed_cache(path: Path, alone: rlx.llm.LLM) -> None:
    expected = [alone.generate(prompt, seed=i, **_OPTIONS).tokens for i, prompt in enumerate(_PROMPTS[:2])]
    with rlx.llm.load(path, cache="q8_0", threads=1, draft=rlx.llm.PromptLookup()) as model:
        assert [model.generate(prompt, seed=i, **_OPTIONS).tokens for i, prompt in enumerate(_PROMPTS[:2])] == expected


def test_models_whose_heads_do_not_divide_into_blocks_are_refused(model_path: Path, path: Path) -> None:
    with pytest.raises(rlx.UnsupportedError, match=r"blocks of 32 elements, into which the heads .* of 16 elements"):
        rlx.llm.load(model_path, cache="q8_0")
    with pytest.raises(rlx.UnsupportedError, match="of 16 elements"):
        rlx.llm.load(path, cache="q8_0", draft=model_path)
    for kind in ("q4_0", "Q8_0", "bf16"):
        with pytest.raises(rlx.Error, match="cache must be one of f16, f32, q8_0"):
            rlx.llm.load(path, cache=kind)
