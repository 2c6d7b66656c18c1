"""The encoder's NumPy reference, compared with PyTorch's own layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.models import numpy_bert
from tests.models.tiny_bert import CONFIG, random_weights

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed, so the NumPy reference stands unchecked")

LAYER = "encoder.layer.1"
EPS = CONFIG["layer_norm_eps"]


def torch_layer(weights: dict[str, np.ndarray]) -> Any:
    """Return `torch.nn.TransformerEncoderLayer` with the weights of one BERT layer, in f64."""
    layer = torch.nn.TransformerEncoderLayer(
        CONFIG["hidden_size"],
        CONFIG["num_attention_heads"],
        CONFIG["intermediate_size"],
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=EPS,
        batch_first=True,
        dtype=torch.float64,
    )
    w = {name.removeprefix(f"{LAYER}."): torch.from_numpy(a.astype(np.float64)) for name, a in weights.items()}
    state = {}
    for kind in ("weight", "bias"):
        parts = [w[f"attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
        state[f"self_attn.in_proj_{kind}"] = torch.cat(parts)
        state[f"self_attn.out_proj.{kind}"] = w[f"attention.output.dense.{kind}"]
        state[f"linear1.{kind}"] = w[f"intermediate.dense.{kind}"]
        state[f"linear2.{kind}"] = w[f"output.dense.{kind}"]
        state[f"norm1.{kind}"] = w[f"attention.output.LayerNorm.{kind}"]
        state[f"norm2.{kind}"] = w[f"output.LayerNorm.{kind}"]
    layer.load_state_dict(state)
    return layer.train(False)


def test_encoder_layer_is_that_of_pytorch() -> None:
    weights = random_weights(1)
    x = np.random.default_rng(2).normal(size=(7, CONFIG["hidden_size"]))
    with torch.no_grad():
        expected = torch_layer(weights)(torch.from_numpy(x)[None])[0].numpy()
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    got = numpy_bert.encoder_layer(x, wide, LAYER, CONFIG["num_attention_heads"], EPS)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_embeddings_and_pooling_are_those_of_pytorch() -> None:
    weights, ids = random_weights(3), [2, 5, 9, 3]
    w = {name: torch.from_numpy(array.astype(np.float64)) for name, array in weights.items()}
    embedded = sum(
        torch.nn.functional.embedding(torch.tensor(rows), w[f"embeddings.{kind}_embeddings.weight"])
        for kind, rows in (("word", ids), ("position", range(4)), ("token_type", [0] * 4))
    )
    norm = (w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"])
    normed = torch.nn.functional.layer_norm(embedded, (CONFIG["hidden_size"],), *norm, EPS)
    expected = torch.nn.functional.normalize(normed.mean(0), dim=-1).numpy()
    no_layers = SimpleNamespace(num_hidden_layers=0, num_attention_heads=1, layer_norm_eps=EPS)
    np.testing.assert_allclose(numpy_bert.sentence_vector(no_layers, weights, ids), expected, rtol=0, atol=1e-12)
