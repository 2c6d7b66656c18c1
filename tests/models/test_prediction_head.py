"""The head of Qwen3-Next that predicts further tokens, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.models import load
from tests.models.numpy_prediction_head import CONTENT, predicted, tensors_with_head, write_gguf_with_head
from tests.models.references import reference, weights, write_model

_CONFIG: dict[str, Any] = CONTENT["config"]


def _inputs(length: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(length)
    return rng.integers(0, 40, length).astype(np.int32), rng.standard_normal((length, 32)).astype(np.float32)


@pytest.mark.parametrize("is_gguf", [False, True])
def test_results(tmp_path: Path, is_gguf: bool) -> None:
    tensors = tensors_with_head()
    folder = write_model(tmp_path / "folder", _CONFIG, tensors)
    model = load(write_gguf_with_head(tmp_path / "model.gguf", tensors, lambda *_: None) if is_gguf else folder)
    assert model.unused and all(name.startswith("mtp.") for name in model.unused)
    ids, hidden = _inputs(7)
    graph = model.prediction_graph(sequence=7)
    logits, states = rlx.evaluate(graph, {"input_ids": ids[None], "hidden_states": hidden[None]})
    expected = predicted(tensors, _CONFIG, ids, hidden)
    for found, wanted in zip((logits, states), expected, strict=True):
        np.testing.assert_allclose(found[0], wanted, atol=2e-5 * np.abs(wanted).max())
    # The graph of the model itself is the same as without a head.
    plain = load(write_model(tmp_path / "plain", _CONFIG, weights(CONTENT["tensors"])))
    inputs = {"input_ids": ids[None]}
    (whole,) = rlx.evaluate(plain.graph(sequence=7), inputs)
    logits, states = rlx.evaluate(model.graph(sequence=7, hidden=True), inputs)
    np.testing.assert_allclose(logits, whole, atol=1e-5 * np.abs(whole).max())
    np.testing.assert_allclose(states @ tensors["lm_head.weight"].T, whole, atol=1e-4 * np.abs(whole).max())


def test_the_norm_of_the_model_is_the_default(tmp_path: Path) -> None:
    tensors = tensors_with_head()
    path = write_gguf_with_head(
        tmp_path / "model.gguf", tensors, lambda _, arrays: arrays.pop("blk.4.nextn.shared_head_norm.weight")
    )
    ids, hidden = _inputs(3)
    graph = load(path).prediction_graph(sequence=3, last=True)
    logits, _ = rlx.evaluate(graph, {"input_ids": ids[None], "hidden_states": hidden[None]})
    expected, _ = predicted(tensors | {"mtp.norm.weight": tensors["model.norm.weight"]}, _CONFIG, ids, hidden)
    np.testing.assert_allclose(logits[0], expected[-1:], atol=2e-5 * np.abs(expected).max())


def _wrong(**changes: Any) -> dict[str, np.ndarray]:
    tensors = tensors_with_head()
    for name, array in changes.items():
        if array is None:
            del tensors[name]
        else:
            tensors[name] = array
    return tensors


_TABLE = np.zeros((40, 32), np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mtp.fc.weight": None}, r"'mtp.fc.weight' \(f32\[32, 64\]\) is missing"),
        (
            {"mtp.fc.weight": np.zeros((32, 32), np.float32)},
            r"'mtp.fc.weight' is float32\[32, 32\], expected f32\[32, 64\]",
        ),
        ({"mtp.layers.0.mlp.experts.1.up_proj.weight": None}, "experts.up_proj.weight"),
        ({"mtp.layers.1.input_layernorm.weight": np.zeros(32, np.float32)}, "has several layers"),
        ({"mtp.embed_tokens.weight": _TABLE}, "a table 'embed_tokens' of its own"),
    ],
)
def test_wrong_heads(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    model = load(write_model(tmp_path / "model", _CONFIG, _wrong(**changes)))
    with pytest.raises(rlx.Error, match=message):
        model.prediction_graph()


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3", "mamba"])
def test_models_without_a_head(tmp_path: Path, name: str) -> None:
    content = reference(name)
    model = load(write_model(tmp_path / name, content["config"], weights(content["tensors"])))
    with pytest.raises(rlx.UnsupportedError, match=r"has no head that predicts further tokens: tensors 'mtp\.\*'"):
        model.prediction_graph()
