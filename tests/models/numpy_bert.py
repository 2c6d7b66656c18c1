"""A BERT sentence encoder in plain NumPy and f64, one sentence at a time: no batch, no padding, no mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import erf

Weights = Mapping[str, np.ndarray]


def sentence_vector(config: Any, weights: Weights, ids: Sequence[int]) -> np.ndarray:
    """Return the unit vector of a sentence: the mean over the tokens of the last layer, normalised.

    Args:
        config: `num_hidden_layers`, `num_attention_heads` and `layer_norm_eps` as in `config.json`; GELU is exact.
        weights: Tensors of the checkpoint, by name.
        ids: Token ids.

    Returns:
        `[hidden_size]`, f64.
    """
    w = {name: array.astype(np.float64) for name, array in weights.items() if array.dtype.kind == "f"}
    tables = (w[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    words, positions, types = tables
    x = words[list(ids)] + positions[: len(ids)] + types[0]
    x = layer_norm(x, w, "embeddings.LayerNorm", config.layer_norm_eps)
    for i in range(config.num_hidden_layers):
        x = encoder_layer(x, w, f"encoder.layer.{i}", config.num_attention_heads, config.layer_norm_eps)
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def encoder_layer(x: np.ndarray, w: Weights, layer: str, num_heads: int, eps: float) -> np.ndarray:
    """Apply one layer to `[S, E]`: attention and feed-forward network, each followed by a residual LayerNorm."""
    length, width = x.shape
    q, k, v = (
        linear(x, w, f"{layer}.attention.self.{name}").reshape(length, num_heads, -1).swapaxes(0, 1)
        for name in ("query", "key", "value")
    )
    attended = softmax(q @ k.swapaxes(1, 2) / np.sqrt(width / num_heads)) @ v
    update = linear(attended.swapaxes(0, 1).reshape(length, width), w, f"{layer}.attention.output.dense")
    x = layer_norm(x + update, w, f"{layer}.attention.output.LayerNorm", eps)
    update = linear(gelu(linear(x, w, f"{layer}.intermediate.dense")), w, f"{layer}.output.dense")
    return layer_norm(x + update, w, f"{layer}.output.LayerNorm", eps)


def linear(x: np.ndarray, w: Weights, name: str) -> np.ndarray:
    """Apply a dense layer whose weight is stored as `[out, in]`."""
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(x: np.ndarray, w: Weights, name: str, eps: float) -> np.ndarray:
    """LayerNorm over the last axis (Ba et al., 2016)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + eps)
    return centred / deviation * w[f"{name}.weight"] + w[f"{name}.bias"]


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def gelu(x: np.ndarray) -> np.ndarray:
    """The exact GELU (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))
