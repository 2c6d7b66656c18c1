"""RLX on XLA against `jax.jit` of the same function, in one process on one core, one thread, alternating."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.bench_common import Figure, in_turns, median_ms, median_ratio, worker

LIMIT = 1.05
_SECONDS_PER_TURN = 0.1
_TOLERANCE = 1e-3
_LAYERS = 12


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: The function and its sizes.
        arrays: The arrays of the inputs.
        rlx: The function of RLX: of a graph and its inputs.
        jax: The function of JAX: of the package and its arrays.
    """

    name: str
    arrays: Callable[[], Sequence[np.ndarray]]
    rlx: Callable[..., Any]
    jax: Callable[..., Any]


def _f32(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    rng = np.random.default_rng(0)
    return lambda: [rng.standard_normal(shape, np.float32) for shape in shapes]


def _bf16(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    import ml_dtypes

    return lambda: [array.astype(ml_dtypes.bfloat16) for array in _f32(*shapes)()]


def _i8(*shapes: tuple[int, ...]) -> Callable[[], Sequence[np.ndarray]]:
    rng = np.random.default_rng(0)
    return lambda: [rng.integers(-128, 128, shape, np.int8) for shape in shapes]


def _rows_and_indices(rows: int, width: int, count: int) -> Callable[[], Sequence[np.ndarray]]:
    rng = np.random.default_rng(0)
    return lambda: [*_f32((rows, width))(), rng.integers(0, rows, count, np.int32)]


def _scattered(rows: int, width: int, count: int) -> Callable[[], Sequence[np.ndarray]]:
    def arrays() -> Sequence[np.ndarray]:
        table, indices = _rows_and_indices(rows, width, count)()
        return [table, indices.reshape(count, 1), *_f32((count, width))()]

    return arrays


def _jax_conv(groups: int) -> Callable[..., Any]:
    def conv(jax: Any, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)], feature_group_count=groups)

    return conv


def _jax_layer_norm(jax: Any, x: Any, scale: Any, bias: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def _jax_attention(jax: Any, q: Any, k: Any, v: Any) -> Any:
    scores = jax.numpy.einsum("hqd,hkd->hqk", q, k) * 0.125
    return jax.numpy.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def _attention(g: Any, q: Any, k: Any, v: Any) -> Any:
    return g.softmax(q @ g.transpose(k, (0, 2, 1)) * 0.125) @ v


def _product(jax: Any, x: Any, y: Any) -> Any:
    return jax.numpy.matmul(x, y, preferred_element_type=jax.numpy.int32)


ROWS = (
    Row("x + y of 4", _f32((4,), (4,)), lambda g, x, y: x + y, lambda jax, x, y: x + y),
    Row("8 inputs of 4, added", _f32(*[(4,)] * 8), lambda g, *xs: sum(xs[1:], xs[0]), lambda jax, *xs: sum(xs)),
    Row("x + y of 1e6", _f32((1000000,), (1000000,)), lambda g, x, y: x + y, lambda jax, x, y: x + y),
    Row("topk 50 of 64×10000", _f32((64, 10000)), lambda g, x: g.topk(x, 50), lambda jax, x: jax.lax.top_k(x, 50)),
    Row("topk 5 of 1e6", _f32((1000000,)), lambda g, x: g.topk(x, 5), lambda jax, x: jax.lax.top_k(x, 5)),
    Row("cumsum 1e6", _f32((1000000,)), lambda g, x: g.cumsum(x, 0), lambda jax, x: jax.numpy.cumsum(x)),
    Row("cumsum 1000×1000, rows", _f32((1000, 1000)), lambda g, x: g.cumsum(x, 1), lambda jax, x: x.cumsum(1)),
    Row("cumsum 1000×1000, columns", _f32((1000, 1000)), lambda g, x: g.cumsum(x, 0), lambda jax, x: x.cumsum(0)),
    Row("cumprod 64×1000", _f32((64, 1000)), lambda g, x: g.cumprod(x, 1), lambda jax, x: x.cumprod(1)),
    Row("cummax 1000×1000", _f32((1000, 1000)), lambda g, x: g.cummax(x, 1), lambda jax, x: jax.lax.cummax(x, 1)),
    Row(
        "depthwise conv 3×3, 1×64×56×56",
        _f32((1, 64, 56, 56), (64, 1, 3, 3)),
        lambda g, x, w: g.conv(x, w, padding=1, groups=64),
        _jax_conv(64),
    ),
    Row(
        "grouped conv 3×3, 1×64×56×56, 8 groups",
        _f32((1, 64, 56, 56), (64, 8, 3, 3)),
        lambda g, x, w: g.conv(x, w, padding=1, groups=8),
        _jax_conv(8),
    ),
    Row(
        "conv 3×3, 1×64×56×56",
        _f32((1, 64, 56, 56), (64, 64, 3, 3)),
        lambda g, x, w: g.conv(x, w, padding=1),
        _jax_conv(1),
    ),
    Row(
        "i8 product 512³ in i32",
        _i8((512, 512), (512, 512)),
        lambda g, x, y: g.q_matmul(x, y, dtype="i32"),
        _product,
    ),
    Row(
        "q_matmul 512³, to i8",
        _i8((512, 512), (512, 512)),
        lambda g, x, y: g.q_matmul(x, y, multiplier=np.float32(1e-4), x_zero_point=3),
        lambda jax, x, y: jax.numpy.clip(
            jax.numpy.rint(
                _product(jax, x.astype(np.int32) - 3, y.astype(np.int32)).astype(np.float32) * np.float32(1e-4)
            ),
            -128,
            127,
        ).astype(np.int8),
    ),
    Row("bf16 matvec 4096²", _bf16((4096, 4096), (4096, 1)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("bf16 product 512³", _bf16((512, 512), (512, 512)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("f32 matvec 4096²", _f32((4096, 4096), (4096, 1)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("f32 product 512³", _f32((512, 512), (512, 512)), lambda g, x, y: x @ y, lambda jax, x, y: x @ y),
    Row("sort 1e6", _f32((1000000,)), lambda g, x: g.sort(x), lambda jax, x: jax.numpy.sort(x)),
    Row("sort 64×10000", _f32((64, 10000)), lambda g, x: g.sort(x), lambda jax, x: jax.numpy.sort(x)),
    Row("argsort 64×10000", _f32((64, 10000)), lambda g, x: g.argsort(x), lambda jax, x: jax.numpy.argsort(x)),
    Row("argmax 64×10000", _f32((64, 10000)), lambda g, x: g.argmax(x, axis=-1), lambda jax, x: x.argmax(-1)),
    Row("xᵀ + x, 2000²", _f32((2000, 2000)), lambda g, x: g.transpose(x) + x, lambda jax, x: x.T + x),
    Row(
        "gather of 1e5 rows of 64",
        _rows_and_indices(10000, 64, 100000),
        lambda g, x, i: g.gather(x, i),
        lambda jax, x, i: x[i],
    ),
    Row(
        "scatter-add of 1e4 rows of 64",
        _scattered(10000, 64, 10000),
        lambda g, x, i, y: g.scatter_nd(x, i, y, "add"),
        lambda jax, x, i, y: x.at[i[:, 0]].add(y),
    ),
    Row("sum over axis 0, 1000²", _f32((1000, 1000)), lambda g, x: g.sum(x, 0), lambda jax, x: x.sum(0)),
    Row("sum over axis 1, 1000²", _f32((1000, 1000)), lambda g, x: g.sum(x, 1), lambda jax, x: x.sum(1)),
    Row("softmax 256×1000", _f32((256, 1000)), lambda g, x: g.softmax(x), lambda jax, x: jax.nn.softmax(x)),
    Row(
        "layer norm 256×1024",
        _f32((256, 1024), (1024,), (1024,)),
        lambda g, x, scale, bias: g.layer_norm(x, scale, bias),
        _jax_layer_norm,
    ),
    Row("gelu 1e6", _f32((1000000,)), lambda g, x: g.gelu(x), lambda jax, x: jax.nn.gelu(x, approximate=False)),
    Row("attention 12×128×64", _f32(*[(12, 128, 64)] * 3), _attention, _jax_attention),
)


def measure(rounds: int) -> Iterator[Figure]:
    """Yield milliseconds of each function for both, from NumPy array to NumPy array, the ratio to JAX's, and compile times.

    Raises:
        ArithmeticError: The results differ.
    """
    with worker() as process:
        for number in range(len(ROWS)):
            yield from process.submit(_measured, number, rounds).result()
    with tempfile.TemporaryDirectory(prefix="rlx-bench-") as folder:
        for name in ("without an entry in the cache", "with an entry in the cache"):
            with worker() as process:
                seconds = process.submit(_first_result, folder).result()
            yield Figure(f"compile and run {_LAYERS} layers in a new process, {name}", seconds, "s")


def _measured(number: int, rounds: int) -> list[Figure]:
    row = ROWS[number]
    arrays = row.arrays()
    calls = [_rlx(row, arrays), _jax(row, arrays)]
    for ours, theirs in zip(calls[0](), calls[1](), strict=True):
        error = np.max(np.abs(ours.astype(np.float64) - theirs) / np.maximum(np.abs(theirs.astype(np.float64)), 1))
        if ours.shape != theirs.shape or not error < (_TOLERANCE if ours.dtype.itemsize == 4 else 1e-2):
            raise ArithmeticError(f"{row.name}: rlx and jax differ by {error:.2g}")
    ours, theirs = in_turns(calls, _SECONDS_PER_TURN, rounds)
    return [
        Figure(f"{row.name}: rlx", median_ms(ours), "ms"),
        Figure(f"{row.name}: jax", median_ms(theirs), "ms"),
        Figure(f"{row.name}: to jax's", median_ratio(ours, theirs), "x", LIMIT),
    ]


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _rlx(row: Row, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    import rlx

    g = rlx.Graph("row")
    inputs = [g.input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
    g.set_outputs(_several(row.rlx(g, *inputs)))
    program = rlx.Session("xla", threads=1).compile(g)
    values = {f"x{i}": array for i, array in enumerate(arrays)}
    return lambda: program.run(values)


def _jax(row: Row, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    import jax

    compiled = jax.jit(lambda *xs: row.jax(jax, *xs))
    return lambda: [np.asarray(y) for y in _several(compiled(*arrays))]


def _first_result(folder: str) -> float:
    """The processor time to compile and run layers of width 128 with a cache in a folder, without that of imports."""
    import rlx
    from rlx.targets.xla import client

    client.client()
    g = rlx.Graph("layers")
    x = g.input("x", (8, 128))
    for i in range(_LAYERS):
        x = g.layer_norm(g.gelu(x @ g.param(f"w{i}", (128, 128))))
    g.set_outputs([x])
    weights = {a.name: np.eye(128, dtype=np.float32) for a in g.arguments if a.kind == "param"}
    started = time.process_time()
    program = rlx.Session("xla", threads=1).compile(g, params=weights, cache=folder)
    program.run({"x": np.ones((8, 128), np.float32)})
    return time.process_time() - started
