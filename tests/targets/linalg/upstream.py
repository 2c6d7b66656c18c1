"""Running the result of `rlx-to-linalg` with MLIR alone: its own passes to LLVM, and its in-memory compiler.

As a script, this module runs all cases and writes their results. A failing compiler may end its process:

    python -m tests.targets.linalg.upstream RESULTS.npz
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.passes.pipeline import PassPipeline
from rlx.passes.runner import run_on_module
from rlx.targets.linalg import lower_module
from rlx.targets.linalg.llvm import TO_LLVM
from tests.conformance.functions import merged

Build = Callable[..., Any]
# Name, the function that builds the graph, and the inputs: arrays, with the declared sizes if they are symbolic.
CASES: dict[str, tuple[Build, dict[str, Any], dict[str, Sequence[int | str]]]] = {}
_RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    """Random f32."""
    return _RANDOM.standard_normal(shape).astype(np.float32)


def integers(most: int, *shape: int) -> np.ndarray:
    """Random i32."""
    return _RANDOM.integers(-most, most, shape).astype(np.int32)


def case(name: str, build: Build, dims: Mapping[str, Sequence[int | str]] | None = None, /, **arrays: Any) -> None:
    """Add a case."""
    CASES[name] = (build, {k: np.asarray(v) for k, v in arrays.items()}, dict(dims or {}))


def graph_of(name: str) -> Graph:
    """The graph of a case."""
    build, arrays, dims = CASES[name]
    graph: Any = Graph("main")
    inputs = [graph.input(k, dims.get(k, a.shape), str(a.dtype).replace("complex64", "c64")) for k, a in arrays.items()]
    outputs = build(graph, *inputs)
    graph.set_outputs(list(outputs) if isinstance(outputs, (list, tuple)) else [outputs])
    return graph


def legalise(module: Any) -> None:
    """Decompose the ops that are not lowered to linalg without IREE, in place."""
    run_on_module(module, "rlx-lower-blocks,rlx-decompose{for=rlx-to-linalg},canonicalize,cse")


def lowered(graphs: Sequence[Graph]) -> Any:
    """Lower graphs to the functions `f0`, `f1`, … of one linalg module."""
    module = merged(graphs)
    legalise(module)
    return lower_module(module)


class Program:
    """A compiled module of linalg."""

    def __init__(self, module: Any):
        PassPipeline.parse(TO_LLVM).run(module)
        with mlir.entered():
            self.engine = mlir.execution_engine(module)

    def call(self, name: str, arrays: Sequence[np.ndarray], results: Sequence[Shape]) -> list[np.ndarray]:
        """The results of a function. It may overwrite the arrays."""
        described = [_description(a) for a in arrays]
        room = np.zeros(sum(3 + 2 * r.rank for r in results), np.int64)
        addresses = [d.ctypes.data for d in (room, *described)]
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.raw_lookup(f"_mlir_ciface_{name}"))
        places = [ctypes.c_void_p(address) for address in addresses]
        packed = (ctypes.c_void_p * len(places))(*(ctypes.addressof(p) for p in places))
        function(ctypes.addressof(packed))
        returned, start = [], 0
        for result in results:
            words = room[start : start + 3 + 2 * result.rank]
            returned.append(_array(words, result))
            start += len(words)
        return returned


def _description(array: np.ndarray) -> np.ndarray:
    """MLIR's memref descriptor of an array: two addresses, an offset, sizes and strides."""
    strides = [s // array.itemsize for s in array.strides]
    return np.array([array.ctypes.data, array.ctypes.data, 0, *array.shape, *strides], np.int64)


def _array(words: np.ndarray, shape: Shape) -> np.ndarray:
    rank, dtype = shape.rank, shape.dtype.numpy
    sizes, strides = words[3 : 3 + rank], words[3 + rank :] * dtype.itemsize
    if not sizes.all():
        return np.zeros(sizes, dtype)
    extent = int(((sizes - 1) * strides).sum()) + dtype.itemsize
    memory: Any = (ctypes.c_byte * extent).from_address(int(words[1]) + int(words[2]) * dtype.itemsize)
    return np.ndarray(tuple(sizes), dtype, memory, strides=tuple(strides)).copy()


def run_apart(module: str, *arguments: str) -> None:
    """Run a module of these tests as a script in a separate process, because a failing compiler may end its process."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=root, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


# --- the cases ------------------------------------------------------------------------------------


def _scanned(g: Any, x: Any, w: Any) -> Any:
    carry, stack = g.scan(lambda c, row: (g.tanh(g.matmul(c, w) + row), c), g.expand(g.constant(0.0), (3, 4)), x)
    return [carry, stack]


def _looped(g: Any, x: Any) -> Any:
    return g.while_(lambda i, a: i < 5, lambda i, a: (i + 1, a * 0.5 + x), 0, x)


def _encoder_layer(g: Any, x: Any, *weights: Any) -> Any:
    """A layer of MiniLM with four heads."""
    wq, wk, wv, wo, up, down, bias, inner_bias, scale, shift = weights
    (batch, length, width), heads = x.shape.dims, 4

    def split(t: Any) -> Any:
        return g.transpose(g.reshape(t, (batch, length, heads, width // heads)), (0, 2, 1, 3))

    q, k, v = (split(g.matmul(x, w) + bias) for w in (wq, wk, wv))
    scores = g.softmax(g.matmul(q, g.transpose(k, (0, 1, 3, 2))) * (width // heads) ** -0.5, axis=-1)
    mixed = g.reshape(g.transpose(g.matmul(scores, v), (0, 2, 1, 3)), (batch, length, width))
    x = g.layer_norm(x + g.matmul(mixed, wo) + bias, scale, shift)
    hidden = g.gelu(g.matmul(x, up) + inner_bias)
    return g.layer_norm(x + g.matmul(hidden, down) + bias, scale, shift)


_WEIGHTS: dict[str, Any] = {name: floats(32, 32) * 0.2 for name in ("wq", "wk", "wv", "wo")}
_WEIGHTS |= {"up": floats(32, 64) * 0.2, "down": floats(64, 32) * 0.2, "bias": floats(32), "inner_bias": floats(64)}
_WEIGHTS |= {"scale": floats(32), "shift": floats(32)}

case("elementwise", lambda g, x, y: (g.tanh(x) * y + g.exp(x), g.where(x > y, x, 0.0)), x=floats(3, 4), y=floats(3, 4))
case("functions", lambda g, x: [getattr(g, f)(x) for f in ("sin", "gelu", "sigmoid", "tan", "atan")], x=floats(50))
case("f64", lambda g, x: (g.sin(x), g.tanh(x), g.gelu(x)), x=floats(50).astype(np.float64))
case("power", lambda g, x, y: g.abs(x) ** y, x=floats(20), y=floats(20))
case("matmul", lambda g, x, w: g.matmul(x, w), x=floats(2, 5, 7), w=floats(7, 6))
case("batched", lambda g, x, w: g.matmul(x, w), x=floats(2, 1, 5, 7), w=floats(3, 7, 6))
case("dot_general", lambda g, x, w: g.dot_general(x, w, (1,), (0,), (0,), (1,)), x=floats(3, 5, 7), w=floats(5, 3, 4))
case("conv", lambda g, x, w: g.conv(x, w, stride=2, padding=1), x=floats(2, 3, 9, 8), w=floats(4, 3, 3, 3))
case("conv_by_taps", lambda g, x, w: g.conv(x, w, padding=1, groups=4), x=floats(2, 4, 7, 7), w=floats(4, 1, 3, 3))
case("pool", lambda g, x: (g.max_pool(x, (2, 2)), g.mean_pool(x, (3, 3))), x=floats(1, 2, 8, 8))
case("reduce", lambda g, x: (g.sum(x, (0, 2)), g.mean(x), g.max(x, 1), g.prod(x, 0)), x=floats(3, 4, 5))
case("softmax", lambda g, x: g.softmax(x, axis=1), x=floats(3, 9))
case(
    "gather", lambda g, t, i: (g.gather(t, i, axis=0), g.gather(t[:, ::2], i, axis=1)), t=floats(5, 6), i=integers(9, 4)
)
case(
    "scatter",
    lambda g, t, i, u: [g.scatter_nd(t, i, u, reduction=r) for r in ("set", "add", "mul", "max")],
    t=floats(5, 3),
    i=integers(7, 8, 1),
    u=floats(8, 3),
)
case("sort", lambda g, x: (g.sort(x, 1), g.argsort(x, 0)), x=floats(40, 70))
case("topk", lambda g, x: g.topk(x, 4), x=floats(3, 300))
case("argmax", lambda g, x: (g.argmax(x, 1), g.argmin(x, 0)), x=floats(5, 6))
case("cumulative", lambda g, x: (g.cumsum(x, 1), g.cumprod(x, 0), g.cummax(x, 1)), x=floats(3, 40))
case("pad", lambda g, x: g.pad(x, ((1, 2), (0, 3))), x=floats(3, 4))
case("concat", lambda g, x, y: g.concat([x, y, x], axis=1), x=floats(3, 4), y=floats(3, 2))
case("views", lambda g, x: (g.transpose(x, (2, 0, 1)), g.reshape(x, (6, 4)), g.reverse(x, (1,))), x=floats(2, 3, 4))
case("slices", lambda g, x: (x[1:, ::2], g.expand(x[0], (2, 6))), x=floats(5, 6))
case("while", _looped, x=floats(4))
case("scan", _scanned, x=floats(6, 3, 4), w=floats(4, 4))
case("long_scan", _scanned, x=floats(70, 3, 4) * 0.3, w=floats(4, 4) * 0.3)
case("if", lambda g, x: g.if_(g.sum(x) > 0.0, lambda a: g.exp(a), lambda a: a - 1.0, x), x=floats(5))
case(
    "complex",
    lambda g, x, y: (x * y, g.exp(x), x / y, g.real(g.matmul(x, y)), g.abs(y)),
    x=(floats(4, 4) + 1j * floats(4, 4)).astype(np.complex64),
    y=(floats(4, 4) + 1j * floats(4, 4)).astype(np.complex64),
)
case("random", lambda g, s: g.random_bits(s, shape=(10, 3)), s=np.array(7, np.int64))
case(
    "integers",
    lambda g, x, y: (x * y, x / 3, g.cast(x, "u8"), g.cast(x, "f32"), g.max(x, 0)),
    x=integers(99, 3, 4),
    y=integers(9, 3, 4),
)
case("half", lambda g, x, w: g.matmul(x, w), x=floats(3, 5).astype(np.float16), w=floats(5, 4).astype(np.float16))
case("encoder_layer", _encoder_layer, x=floats(2, 5, 32), **_WEIGHTS)
case("symbolic_layer", _encoder_layer, {"x": ("batch", "seq", 32)}, x=floats(2, 5, 32), **_WEIGHTS)
case(
    "symbolic",
    lambda g, x, i: (g.concat([x, x * 2.0], axis=0), g.cumsum(x, 0), g.gather(x, i, axis=0), g.sort(x, 0)),
    {"x": ("n", "m"), "i": ("k",)},
    x=floats(7, 5),
    i=integers(9, 4),
)
case("symbolic_scan", _scanned, {"x": ("steps", 3, 4)}, x=floats(6, 3, 4), w=floats(4, 4))


def main(path: str) -> None:
    graphs = {name: graph_of(name) for name in CASES}
    program = Program(lowered(list(graphs.values())))
    results = {}
    for i, (name, graph) in enumerate(graphs.items()):
        arrays = [np.array(a, order="C") for a in CASES[name][1].values()]
        for j, result in enumerate(program.call(f"f{i}", arrays, [o.shape for o in graph.outputs])):
            results[f"{name}.{j}"] = result
    np.savez(path, **results)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1])
