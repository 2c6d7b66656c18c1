"""Random graphs of small ops, drawn by hypothesis, for properties of all graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import rlx

Make = Callable[[Any, Any, Any, int], Any]


def _same_shape(g: Any, a: Any, b: Any) -> bool:
    return a.shape.dims == b.shape.dims and a.dtype == b.dtype


def _add(g: Any, a: Any, b: Any, n: int) -> Any:
    if a.dtype != b.dtype or a.dtype.is_bool:
        return None
    if a.shape.dims == b.shape.dims:
        return (g.add, g.maximum, g.mul)[n % 3](a, b)
    if b.rank <= 1 and b.shape.dims == a.shape.dims[a.rank - b.rank :]:
        return g.sub(a, b)
    return None


def _activation(g: Any, a: Any, b: Any, n: int) -> Any:
    if a.dtype.is_float:
        return (g.tanh, g.relu, g.neg, g.sigmoid)[n % 4](a)
    return g.relu(a) if a.dtype.is_integer else None


def _cast(g: Any, a: Any, b: Any, n: int) -> Any:
    return g.cast(a, ("f32", "i32", "f16", "bool", "u8", "i8", "u32", "f64")[n % 8])


def _where(g: Any, a: Any, b: Any, n: int) -> Any:
    return g.where(g.lt(a, b), a, b) if _same_shape(g, a, b) and not a.dtype.is_bool else None


def _narrow(g: Any, a: Any, b: Any, n: int) -> Any:
    if not a.rank:
        return None
    axis = n % a.rank
    size = a.shape.dims[axis]
    start = (n // 4) % size
    return g.narrow(a, axis, start, 1 + (n // 16) % (size - start))


def _slice(g: Any, a: Any, b: Any, n: int) -> Any:
    if not a.rank:
        return None
    starts = [(n >> i) % 2 if d > 1 else 0 for i, d in enumerate(a.shape.dims)]
    return g.slice(a, starts, a.shape.dims, [1 + (n >> 4) % 2] * a.rank)


def _reshape(g: Any, a: Any, b: Any, n: int) -> Any:
    return g.reshape(a, ((-1,), (1, -1), (-1, 1), (1, *a.shape.dims))[n % 4]) if a.rank < 4 else g.reshape(a, (-1,))


def _reduce(g: Any, a: Any, b: Any, n: int) -> Any:
    return (g.sum, g.max)[n % 2](a, n % a.rank, keep_dims=n % 4 < 2) if a.rank and not a.dtype.is_bool else None


def _softmax(g: Any, a: Any, b: Any, n: int) -> Any:
    return g.softmax(a, axis=-1) if a.dtype.is_float and a.rank else None


def _matmul(g: Any, a: Any, b: Any, n: int) -> Any:
    fits = a.rank == 2 and b.rank == 2 and a.dtype == b.dtype and not a.dtype.is_bool
    return g.matmul(a, g.transpose(b)) if fits and a.shape.dims[1] == b.shape.dims[1] else None


def _expand(g: Any, a: Any, b: Any, n: int) -> Any:
    return g.expand(a, (1 + n % 2, *a.shape.dims)) if a.rank < 3 else None


def _concat(g: Any, a: Any, b: Any, n: int) -> Any:
    return g.concat([a, b], n % a.rank) if _same_shape(g, a, b) and a.rank else None


def _constant(g: Any, a: Any, b: Any, n: int) -> Any:
    scale = (1.0, 3e4, 1e9, 1e-9)[n % 4]
    return g.mul(a, scale) if a.dtype.name == "f32" else None


MAKERS: tuple[Make, ...] = (
    *(_add, _add, _activation, _cast, _where, _narrow, _slice, _reshape, _reduce, _softmax, _matmul, _expand),
    *(_concat, _constant, lambda g, a, b, n: g.transpose(a), lambda g, a, b, n: g.argmax(a, -1) if a.rank else None),
)
_MOST_ELEMENTS = 400

steps = st.lists(
    st.tuples(st.sampled_from(MAKERS), st.integers(0, 50), st.integers(0, 50), st.integers(0, 255)),
    min_size=1,
    max_size=24,
)


@st.composite
def graphs(draw: Any) -> Any:
    """Draw a small graph with inputs `x`, `y`, a parameter `w` and an integer input `i`."""
    g = rlx.Graph("random")
    values = [g.input("x", (4, 6)), g.param("w", (4, 6)), g.input("y", (6,)), g.input("i", (4, 6), "i32")]
    for make, first, second, number in draw(steps):
        a, b = values[-1 - first % len(values)], values[-1 - second % len(values)]
        made = make(g, a, b, number)
        if made is not None and np.prod(made.shape.static, dtype=int) <= _MOST_ELEMENTS:
            values.append(made)
    chosen = draw(st.lists(st.integers(0, 50), min_size=1, max_size=3))
    g.set_outputs([values[-1 - c % len(values)] for c in chosen])
    return g


def inputs() -> dict[str, np.ndarray]:
    """Return values for the arguments of these graphs."""
    rng = np.random.default_rng(7)
    return {
        "x": rng.standard_normal((4, 6)).astype(np.float32),
        "w": rng.standard_normal((4, 6)).astype(np.float32),
        "y": rng.standard_normal(6).astype(np.float32),
        "i": rng.integers(-3, 9, (4, 6)).astype(np.int32),
    }
