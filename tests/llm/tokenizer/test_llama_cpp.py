"""The ids that llama.cpp's `models/ggml-vocab-*.gguf.out` expects.

`llama_cpp.json` has its texts and, of each vocabulary, the tokens that occur in them: other tokens and merges cannot
change the result. The ids are renumbered. With the complete files in a folder that the environment variable
RLX_LLAMA_CPP_MODELS names, all of them are tested.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.llm.tokenizer import tokenizer_from_gguf

NAMES = (
    *("llama-bpe", "llama-spm", "qwen35", "deepseek-llm", "deepseek-coder", "falcon", "bert-bge", "gemma-4"),
    *("command-r", "phi-3", "starcoder"),
)


@cache
def recorded() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "llama_cpp.json").read_text(encoding="utf-8"))


def metadata(entry: dict[str, Any]) -> dict[str, Any]:
    result = {f"tokenizer.ggml.{key}": value for key, value in entry["metadata"].items()}
    result["tokenizer.ggml.tokens"] = tuple(entry["tokens"])
    result["tokenizer.ggml.token_type"] = np.array([int(kind) for kind in entry["kinds"]], np.int32)
    if "scores" in entry:
        result["tokenizer.ggml.scores"] = np.array(entry["scores"], np.float32)
    if "merges" in entry:
        result["tokenizer.ggml.merges"] = tuple(entry["merges"])
    return {**result, "general.name": entry["name"]}


def test_all_vocabularies_are_tested() -> None:
    assert set(recorded()["vocabularies"]) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_llama_cpp(name: str) -> None:
    entry = recorded()["vocabularies"][name]
    tokenizer = tokenizer_from_gguf(metadata(entry), name)
    texts = entry["texts"] or recorded()["texts"]
    assert len(texts) >= 46
    for text, expected in zip(texts, entry["expected"], strict=True):
        assert tokenizer.encode(text, add_special_tokens=False, parse_special=False) == expected, repr(text)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bert-bge"])
def test_decoding_gives_the_text_again(name: str) -> None:
    entry = recorded()["vocabularies"][name]
    tokenizer = tokenizer_from_gguf(metadata(entry), name)
    for text, ids in zip(entry["texts"] or recorded()["texts"], entry["expected"], strict=True):
        assert tokenizer.decode(ids) == text
        decoder = tokenizer.stream_decoder()
        assert "".join(map(decoder.push, ids)) + decoder.flush() == text


def complete_files() -> Iterator[Path]:
    folder = os.environ.get("RLX_LLAMA_CPP_MODELS")
    return Path(folder).glob("ggml-vocab-*.gguf") if folder else iter(())


@pytest.mark.parametrize("path", sorted(complete_files()), ids=lambda path: path.name)
def test_complete_files(path: Path) -> None:
    texts, expected = path.with_suffix(".gguf.inp"), path.with_suffix(".gguf.out")
    if not texts.exists():
        pytest.skip("llama.cpp has no texts for it")
    tokenizer = tokenizer_from_gguf(_read(path), path.name)
    lines = expected.read_text().split("\n")
    for text, line in zip(texts.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n"), lines, strict=False):
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        assert ids == [*map(int, line.split())], repr(text)


def _read(path: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    result: dict[str, Any] = {}
    for key, entry in GGUFReader(path).fields.items():
        value = entry.contents()
        if isinstance(value, list):
            value = tuple(value) if value and isinstance(value[0], str) else np.array(value)
        result[key] = value
    return result
