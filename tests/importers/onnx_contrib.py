"""Nodes of ONNX Runtime's own ops, with inputs: importer test cases with ONNX Runtime as the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

RANDOM = np.random.default_rng(5)
MICROSOFT = "com.microsoft"


class Node(NamedTuple):
    """A node: its op, operands (None for an omitted one), attributes, results, and constant operands.

    `atol` is the tolerance of floats. It is larger if each step rounds the result of the previous one to integers.
    """

    op: str
    operands: list[Any]
    attributes: dict[str, Any] = {}
    results: int = 1
    constants: tuple[int, ...] = ()
    domain: str = MICROSOFT
    skipped: tuple[int, ...] = ()
    atol: float = 2e-5

    def model(self, opset: int = 20) -> bytes:
        """Return the bytes of its model. Inputs are `x0`, `x1`, …, results `y0`, `y1`, …."""
        names = ["" if o is None else f"x{i}" for i, o in enumerate(self.operands)]
        results = ["" if i in self.skipped else f"y{i}" for i in range(self.results)]
        node = helper.make_node(self.op, names, results, domain=self.domain, **self.attributes)
        inputs, initialisers = [], []
        for i, (name, array) in enumerate(zip(names, self.operands, strict=True)):
            if not name:
                continue
            if i in self.constants:
                initialisers.append(onnx.numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        outputs = [onnx.ValueInfoProto(name=n) for n in results if n]
        graph = helper.make_graph([node], "g", inputs, outputs, initialisers)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Return the values of its inputs."""
        given = {f"x{i}": o for i, o in enumerate(self.operands) if i not in self.constants}
        return {n: a for n, a in given.items() if a is not None}


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def integers(dtype: Any, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, int(limits.max) + 1, shape).astype(dtype)


def narrow_weights(dtype: Any, *shape: int) -> np.ndarray:
    """Return weights of 7 bits. On CPUs without VNNI, ONNX Runtime adds two products in 16 bits, which saturate."""
    return integers(dtype, *shape) // 2


def scalar(value: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def nodes() -> Iterator[Node]:
    """Yield all cases."""
    yield from _products()
    yield from _norms()
    yield from _attention()
    yield from _caches()
    yield from _quantized()
    yield from _quantized_lstm()
    yield from _few_bits()


def _products() -> Iterator[Node]:
    yield Node("FusedMatMul", [floats(2, 3, 4), floats(2, 4, 5)], {"alpha": 0.5})
    yield Node("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 2.0})
    yield Node("FusedMatMul", [floats(3, 2, 4), floats(2, 4, 5)], {"transBatchA": 1})
    yield Node(
        "FusedMatMul",
        [floats(4, 2, 3), floats(5, 2, 4)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
    )
    yield Node("FusedGemm", [floats(3, 4), floats(4, 5), floats(5)], {"activation": "Relu", "alpha": 0.5})
    yield Node(
        "FusedGemm", [floats(3, 4), floats(5, 4)], {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1}
    )
    image, kernel = floats(1, 2, 6, 6), floats(3, 2, 3, 3)
    yield Node("FusedConv", [image, kernel, floats(3)], {"activation": "Relu", "pads": [1, 1, 1, 1]})
    yield Node(
        "FusedConv",
        [image, kernel, floats(3), floats(1, 3, 4, 4)],
        {"activation": "Clip", "activation_params": [-1.0, 1.0]},
    )
    yield Node("Gelu", [floats(3, 4)])
    yield Node("FastGelu", [floats(3, 4)])
    yield Node("FastGelu", [floats(3, 4), floats(4)])
    yield Node("BiasGelu", [floats(3, 4), floats(4)])
    yield Node("QuickGelu", [floats(3, 4)], {"alpha": 1.5})
    yield Node("Inverse", [floats(70, 2, 2) + 3 * np.eye(2, dtype=np.float32)])
    yield Node("Inverse", [floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)])


def _norms() -> Iterator[Node]:
    x, scale, beta = floats(2, 3, 8), floats(8), floats(8)
    yield Node("SimplifiedLayerNormalization", [x, scale], {"epsilon": 1e-3}, domain="")
    yield Node(
        "SkipLayerNormalization", [x, floats(2, 3, 8), scale, beta, floats(8)], {"epsilon": 1e-3}, 4, skipped=(1, 2)
    )
    yield Node("SkipLayerNormalization", [x, floats(2, 3, 8), scale])
    yield Node(
        "SkipSimplifiedLayerNormalization", [x, floats(2, 3, 8), scale, floats(8)], {"epsilon": 1e-3}, 4, skipped=(1, 2)
    )
    ids, kinds = RANDOM.integers(0, 10, (2, 5)).astype(np.int32), RANDOM.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = [floats(10, 8), floats(7, 8), floats(2, 8), scale, beta]
    yield Node("EmbedLayerNormalization", [ids, kinds, *tables, mask], {"epsilon": 1e-3, "mask_index_type": 1}, 2)
    yield Node("EmbedLayerNormalization", [ids, None, *tables[:2], None, scale, beta], {"mask_index_type": 0}, 2)


def _attention() -> Iterator[Node]:
    x, weights, bias = floats(2, 5, 8), floats(8, 24), floats(24)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    yield Node("Attention", [x, weights, bias], {"num_heads": 2})
    yield Node("Attention", [x, weights, bias, mask], {"num_heads": 2, "unidirectional": 1})
    yield Node("Attention", [x, weights, bias, np.array([3, 5], np.int32)], {"num_heads": 2, "scale": 0.3})
    past = floats(2, 2, 2, 3, 4)
    whole = np.ones((2, 8), np.int32)
    yield Node("Attention", [x, weights, bias, whole, past], {"num_heads": 2, "unidirectional": 1}, 2)
    yield Node("Attention", [x, weights, bias, None, None, floats(2, 2, 5, 5)], {"num_heads": 2})
    q, k, v = floats(2, 5, 8), floats(2, 6, 8), floats(2, 6, 8)
    yield Node("MultiHeadAttention", [q, k, v], {"num_heads": 2})
    keys = np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.int32)
    yield Node("MultiHeadAttention", [q, k, v, floats(24), keys, floats(1, 2, 5, 6)], {"num_heads": 2, "scale": 0.5})
    old = [floats(2, 2, 3, 4), floats(2, 2, 3, 4)]
    yield Node("MultiHeadAttention", [q, k, v, None, None, None, *old], {"num_heads": 2}, 3)
    yield Node("MultiHeadAttention", [q, floats(2, 2, 6, 4), floats(2, 2, 6, 4)], {"num_heads": 2})


def _caches() -> Iterator[Node]:
    cos, sin = floats(16, 4), floats(16, 4)
    place = np.array([[0, 1, 2], [4, 5, 6]], np.int64)
    yield Node("RotaryEmbedding", [floats(2, 3, 16), place, cos, sin])
    yield Node("RotaryEmbedding", [floats(2, 2, 3, 8), np.array([5], np.int64), cos, sin], {"interleaved": 1})
    q, k, v, table = floats(2, 3, 64), floats(2, 3, 32), floats(2, 3, 32), [floats(16, 8), floats(16, 8)]
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    rotated = {**attributes, "do_rotary": 1}
    first, joined = [np.array([2, 2], np.int32), np.array(3, np.int32)], [floats(2, 3, 128), None, None]
    yield Node("GroupQueryAttention", [q, k, v, None, None, *first], attributes, 3, constants=(6,))
    yield Node("GroupQueryAttention", [q, k, v, None, None, *first, *table], rotated, 3, constants=(6,))
    yield Node("GroupQueryAttention", [*joined, None, None, *first, *table], rotated, 3, constants=(6,))
    past = [floats(2, 2, 4, 16), floats(2, 2, 4, 16)]
    one = [floats(2, 1, 64), floats(2, 1, 32), floats(2, 1, 32)]
    following = [np.array([4, 4], np.int32), np.array(5, np.int32)]
    near = {**rotated, "local_window_size": 3}
    yield Node("GroupQueryAttention", [*one, *past, *following, *table], near, 3, constants=(6,))
    yield Node("GroupQueryAttention", [*one, *past, *following], {**attributes, "softcap": 2.0, "scale": 0.4}, 3)


def _quantized() -> Iterator[Node]:
    a, b = integers(np.uint8, 2, 3, 4), integers(np.uint8, 2, 3, 4)
    left, right, out = (
        [scalar(0.02), scalar(120, np.uint8)],
        [scalar(0.03), scalar(9, np.uint8)],
        [scalar(0.05), scalar(100, np.uint8)],
    )
    yield Node("QLinearAdd", [a, *left, b, *right, *out])
    yield Node("QLinearMul", [a, *left, b, *right, scalar(0.2), scalar(100, np.uint8)])
    yield Node("QLinearSigmoid", [a, *left, scalar(1 / 256), scalar(0, np.uint8)], constants=(1, 2, 3, 4))
    yield Node("QLinearLeakyRelu", [a, *left, *out], {"alpha": 0.2}, constants=(1, 2, 3, 4))
    yield Node(
        "QLinearSoftmax",
        [a, *left, scalar(1 / 256), scalar(0, np.uint8)],
        {"axis": -1, "opset": 13},
        constants=(1, 2, 3, 4),
    )
    image = integers(np.uint8, 1, 2, 4, 4)
    yield Node("QLinearGlobalAveragePool", [image, *left, *out])
    yield Node("QLinearAveragePool", [image, *left, *out], {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Node("QLinearConcat", [*out, a, *left, b, *right], {"axis": 1}, constants=(0, 1, 3, 4, 6, 7))
    yield Node("QLinearWhere", [RANDOM.random((2, 3, 4)) < 0.5, a, *left, b, *right, *out])
    weights = narrow_weights(np.int8, 4, 5)
    yield Node(
        "MatMulIntegerToFloat",
        [a, weights, scalar(0.02), floats(5), scalar(120, np.uint8), integers(np.int8, 5), floats(5)],
    )
    yield Node("DynamicQuantizeMatMul", [floats(3, 4), weights, scalar(0.02), scalar(3, np.int8), floats(5)])
    rows = integers(np.uint8, 3, 4)
    c = RANDOM.integers(-500, 500, 5).astype(np.int32)
    yield Node("QGemm", [rows, *left, weights, scalar(0.01), scalar(0, np.int8), c, scalar(0.2), scalar(99, np.uint8)])
    yield Node(
        "QGemm", [rows, *left, np.ascontiguousarray(weights.T), scalar(0.01), scalar(0, np.int8), c], {"transB": 1}
    )
    x, w = integers(np.uint8, 2, 5, 8), narrow_weights(np.int8, 8, 24)
    scales = [scalar(0.02), scalar(0.01), np.ones((2, 5), np.int32), scalar(128, np.uint8), scalar(0, np.int8)]
    yield Node(
        "QAttention", [x, w, floats(24), *scales], {"num_heads": 2, "unidirectional": 1}, constants=(1, 3, 4, 6, 7)
    )


def _quantized_lstm() -> Iterator[Node]:
    size, hidden = 5, 4
    for direction, kinds, channels in (
        ("forward", np.int8, ()),
        ("reverse", np.uint8, (4 * hidden,)),
        ("bidirectional", np.int8, ()),
    ):
        count = 2 if direction == "bidirectional" else 1
        weights = [narrow_weights(kinds, count, n, 4 * hidden) for n in (size, hidden)]
        scales = [np.abs(floats(count, *channels)) / 200 + np.float32(0.002) for _ in weights]
        zeros = [np.full((count, *channels), 3 if kinds is np.int8 else 125, kinds) for _ in weights]
        given = [floats(6, 2, size), *weights, floats(count, 8 * hidden), None, None, None, None]
        given += [scales[0], zeros[0], scales[1], zeros[1]]
        attributes = {"hidden_size": hidden, "direction": direction}
        yield Node("DynamicQuantizeLSTM", given, attributes, 3, constants=(1, 2, 8, 9, 10, 11), atol=2e-3)


def _few_bits() -> Iterator[Node]:
    for bits, size, has_zeros in ((4, 16, False), (4, 32, True), (8, 16, True)):
        n, k = 5, 40
        blocks = -(-k // size)
        packed = integers(np.uint8, n, blocks, size * bits // 8)
        scales = np.abs(floats(n * blocks)) + 0.1
        zeros = [integers(np.uint8, n * -(-blocks * bits // 8))] if has_zeros else []
        attributes = {"K": k, "N": n, "bits": bits, "block_size": size}
        yield Node("MatMulNBits", [floats(2, 3, k), packed, scales, *zeros], attributes, constants=(1, 2, 3))
        if not has_zeros:
            order = RANDOM.permutation(np.arange(k) // size).astype(np.int32)
            ordered = [floats(2, 3, k), packed, scales, None, order]
            yield Node("MatMulNBits", ordered, attributes, constants=(1, 2, 4))
