"""Files that llama.cpp reads: models and adapters have the logits of llama-cpp-python, if it is installed."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import load, new_adapter
from tests.models.gguf_files import write_gguf
from tests.models.references import reference, weights

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed"
)

_IDS = [i * 7 % 37 + 3 for i in range(20)]
_F32 = 0  # the number of the dtype of the cache


def _add_tokens(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Add a vocabulary, without which llama.cpp opens no model, and sizes that its converter always writes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(37))]
    name = metadata["general.architecture"]
    metadata |= {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.zeros(len(tokens), np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, *[1] * 37], np.int32),
        f"{name}.rope.dimension_count": metadata[f"{name}.attention.key_length"],
        f"{name}.attention.value_length": metadata[f"{name}.attention.key_length"],
    }


def _file(path: Path, name: str) -> Path:
    content = reference(name)
    return write_gguf(path / f"{name}.gguf", content["config"], weights(content["tensors"]), _add_tokens)


def _logits(model: rlx.models.PretrainedModel, params: dict[str, np.ndarray] | None = None) -> np.ndarray:
    inputs = {"input_ids": np.array([_IDS], np.int32), **(params or {})}
    return rlx.evaluate(model.graph(sequence=len(_IDS)), inputs)[0][0]


def _logits_of_llama_cpp(path: Path, **options: Any) -> np.ndarray:
    llama = importlib.import_module("llama_cpp").Llama(
        str(path), n_ctx=64, type_k=_F32, type_v=_F32, logits_all=True, verbose=False, **options
    )
    llama.eval(_IDS)
    return np.array(llama.scores[: len(_IDS)])


@pytest.mark.parametrize("name", ["llama", "llama4"])
def test_models(tmp_path: Path, name: str) -> None:
    path = _file(tmp_path, name)
    expected = _logits_of_llama_cpp(path)
    assert np.abs(_logits(load(path)) - expected).max() < 1e-5 * np.abs(expected).max()


def test_adapters(tmp_path: Path, seed: int) -> None:
    path, rng = _file(tmp_path, "llama"), np.random.default_rng(seed)
    adapter = new_adapter(load(path), rank=4, alpha=6, layers=["q_proj", "k_proj", "o_proj", "up_proj", "lm_head"])
    shapes = {a.name: a.shape.static for a in adapter.model.graph().params}
    values = {name: rng.normal(0, 0.2, shapes[name]).astype(np.float32) for name in adapter.params}
    adapter.save(tmp_path / "adapter.gguf", values)
    expected = _logits_of_llama_cpp(path, lora_path=str(tmp_path / "adapter.gguf"), lora_scale=1.0)
    assert np.abs(_logits(adapter.model, values) - expected).max() < 1e-5 * np.abs(expected).max()
    assert np.abs(_logits(adapter.model) - expected).max() > 0.05 * np.abs(expected).max()
