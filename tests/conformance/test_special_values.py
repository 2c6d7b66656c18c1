"""Signs of zeros, infinities and NaN in arithmetic with numbers, which simplifiers and compilers may drop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate
from tests.drawing import drawn

_VALUES = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 3e38, 1e-30], np.float32)
_EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + 0": lambda g, x: x + 0,
    "0 + x": lambda g, x: 0 + x,
    "x + (-0)": lambda g, x: x + -0.0,
    "x - 0": lambda g, x: x - 0,
    "x - (-0)": lambda g, x: x - -0.0,
    "0 - x": lambda g, x: 0 - x,
    "-0 - x": lambda g, x: -0.0 - x,
    "x + zeros": lambda g, x: x + g.expand(g.constant(0.0, dtype=x.dtype), x.shape),
    "x * 1": lambda g, x: x * 1,
    "x / 1": lambda g, x: x / 1,
    "x * 0": lambda g, x: x * 0,
    "x * -1": lambda g, x: x * -1,
    "x / -1": lambda g, x: x / -1,
    "0 / x": lambda g, x: 0 / x,
    "x - x": lambda g, x: x - x,
    "x / x": lambda g, x: x / x,
    "x + -x": lambda g, x: x + (-x),
    "-(0 - x)": lambda g, x: -(0 - x),
    "-(x - 1)": lambda g, x: -(x - 1),
    "(x + 1) - 1": lambda g, x: (x + 1) - 1,
    "(x * 2) * 0.5": lambda g, x: (x * 2) * 0.5,
    "x * 0 + x": lambda g, x: x * 0 + x,
    "x ** 1": lambda g, x: x**1,
    "x ** 0": lambda g, x: x**0,
    "x ** 2": lambda g, x: x**2,
    "x ** 0.5": lambda g, x: x**0.5,
    "abs": lambda g, x: abs(x),
    "round": lambda g, x: g.round(x),
    "sqrt": lambda g, x: g.sqrt(x),
}


@drawn("way", ["simplify", "cpu", "xla"])
@pytest.mark.parametrize("kind", ["f32", "f16", "f64"])
def test_arithmetic_with_numbers(kind: str, way: str) -> None:
    with np.errstate(over="ignore"):
        values = _VALUES.astype(rlx.dtype(kind).numpy)
    g: Any = rlx.Graph()
    x = g.input("x", values.shape, kind)
    g.set_outputs([build(g, x) for build in _EXPRESSIONS.values()])
    expected = evaluate(g, {"x": values})
    if way == "simplify":
        found = evaluate(rlx.passes.run(g, "builtin.module(rlx-simplify,canonicalize,cse)"), {"x": values})
    else:
        found = rlx.Session(way).compile(g).run({"x": values})
    for name, a, b in zip(_EXPRESSIONS, found, expected, strict=True):
        near = np.isclose(a, b, rtol=np.finfo(a.dtype).eps, atol=0) | (a == b)
        same = (near & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
        assert same.all(), f"{name} at {values[~same]}: {a[~same]}, not {b[~same]}"


def test_evaluator_is_ieee() -> None:
    """The evaluator follows IEEE 754 and C for zeros."""
    g: Any = rlx.Graph()
    x = g.input("x", (2,))
    g.set_outputs([x + 0, x - 0, 0 - x, x * 0, x**0.5])
    results = evaluate(g, {"x": np.array([-0.0, -np.inf], np.float32)})
    assert [bool(np.signbit(r[0])) for r in results] == [False, True, False, True, False]
    assert results[4][1] == np.inf


@pytest.mark.parametrize("kind", ["i8", "i16", "i32", "i64", "u8", "u32"])
def test_integers_stay_integers(kind: str) -> None:
    values = np.array([0, 1, 5, -3, 100], np.int64).astype(rlx.dtype(kind).numpy)
    g: Any = rlx.Graph()
    x = g.input("x", values.shape, kind)
    g.set_outputs([abs(x), -x, g.round(x)])
    with np.errstate(over="ignore"):
        for got, wanted in zip(evaluate(g, {"x": values}), (np.abs(values), -values, values), strict=True):
            assert got.dtype == wanted.dtype and np.array_equal(got, wanted)


def test_booleans_stay_booleans() -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (2,), "bool")
    assert abs(x).dtype is rlx.bool_ and g.round(x).dtype is rlx.bool_
    for negate in (lambda: -x, lambda: g.neg(x)):
        with pytest.raises(rlx.ShapeError, match="logical not"):
            negate()
