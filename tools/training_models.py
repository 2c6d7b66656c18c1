"""Models to differentiate and to train, each as a graph and as a JAX function: an MLP, an encoder, a decoder block."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import rlx


@dataclass(frozen=True)
class TrainingModel:
    """One model.

    Attributes:
        name: The name in figures.
        graph: A function that returns the graph, whose single output is the loss.
        jax_loss: The same loss in JAX, as a function of parameters and inputs, mappings of arrays.
    """

    name: str
    graph: Callable[[], Any]
    jax_loss: Callable[[Any, Any], Any]

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return random parameters and inputs."""
        rng = np.random.default_rng(0)
        params, inputs = {}, {}
        for a in self.graph().arguments:
            shape = a.shape.static
            if a.shape.dtype is rlx.i32:
                array = rng.integers(0, 10, shape).astype(np.int32)
            elif a.kind == "param":
                spread = np.sqrt(1 / shape[0]) if len(shape) > 1 else 0.1
                array = (rng.standard_normal(shape) * spread + ("scale" in a.name)).astype(np.float32)
            else:
                array = rng.standard_normal(shape).astype(np.float32)
            (params if a.kind == "param" else inputs)[a.name] = array
        return params, inputs


# --- MLP --------------------------------------------------------------------------------------------

_SIZES = (784, 512, 512, 10)
_BATCH = 128


def _mlp() -> Any:
    g = rlx.Graph("mlp")
    h, labels = g.input("x", (_BATCH, _SIZES[0])), g.input("labels", (_BATCH,), rlx.i32)
    for i, (rows, columns) in enumerate(itertools.pairwise(_SIZES)):
        h = h @ g.param(f"w{i}", (rows, columns)) + g.param(f"b{i}", (columns,))
        h = h if i == len(_SIZES) - 2 else g.relu(h)
    g.set_outputs({"loss": g.mean(g.softmax_cross_entropy_with_logits(h, labels))})
    return g


def _jax_mlp(p: Any, inputs: Any) -> Any:
    import jax

    h = inputs["x"]
    for i in range(len(_SIZES) - 1):
        h = h @ p[f"w{i}"] + p[f"b{i}"]
        h = h if i == len(_SIZES) - 2 else jax.nn.relu(h)
    return _jax_cross_entropy(h, inputs["labels"])


def _jax_cross_entropy(logits: Any, labels: Any) -> Any:
    import jax

    logits = jax.nn.log_softmax(logits)
    return -jax.numpy.take_along_axis(logits, labels[..., None], -1).mean()


# --- encoder ----------------------------------------------------------------------------------------

# As in all-MiniLM-L6-v2: six layers of 384, twelve heads.
_LAYERS, _WIDTH, _HEADS, _INNER = 6, 384, 12, 1536
_ENCODER_INPUT = (4, 128, _WIDTH)
_ENCODER_WEIGHTS = {
    "wq": (_WIDTH, _WIDTH), "bq": (_WIDTH,), "wk": (_WIDTH, _WIDTH), "bk": (_WIDTH,), "wv": (_WIDTH, _WIDTH), "bv": (_WIDTH,),
    "wo": (_WIDTH, _WIDTH), "bo": (_WIDTH,), "ln1_scale": (_WIDTH,), "ln1_bias": (_WIDTH,), "w_up": (_WIDTH, _INNER),
    "b_up": (_INNER,), "w_down": (_INNER, _WIDTH), "b_down": (_WIDTH,), "ln2_scale": (_WIDTH,), "ln2_bias": (_WIDTH,),
}  # fmt: skip


def _encoder() -> Any:
    g = rlx.Graph("encoder", stage="hir")
    x, target = g.input("x", _ENCODER_INPUT), g.input("target", _ENCODER_INPUT)
    for i in range(_LAYERS):
        weights = [g.param(f"{i}.{name}", shape) for name, shape in _ENCODER_WEIGHTS.items()]
        x = g.transformer_encoder_block(x, *weights, num_heads=_HEADS)
    g.set_outputs({"loss": g.mse_loss(x, target)})
    return g


def _jax_encoder(p: Any, inputs: Any) -> Any:
    import jax

    x = inputs["x"]
    for i in range(_LAYERS):
        w = {name: p[f"{i}.{name}"] for name in _ENCODER_WEIGHTS}
        q, k, v = (_jax_heads(x @ w[f"w{n}"] + w[f"b{n}"], _HEADS) for n in "qkv")
        scores = jax.numpy.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(_WIDTH // _HEADS).astype(np.float32)
        attended = jax.numpy.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)
        x = x + _jax_joined(attended) @ w["wo"] + w["bo"]
        x = _jax_layer_norm(x, w["ln1_scale"], w["ln1_bias"])
        wide = jax.nn.gelu(x @ w["w_up"] + w["b_up"], approximate=False)
        x = _jax_layer_norm(x + wide @ w["w_down"] + w["b_down"], w["ln2_scale"], w["ln2_bias"])
    return ((x - inputs["target"]) ** 2).mean()


def _jax_heads(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _jax_joined(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _jax_layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    import jax

    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-12) * scale + bias


# --- decoder ----------------------------------------------------------------------------------------

_SEQ, _MODEL, _KV_HEADS, _HEAD_DIM, _FFN = 256, 512, 4, 64, 1376
_DECODER_HEADS = _MODEL // _HEAD_DIM
_DECODER_WEIGHTS = {
    "ln1_scale": (_MODEL,), "ln1_bias": (_MODEL,), "wq": (_MODEL, _MODEL), "wk": (_MODEL, _KV_HEADS * _HEAD_DIM),
    "wv": (_MODEL, _KV_HEADS * _HEAD_DIM), "wo": (_MODEL, _MODEL), "ln2_scale": (_MODEL,), "ln2_bias": (_MODEL,),
    "gate": (_MODEL, _FFN), "up": (_MODEL, _FFN), "down": (_FFN, _MODEL),
}  # fmt: skip


def _decoder() -> Any:
    g = rlx.Graph("decoder", stage="hir")
    x, target = g.input("x", (1, _SEQ, _MODEL)), g.input("target", (1, _SEQ, _MODEL))
    cos, sin = (g.constant(table) for table in _rope_tables())
    weights = [g.param(name, shape) for name, shape in _DECODER_WEIGHTS.items()]
    options = {"num_heads": _DECODER_HEADS, "head_dim": _HEAD_DIM, "num_kv_heads": _KV_HEADS, "mask_kind": "causal"}
    y = g.llama_decoder_block(x, *[*weights, cos, sin], eps=1e-5, **options)
    g.set_outputs({"loss": g.mse_loss(y, target)})
    return g


def _rope_tables() -> tuple[np.ndarray, np.ndarray]:
    angles = np.outer(np.arange(_SEQ), 10000.0 ** (-np.arange(_HEAD_DIM // 2) / (_HEAD_DIM // 2)))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _jax_decoder(p: Any, inputs: Any) -> Any:
    import jax

    jnp = jax.numpy
    x, (cos, sin) = inputs["x"], _rope_tables()
    h = _jax_rms_norm(x, p["ln1_scale"], p["ln1_bias"])
    q, k, v = (_jax_heads(h @ p[w], n) for w, n in (("wq", _DECODER_HEADS), ("wk", _KV_HEADS), ("wv", _KV_HEADS)))
    q, k = (_jax_rope(t, cos, sin) for t in (q, k))
    k, v = (jnp.repeat(t, _DECODER_HEADS // _KV_HEADS, 1) for t in (k, v))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(_HEAD_DIM).astype(np.float32)
    scores = jnp.where(np.tri(_SEQ, dtype=bool), scores, -1e9)
    x = x + _jax_joined(jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)) @ p["wo"]
    h = _jax_rms_norm(x, p["ln2_scale"], p["ln2_bias"])
    x = x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]
    return ((x - inputs["target"]) ** 2).mean()


def _jax_rope(x: Any, cos: Any, sin: Any) -> Any:
    import jax

    a, b = jax.numpy.split(x, 2, -1)
    return jax.numpy.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _jax_rms_norm(x: Any, scale: Any, bias: Any) -> Any:
    import jax

    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale + bias


MODELS = (
    TrainingModel("MLP 784-512-512-10, batch 128", _mlp, _jax_mlp),
    TrainingModel("encoder as MiniLM, batch 4 of 128", _encoder, _jax_encoder),
    TrainingModel("decoder block of 512, 256 tokens", _decoder, _jax_decoder),
)
