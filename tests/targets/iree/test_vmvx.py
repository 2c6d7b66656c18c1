"""Narrow integers on vmvx, whose registers have 32 bits: ops that read undefined upper bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.drawing import drawn

_INTEGERS = [kind for kind in DTYPES if kind.is_integer and kind.name != "u64"]


def _values(kind: DType) -> np.ndarray:
    """Extreme and intermediate numbers, without 0."""
    wanted = {*(kind.max - n for n in range(3)), *(kind.min + n for n in range(3)), 1, 3, 5, 100, 127, 200, -7, -100}
    inside = sorted(n for n in wanted if n and kind.min <= n <= kind.max)
    return np.resize(np.array(inside, np.int64 if kind.is_signed else np.uint64).astype(kind.numpy), 12)


def _ops(g: Any, t: Any, y: Any) -> dict[str, Any]:
    """Ops on a tensor that was just computed. They are fused with the op that computes it."""
    three = g.full_like(y, 1 if y.dtype.bits < 4 else 3)
    return {
        **{f"as {name}": g.cast(t, name) for name in ("f32", "i64", "i16", "u8", "bool")},
        **{"less": t < y, "least": g.ge(t, y), "equal": g.eq(t, three), "shifted": g.right_shift(t, three)},
        **{"logical": g.shift_right_logical(t, three), "divided": g.floor_divide(t, y), "rest": g.fmod(t, three)},
        **{"maximum": g.maximum(t, y), "minimum": g.minimum(t, y), "abs": g.abs(t), "sign": g.sign(t)},
        **{"max": g.max(t), "argmin": g.argmin(t), "sorted": g.sort(t), "bits": g.popcount(t)},
        "taken": g.gather(y, g.clip(t, 0, 1)),
    }


@drawn("kind", _INTEGERS, of_each=2, ids=str)
def test_upper_bits_are_not_read(kind: DType) -> None:
    values = _values(kind)
    arrays = {"x": values, "y": values[::-1].copy()}
    g: Any = rlx.Graph("main")
    x, y = (g.input(name, array.shape, kind) for name, array in arrays.items())
    results = _ops(g, x, y)
    for name in ("product", "sum", "shift"):
        # Each op has a separate product, because results that several ops read are not fused with them.
        for i, of in enumerate(_ops(g, x, y)):
            moved = x + i % 2
            t = {"product": moved * y, "sum": moved + y, "shift": g.left_shift(moved, g.full_like(x, 1))}[name]
            results[f"{of} of a {name}"] = _ops(g, t, y)[of]
    g.set_outputs(results)
    found = rlx.Session("vmvx").compile(g).run(arrays)
    for name, got, wanted in zip(results, found, rlx.evaluate(g, arrays), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted, err_msg=name)


def test_floats_become_integers_toward_zero() -> None:
    numbers = np.array([0.5, -0.5, 1.75, -1.75, 2.5, -3.5, 127.9, -128.9, 300, -300, 1e9, -1e9, 0, -0.0], np.float32)
    kinds = [kind for kind in DTYPES if kind.is_integer and kind.name != "u64"]
    g: Any = rlx.Graph("main")
    x = g.input("x", numbers.shape)
    g.set_outputs([g.cast(x, kind) for kind in kinds])
    found = rlx.Session("vmvx").compile(g).run({"x": numbers})
    for kind, got, wanted in zip(kinds, found, rlx.evaluate(g, {"x": numbers}), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted, err_msg=kind.name)
