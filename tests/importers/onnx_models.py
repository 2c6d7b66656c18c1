"""Small models in the form of exporters, for tests of quantised models, gradients and open sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

node = helper.make_node


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: Mapping[str, Any],
    opset: int = 17,
) -> bytes:
    """Return the bytes of a model. Inputs are f32, except i64 for names that start with `ids`."""
    read = [
        helper.make_tensor_value_info(n, TensorProto.INT64 if n.startswith("ids") else TensorProto.FLOAT, dims)
        for n, dims in inputs.items()
    ]
    given = [onnx.ValueInfoProto(name=n) for n in outputs]
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    graph = helper.make_graph(list(nodes), "g", read, given, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


def _weights(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    return {n: a / np.float32(np.sqrt(max(1, np.prod(a.shape[1:])))) for n, a in made.items()}


def cnn(batch: Any = 2, size: Any = 8) -> bytes:
    """Return a model of two convolutions, pools, and a product: `[batch, 3, size, size]` to `[batch, 5]`."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("GlobalAveragePool", ["r1"], ["p1"]),
        node("Flatten", ["p1"], ["f"]),
        node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    shapes = {"w0": (4, 3, 3, 3), "b0": (4,), "w1": (6, 4, 3, 3), "b1": (6,), "w2": (5, 6), "b2": (5,)}
    return model(nodes, {"x": [batch, 3, size, size]}, ["y"], _weights(0, **shapes))


def transformer(batch: Any = 2, length: Any = 5, width: int = 8, heads: int = 2) -> bytes:
    """Return a layer in PyTorch's export form: shapes from `Shape`, positions from `Range`, a causal mask from `Where`."""
    size = width // heads
    weights: dict[str, Any] = _weights(
        1, table=(11, width), places=(16, width), wq=(width, 3 * width), wo=(width, width)
    )
    weights |= _weights(2, w1=(width, 2 * width), w2=(2 * width, width))
    weights |= {"gain": np.ones(width, np.float32), "shift": np.full(width, 0.1, np.float32)}
    constants = {
        "zero": 0,
        "one": 1,
        "low": -1e9,
        "heads": [heads],
        "size": [size],
        "minus": [-1],
        "first": [0],
        "second": [1],
    }
    weights |= {n: np.array(v, np.float32 if n == "low" else np.int64) for n, v in constants.items()}
    weights["scale"] = np.array(size**-0.5, np.float32)
    nodes = [
        node("Shape", ["ids"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        node("Gather", ["shape", "one"], ["s"], axis=0),
        node("Range", ["zero", "s", "one"], ["rows"]),
        node("Gather", ["table", "ids"], ["e"]),
        node("Gather", ["places", "rows"], ["p"]),
        node("Add", ["e", "p"], ["h"]),
        node("LayerNormalization", ["h", "gain", "shift"], ["normed"], axis=-1),
        node("MatMul", ["normed", "wq"], ["qkv"]),
        node("Split", ["qkv"], ["q0", "k0", "v0"], axis=2),
        node("Unsqueeze", ["n", "first"], ["n1"]),
        node("Unsqueeze", ["s", "first"], ["s1"]),
        node("Concat", ["n1", "s1", "heads", "size"], ["split"], axis=0),
    ]
    for name in "qkv":
        nodes += [
            node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["products"]),
        node("Mul", ["products", "scale"], ["scores"]),
        node("Unsqueeze", ["rows", "second"], ["column"]),
        node("LessOrEqual", ["rows", "column"], ["allowed"]),
        node("Where", ["allowed", "scores", "low"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["mixed"]),
        node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        node("Mul", ["heads", "size"], ["width"]),
        node("Concat", ["n1", "s1", "width"], ["join"], axis=0),
        node("Reshape", ["turned", "join"], ["joined"]),
        node("MatMul", ["joined", "wo"], ["o"]),
        node("Add", ["h", "o"], ["h1"]),
        node("MatMul", ["h1", "w1"], ["m0"]),
        node("Relu", ["m0"], ["m1"]),
        node("MatMul", ["m1", "w2"], ["m2"]),
        node("Add", ["h1", "m2"], ["y"]),
    ]
    return model(nodes, {"ids": [batch, length]}, ["y"], weights)
