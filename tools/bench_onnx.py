"""BERT sentence encoders as ONNX models, written from the checkpoint's tensors, for ONNX Runtime.

There are two styles of the same function. `"standard"` uses the operators of the ONNX standard, like an exporter, and
leaves all fusions to the runtime's graph optimiser. `"fused"` uses the runtime's transformer operators
(`com.microsoft`), which its offline optimiser would produce for a BERT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from rlx.models.encoder import EncoderConfig

Style = Literal["standard", "fused"]
_OPSET = 20
_MASKED = -1e9


class _Model:
    """An ONNX graph under construction."""

    def __init__(self, weights: Mapping[str, np.ndarray]):
        self.weights = weights
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        from onnx import numpy_helper

        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value, dtype), name)
        return name

    def weight(self, name: str) -> str:
        return self.constant(name, self.weights[name])

    def dense_weight(self, name: str) -> str:
        """Add a dense layer's weight as `[in, out]`. Checkpoints store `[out, in]`."""
        return self.constant(f"{name}.transposed", self.weights[f"{name}.weight"].T)

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

    def dense(self, x: str, name: str) -> str:
        product = self.node("MatMul", [x, self.dense_weight(name)])
        return self.node("Add", [product, self.weight(f"{name}.bias")])

    def layer_norm(self, x: str, name: str, eps: float) -> str:
        parameters = [self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]
        return self.node("LayerNormalization", [x, *parameters], axis=-1, epsilon=eps)


def onnx_sentence_encoder(config: EncoderConfig, weights: Mapping[str, np.ndarray], style: Style) -> bytes:
    """Return a model from `ids` and `mask`, `[B, S]` i32 with free sizes, to unit vectors `embedding`, `[B, E]` f32.

    Args:
        config: Sizes. The activation must be the exact GELU.
        weights: The checkpoint's tensors, by name.
        style: See the module's description.
    """
    from onnx import TensorProto, helper

    model = _Model(weights)
    layers = _standard_layers if style == "standard" else _fused_layers
    embedding = _pooled(model, layers(model, config))
    model.node("Identity", [embedding])
    model.nodes[-1].output[0] = "embedding"
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, ["B", "S"]) for n in ("ids", "mask")]
    outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["B", config.hidden_size])]
    graph = helper.make_graph(model.nodes, "encoder", inputs, outputs, list(model.initializers.values()))
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def _standard_layers(m: _Model, config: EncoderConfig) -> str:
    e, heads = config.hidden_size, config.num_attention_heads
    length = m.node("Slice", [m.node("Shape", ["ids"]), *(m.constant(f"at{i}", [i], np.int64) for i in (1, 2))])
    start = m.constant("at0", [0], np.int64)
    positions = m.node(
        "Slice",
        [m.weight("embeddings.position_embeddings.weight"), start, length, start],
    )
    words = m.node("Gather", [m.weight("embeddings.word_embeddings.weight"), "ids"])
    types = m.constant("type0", m.weights["embeddings.token_type_embeddings.weight"][0])
    x = m.node("Add", [m.node("Add", [words, positions]), types])
    x = m.layer_norm(x, "embeddings.LayerNorm", config.layer_norm_eps)
    keep = m.node("Unsqueeze", [m.node("Cast", ["mask"], to=1), m.constant("axes12", [1, 2], np.int64)])
    hidden = m.node("Sub", [m.constant("one", 1.0), keep])
    bias = m.node("Mul", [hidden, m.constant("masked", _MASKED)])
    split = m.constant("split", [0, 0, heads, e // heads], np.int64)
    merge = m.constant("merge", [0, 0, e], np.int64)
    for i in range(config.num_hidden_layers):
        layer = f"encoder.layer.{i}"
        q, k, v = (
            m.node(
                "Transpose",
                [m.node("Reshape", [m.dense(x, f"{layer}.attention.self.{n}"), split])],
                perm=perm,
            )
            for n, perm in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3)))
        )
        scores = m.node("Div", [m.node("MatMul", [q, k]), m.constant("scale", np.sqrt(e // heads))])
        weights = m.node("Softmax", [m.node("Add", [scores, bias])], axis=-1)
        mixed = m.node("Transpose", [m.node("MatMul", [weights, v])], perm=(0, 2, 1, 3))
        attended = m.dense(m.node("Reshape", [mixed, merge]), f"{layer}.attention.output.dense")
        h = m.node("Add", [attended, x])
        h = m.layer_norm(h, f"{layer}.attention.output.LayerNorm", config.layer_norm_eps)
        wide = m.node("Gelu", [m.dense(h, f"{layer}.intermediate.dense")])
        x = m.node("Add", [m.dense(wide, f"{layer}.output.dense"), h])
        x = m.layer_norm(x, f"{layer}.output.LayerNorm", config.layer_norm_eps)
    return x


def _fused_layers(m: _Model, config: EncoderConfig) -> str:
    eps = config.layer_norm_eps
    tables = [f"embeddings.{n}_embeddings.weight" for n in ("word", "position", "token_type")]
    norm = ["embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"]
    types = m.node("Mul", ["ids", m.constant("zero", 0, np.int32)])
    operands = ["ids", types, *map(m.weight, tables + norm)]
    x = _fused(m, "EmbedLayerNormalization", operands, outputs=2, epsilon=eps)
    for i in range(config.num_hidden_layers):
        layer = f"encoder.layer.{i}"
        parts = [f"{layer}.attention.self.{n}" for n in ("query", "key", "value")]
        weight = np.concatenate([m.weights[f"{p}.weight"].T for p in parts], axis=1)
        bias = np.concatenate([m.weights[f"{p}.bias"] for p in parts])
        packed = [m.constant(f"{layer}.qkv.weight", weight), m.constant(f"{layer}.qkv.bias", bias)]
        attended = _fused(m, "Attention", [x, *packed, "mask"], num_heads=config.num_attention_heads)
        h = _skip_norm(m, attended, x, f"{layer}.attention.output", eps)
        wide = m.node("MatMul", [h, m.dense_weight(f"{layer}.intermediate.dense")])
        wide = _fused(m, "BiasGelu", [wide, m.weight(f"{layer}.intermediate.dense.bias")])
        x = _skip_norm(m, wide, h, f"{layer}.output", eps)
    return x


def _skip_norm(m: _Model, x: str, residual: str, layer: str, eps: float) -> str:
    product = m.node("MatMul", [x, m.dense_weight(f"{layer}.dense")])
    names = [f"{layer}.LayerNorm.weight", f"{layer}.LayerNorm.bias", f"{layer}.dense.bias"]
    return _fused(m, "SkipLayerNormalization", [product, residual, *map(m.weight, names)], epsilon=eps)


def _fused(m: _Model, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
    name = m.node(kind, inputs, "com.microsoft", **attributes)
    m.nodes[-1].output.extend(f"{name}.{i}" for i in range(1, outputs))
    return name


def _pooled(m: _Model, tokens: str) -> str:
    """Add the mean over the tokens and L2 normalisation."""
    last, axis1 = m.constant("last", [-1], np.int64), m.constant("axis1", [1], np.int64)
    keep = m.node("Unsqueeze", [m.node("Cast", ["mask"], to=1), last])
    total = m.node("ReduceSum", [m.node("Mul", [tokens, keep]), axis1], keepdims=0)
    count = m.node("Max", [m.node("ReduceSum", [keep, axis1], keepdims=0), m.constant("least_count", 1e-9)])
    mean = m.node("Div", [total, count])
    norm = m.node("Max", [m.node("ReduceL2", [mean, last], keepdims=1), m.constant("least_norm", 1e-12)])
    return m.node("Div", [mean, norm])
