"""Small networks of every kind with an integer form, for its tests and those of back ends that run such graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import rlx

Arrays = dict[str, np.ndarray]


def _norm(g: rlx.Graph, x: Any, name: str) -> Any:
    scale, bias, mean, variance = (g.param(f"{name}.{part}", (x.shape.dims[1],)) for part in "sbmv")
    return g.batch_norm_inference(x, scale, bias, mean, variance)


def _convolution(g: rlx.Graph) -> Any:
    x = g.input("x", (1, 1, 12, 12))
    h = g.max_pool(g.relu(g.conv(x, g.param("c1", (4, 1, 3, 3))) + g.param("b1", (4, 1, 1))), 2)
    h = g.max_pool(g.relu(_norm(g, g.conv(h, g.param("c2", (6, 4, 3, 3)), padding=1), "norm")), 2)
    return g.reshape(h, (1, -1)) @ g.param("fc", (24, 5)) + g.param("b2", (5,))


def _residual(g: rlx.Graph) -> Any:
    x = g.input("x", (1, 6, 7, 7))
    h = g.relu(g.conv(x, g.param("w", (6, 6, 3, 3)), padding=1) + g.param("b", (6, 1, 1)))
    h = g.relu(g.conv(h, g.param("w2", (6, 6, 3, 3)), padding=1) + x)
    return g.mean(h, [2, 3])


def _depthwise(g: rlx.Graph) -> Any:
    x = g.input("x", (1, 4, 9, 8))
    h = g.relu(g.conv(x, g.param("w", (4, 1, 3, 3)), padding=1, stride=2, groups=4))
    h = g.clamp(g.conv(h, g.param("p", (6, 4, 1, 1))) + g.param("b", (6, 1, 1)), 0.0, 2.0)
    return g.mean_pool(h, 2, 1, 1, count_include_pad=False)


def _autoencoder(g: rlx.Graph) -> Any:
    h = g.input("x", (2, 16))
    for i, (width, function) in enumerate([(12, g.tanh), (4, g.sigmoid), (16, lambda v: v)]):
        h = function(h @ g.param(f"w{i}", (h.shape.dims[1], width)) + g.param(f"b{i}", (width,)))
    return h


def _classes(g: rlx.Graph) -> Any:
    scores = g.softmax(g.input("x", (3, 16)) @ g.param("w", (16, 7)), 1)
    return [scores, g.argmax(scores, 1)]


def _signal(g: rlx.Graph) -> Any:
    x = g.input("x", (1, 3, 20))
    return g.gelu(g.conv(x, g.param("w", (5, 3, 4)), stride=2, padding=[(2, 1)], dilation=2))


def _parts(g: rlx.Graph) -> Any:
    x, y = g.input("x", (1, 4, 6)), g.input("y", (1, 4, 6))
    turned = g.transpose(g.reshape(x, (1, 6, 4)), (0, 2, 1))
    return g.concat([x, y * 3.0, turned], 1) * x[:, :1]


def _attention(g: rlx.Graph) -> Any:
    x = g.input("x", (5, 8))
    q, k, v = (x @ g.param(name, (8, 8)) for name in "qkv")
    return g.softmax((q @ g.transpose(k)) * 0.3, 1) @ v


def _elements(g: rlx.Graph) -> Any:
    x = g.input("x", (2, 8))
    functions = [g.exp(x * 0.1), g.sqrt(g.abs(x)), g.silu(x), g.relu(x), -x, g.maximum(x, x * 0.1)]
    arithmetic = [x - 0.5, 1.0 - x, x / 4.0, x * np.linspace(-1, 2, 8, dtype=np.float32), g.clamp(x, -1.0, 1.0)]
    return [*functions, *arithmetic, g.sum(x, 1), g.max(x, 1), g.pad(x, [(0, 1), (1, 0)]), g.narrow(x, 1, 2, 3)]


def _embedding(g: rlx.Graph) -> Any:
    return g.embedding(g.param("table", (10, 8)), g.input("i", (3,), "i32")) @ g.param("w", (8, 4))


def _lstm(g: rlx.Graph) -> Any:
    x, h, c = g.input("x", (1, 4, 3)), g.input("h", (1, 5)), g.input("c", (1, 5))
    return list(g.lstm(x, h, c, g.param("wi", (3, 20)), g.param("wh", (5, 20)), g.param("b", (20,))))


def _gru(g: rlx.Graph) -> Any:
    x, h = g.input("x", (1, 4, 3)), g.input("h", (1, 5))
    return list(g.gru(x, h, g.param("wi", (3, 15)), g.param("wh", (5, 15)), g.param("bi", (15,)), g.param("bh", (15,))))


NETWORKS: dict[str, Callable[[rlx.Graph], Any]] = {
    "convolution": _convolution,
    "residual": _residual,
    "depthwise": _depthwise,
    "autoencoder": _autoencoder,
    "classes": _classes,
    "signal": _signal,
    "parts": _parts,
    "attention": _attention,
    "elements": _elements,
    "embedding": _embedding,
    "lstm": _lstm,
    "gru": _gru,
}


def network(name: str) -> rlx.Graph:
    """Return one of `NETWORKS`."""
    g = rlx.Graph(name)
    result = NETWORKS[name](g)
    g.set_outputs(result if isinstance(result, list) else [result])
    return g


def weights(graph: rlx.Graph, seed: int) -> Arrays:
    """Return values of the parameters. Variances are positive."""
    random = np.random.default_rng(seed)
    arrays = {a.name: random.standard_normal(a.shape.static, np.float32) * np.float32(0.4) for a in graph.params}
    return {name: np.abs(a) + np.float32(0.3) if name.endswith(".v") else a for name, a in arrays.items()}


def batches(graph: rlx.Graph, count: int, seed: int) -> list[Arrays]:
    """Return inputs: floats, and indices below 10."""
    random = np.random.default_rng(seed)

    def array(shape: rlx.Shape) -> np.ndarray:
        if shape.dtype.is_float:
            return random.standard_normal(shape.static, np.float32)
        return random.integers(0, 10, shape.static).astype(shape.dtype.numpy)

    return [{a.name: array(a.shape) for a in graph.inputs} for _ in range(count)]


def integer_network(name: str, seed: int = 0, **options: Any) -> rlx.Graph:
    """Return a network in its integer form, calibrated with some batches."""
    graph = network(name)
    params = weights(graph, seed)
    ranges = rlx.observe_ranges(graph, batches(graph, 12, seed + 1), params=params, device=None)
    return rlx.integer_only(graph, ranges, params=params, **options)


def integer_inputs(graph: rlx.Graph, given: Arrays) -> Arrays:
    """Return the network's inputs in the form that its integer form takes."""
    known = rlx.quantizations(graph)
    return {name: known[name].quantize(x) if name in known else x for name, x in given.items()}
