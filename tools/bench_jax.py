"""BERT sentence encoders in JAX, written as by a user of JAX, and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.models.encoder import EncoderConfig

_MASKED = -1e9


def jax_sentence_encoder(config: EncoderConfig, weights: Mapping[str, np.ndarray]) -> Callable[..., np.ndarray]:
    """Return a function from `ids` and `mask`, `[B, S]` i32, to unit vectors `[B, E]` f32.

    It is compiled once for each shape. The weights are device arrays that are passed in each call.
    """
    import jax

    device_weights = {name: jax.numpy.asarray(w) for name, w in weights.items() if w.dtype == np.float32}
    compiled = jax.jit(lambda w, ids, mask: _forward(config, w, ids, mask))
    return lambda ids, mask: np.asarray(compiled(device_weights, ids, mask))


def _forward(config: EncoderConfig, w: Mapping[str, Any], ids: Any, mask: Any) -> Any:
    import jax.numpy as jnp

    length = ids.shape[1]
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
    x = _norm(config, w, "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
    keep = mask.astype(jnp.float32)
    bias = (1.0 - keep)[:, None, None, :] * _MASKED
    for i in range(config.num_hidden_layers):
        x = _layer(config, w, f"encoder.layer.{i}", x, bias)
    mean = (x * keep[..., None]).sum(1) / jnp.maximum(keep.sum(1, keepdims=True), 1e-9)
    return mean / jnp.maximum(jnp.linalg.norm(mean, axis=-1, keepdims=True), 1e-12)


def _layer(config: EncoderConfig, w: Mapping[str, Any], layer: str, x: Any, bias: Any) -> Any:
    import jax

    batch, length, width = x.shape
    heads = config.num_attention_heads

    def split(name: str) -> Any:
        return _dense(w, f"{layer}.attention.self.{name}", x).reshape(batch, length, heads, width // heads)

    scores = jax.numpy.einsum("bqhd,bkhd->bhqk", split("query"), split("key")) / np.sqrt(width // heads)
    probabilities = jax.nn.softmax(scores + bias, axis=-1)
    attended = jax.numpy.einsum("bhqk,bkhd->bqhd", probabilities, split("value")).reshape(x.shape)
    h = _dense(w, f"{layer}.attention.output.dense", attended) + x
    h = _norm(config, w, f"{layer}.attention.output.LayerNorm", h)
    wide = jax.nn.gelu(_dense(w, f"{layer}.intermediate.dense", h), approximate=False)
    return _norm(config, w, f"{layer}.output.LayerNorm", _dense(w, f"{layer}.output.dense", wide) + h)


def _dense(w: Mapping[str, Any], name: str, x: Any) -> Any:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _norm(config: EncoderConfig, w: Mapping[str, Any], name: str, x: Any) -> Any:
    import jax

    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + config.layer_norm_eps) * w[f"{name}.weight"] + w[f"{name}.bias"]
