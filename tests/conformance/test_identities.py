"""Identities that hold for real numbers but not for floats: simplifiers must not apply them to computed operands.

No operand is a constant or an argument. Each is computed, and `x` and `y` are equal without being the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import rlx
from tests.conformance.failures import Failures
from tests.drawing import drawn

Build = Callable[[Any, Any, Any], Any]

_COMMON: dict[str, Build] = {
    "x - x": lambda g, x, y: x - x,
    "x - y": lambda g, x, y: x - y,
    "x + -y": lambda g, x, y: x + -y,
    "-(x - y)": lambda g, x, y: -(x - y),
    "(x - y) * x": lambda g, x, y: (x - y) * x,
    "x == x": lambda g, x, y: x == x,
    "x != y": lambda g, x, y: x != y,
    "x <= x": lambda g, x, y: x <= x,
    "x < y": lambda g, x, y: x < y,
    "not (x < y)": lambda g, x, y: ~(x < y),
    "not (x >= y)": lambda g, x, y: ~(x >= y),
    "x + 1 > y": lambda g, x, y: x + 1 > y,
    "x - 1 < y": lambda g, x, y: x - 1 < y,
    "x + 1 < y + 2": lambda g, x, y: x + 1 < y + 2,
    "x * 2 == y * 2": lambda g, x, y: x * 2 == y * 2,
    "x * x >= 0": lambda g, x, y: x * x >= 0,
    "x * y >= 0": lambda g, x, y: x * y >= 0,
    "max(x, x)": lambda g, x, y: g.maximum(x, x),
    "min(x, y)": lambda g, x, y: g.minimum(x, y),
    "max(x, -y)": lambda g, x, y: g.maximum(x, -y),
    "max(min(x, 3), 3)": lambda g, x, y: g.maximum(g.minimum(x, 3), 3),
    "max(x, 0)": lambda g, x, y: g.maximum(x, 0),
    "min(x, 0)": lambda g, x, y: g.minimum(x, 0),
    "max(x * x, 0)": lambda g, x, y: g.maximum(x * x, 0),
    "x * 0": lambda g, x, y: x * 0,
    "x * (y - y)": lambda g, x, y: x * (y - y),
    "x + 0": lambda g, x, y: x + 0,
    "x - 0": lambda g, x, y: x - 0,
    "0 - x": lambda g, x, y: 0 - x,
    "0 - (0 - x)": lambda g, x, y: 0 - (0 - x),
    "-(-x)": lambda g, x, y: g.neg(-x),
    "x * 1": lambda g, x, y: x * 1,
    "x + (y - x)": lambda g, x, y: x + (y - x),
    "(x + y) - y": lambda g, x, y: (x + y) - y,
    "(x + 3) - 3": lambda g, x, y: (x + 3) - 3,
    "(x + 100) + 100": lambda g, x, y: (x + 100) + 100,
    "(x * 3) * 5": lambda g, x, y: (x * 3) * 5,
    "x * 3 + y * 5": lambda g, x, y: x * 3 + y * 5,
    "x * y + x * x": lambda g, x, y: x * y + x * x,
    "x + x + x": lambda g, x, y: x + x + x,
    "x ** 0": lambda g, x, y: x**0,
    "x ** 1": lambda g, x, y: x**1,
    "x ** 2": lambda g, x, y: x**2,
    "x ** 3": lambda g, x, y: x**3,
    "sign(x)": lambda g, x, y: g.sign(x),
    "sign(x) * abs(x)": lambda g, x, y: g.sign(x) * abs(x),
    "abs(x)": lambda g, x, y: abs(x),
    "abs(-x)": lambda g, x, y: abs(-x),
    "abs(abs(x))": lambda g, x, y: abs(abs(x)),
    "abs(x * x)": lambda g, x, y: abs(x * x),
    "abs(x * y)": lambda g, x, y: abs(x * y),
    "abs(x) * abs(y)": lambda g, x, y: abs(x) * abs(y),
    "abs(x) >= 0": lambda g, x, y: abs(x) >= 0,
    "abs(x) < 0": lambda g, x, y: abs(x) < 0,
    "where(x == x, x, 1)": lambda g, x, y: g.where(x == x, x, g.cast(x * 0 + 1, x.dtype)),
    "where(x > 0, x, 0)": lambda g, x, y: g.where(x > 0, x, y - y),
    "where(x < y, x, y)": lambda g, x, y: g.where(x < y, x, y),
    "where(x < 2, x, 2)": lambda g, x, y: g.where(x < 2, x, g.full_like(x, 2)),
    "where(2 < x, 2, x)": lambda g, x, y: g.where(g.full_like(x, 2) < x, g.full_like(x, 2), x),
    "where(x >= 0, x, -x)": lambda g, x, y: g.where(x >= 0, x, -x),
    "where(x > 0, x, 0 - x)": lambda g, x, y: g.where(x > 0, x, 0 - x),
    "where(x == 0, 0, x)": lambda g, x, y: g.where(x == 0, g.full_like(x, 0), x),
    "where(x == y, x, y)": lambda g, x, y: g.where(x == y, x, y),
    "where(x != y, x, y)": lambda g, x, y: g.where(x != y, x, y),
    "where(x == y * 0, x, 7)": lambda g, x, y: g.where(x == y * 0, x, g.full_like(x, 7)),
    "where(b, x, x)": lambda g, x, y: g.where(x > 1, x, x),
    "as i32": lambda g, x, y: g.cast(g.cast(x, "i32"), x.dtype),
    "as i8": lambda g, x, y: g.cast(g.cast(x, "i8"), x.dtype),
    "as u8": lambda g, x, y: g.cast(g.cast(x, "u8"), x.dtype),
    "as i64": lambda g, x, y: g.cast(g.cast(x, "i64"), x.dtype),
    "as f16": lambda g, x, y: g.cast(g.cast(x, "f16"), x.dtype),
    "as bf16": lambda g, x, y: g.cast(g.cast(x, "bf16"), x.dtype),
    "as f32": lambda g, x, y: g.cast(g.cast(x, "f32"), x.dtype),
    "as f64": lambda g, x, y: g.cast(g.cast(x, "f64"), x.dtype),
    "as f32, i64": lambda g, x, y: g.cast(g.cast(g.cast(x, "f32"), "i64"), x.dtype),
    "as f16, i32": lambda g, x, y: g.cast(g.cast(g.cast(x, "f16"), "i32"), x.dtype),
    "as bool": lambda g, x, y: g.cast(g.cast(x, "bool"), x.dtype),
    "x as f32 == y as f32": lambda g, x, y: g.cast(x, "f32") == g.cast(y, "f32"),
    "sum(x, y, -x)": lambda g, x, y: g.sum(g.stack([x, y, -x, -y]), 0),
    "max over x, y": lambda g, x, y: g.max(g.stack([x, y]), 0),
    "sum of one": lambda g, x, y: g.sum(g.reshape(x, (-1, 1)), 1),
    "sum of repeated": lambda g, x, y: g.sum(g.expand(g.reshape(x, (1, -1)), (5, x.shape[0])), 0),
    "clamp(x, 1, 1)": lambda g, x, y: g.clamp(x, 1, 1),
    "x // y": lambda g, x, y: g.floor_divide(x, y),
    "x % y": lambda g, x, y: x % y,
    "x % x": lambda g, x, y: x % x,
    "fmod(x, y)": lambda g, x, y: g.fmod(x, y),
    "x % 8": lambda g, x, y: x % 8,
    "fmod(x, 8)": lambda g, x, y: g.fmod(x, 8),
    "(x * x) % 8": lambda g, x, y: (x * x) % 8,
    "fmod(x * x, 8)": lambda g, x, y: g.fmod(x * x, 8),
    "fmod(abs(x), 8)": lambda g, x, y: g.fmod(abs(x), 8),
    "x // 8": lambda g, x, y: g.floor_divide(x, 8),
    "(x * x) // 8": lambda g, x, y: g.floor_divide(x * x, 8),
    "abs(x) // 8": lambda g, x, y: g.floor_divide(abs(x), 8),
    "(x * 6) // 6": lambda g, x, y: g.floor_divide(x * 6, 6),
    "(x // 3) * 3": lambda g, x, y: g.floor_divide(x, 3) * 3,
    "(x // 3) // 5": lambda g, x, y: g.floor_divide(g.floor_divide(x, 3), 5),
    "(x % 12) % 4": lambda g, x, y: (x % 12) % 4,
}
_SIGNED: dict[str, Build] = {
    "x * -1": lambda g, x, y: x * -1,
    "x // -1": lambda g, x, y: g.floor_divide(x, -1),
    "x % -1": lambda g, x, y: x % -1,
    "-x < 0": lambda g, x, y: -x < 0,
    "-x < -y": lambda g, x, y: -x < -y,
    "-x * -y": lambda g, x, y: -x * -y,
    "-x // 2": lambda g, x, y: g.floor_divide(-x, 2),
}
_INTEGERS: dict[str, Build] = {
    "x & x": lambda g, x, y: x & x,
    "x ^ y": lambda g, x, y: x ^ y,
    "x | y": lambda g, x, y: x | y,
    "~~x": lambda g, x, y: ~~x,
    "~x + 1": lambda g, x, y: ~x + 1,
    "x & ~y": lambda g, x, y: x & ~y,
    "(x << 3) >> 3": lambda g, x, y: (x << 3) >> 3,
    "(x >> 3) << 3": lambda g, x, y: (x >> 3) << 3,
    "x >> 31": lambda g, x, y: x >> 31,
    "x << 31": lambda g, x, y: x << 31,
}
_FLOATS: dict[str, Build] = {
    "x / x": lambda g, x, y: x / x,
    "x / y": lambda g, x, y: x / y,
    "x / -y": lambda g, x, y: x / -y,
    "0 / x": lambda g, x, y: 0 / x,
    "(x - y) / (x - y)": lambda g, x, y: (x - y) / (x - y),
    "(x - y) / x": lambda g, x, y: (x - y) / x,
    "x / 1": lambda g, x, y: x / 1,
    "1 / x": lambda g, x, y: 1 / x,
    "1 / (1 / x)": lambda g, x, y: 1 / (1 / x),
    "reciprocal(x)": lambda g, x, y: g.reciprocal(x),
    "x * reciprocal(y)": lambda g, x, y: x * g.reciprocal(y),
    "x / 3": lambda g, x, y: x / 3,
    "x / 0.037": lambda g, x, y: x / 0.037,
    "(x / 3) * 3": lambda g, x, y: (x / 3) * 3,
    "(x * 0.1) / 0.1": lambda g, x, y: (x * 0.1) / 0.1,
    "(x / 3) / 7": lambda g, x, y: (x / 3) / 7,
    "x / (y / x)": lambda g, x, y: x / (y / x),
    "(x / y) / x": lambda g, x, y: (x / y) / x,
    "x / 3 + y / 3": lambda g, x, y: x / 3 + y / 3,
    "(x * 300) * 300": lambda g, x, y: (x * 300) * 300,
    "(x * 60000) / 60000": lambda g, x, y: (x * 60000) / 60000,
    "x * x - y * y": lambda g, x, y: x * x - y * y,
    "x * 0.1 + y": lambda g, x, y: x * 0.1 + y,
    "x + (y + -0.0)": lambda g, x, y: x + (y + -0.0),
    "x - -0.0": lambda g, x, y: x - -0.0,
    "-0.0 - x": lambda g, x, y: -0.0 - x,
    "x * -0.0": lambda g, x, y: x * -0.0,
    "(x - y) + -0.0": lambda g, x, y: (x - y) + -0.0,
    "atan2(x, x)": lambda g, x, y: g.atan2(x, x),
    "atan2(x, y)": lambda g, x, y: g.atan2(x, y),
    "atan2(x - x, y - y)": lambda g, x, y: g.atan2(x - x, y - y),
    "atan2(e, e)": lambda g, x, y: (lambda e: g.atan2(e, e))(x - y),
    "atan2(-e, e)": lambda g, x, y: (lambda e: g.atan2(-e, e))(x - y),
    "atan2(e, -e)": lambda g, x, y: (lambda e: g.atan2(e, -e))(x - y),
    "atan2(x * 0, x * 0)": lambda g, x, y: g.atan2(x * 0, y * 0),
    "atan2(x * y, y * x)": lambda g, x, y: g.atan2(x * y, y * x),
    "atan2(x, -y)": lambda g, x, y: g.atan2(x, -y),
    "atan2(abs(x), x)": lambda g, x, y: g.atan2(abs(x), x),
    "atan2(x, 1)": lambda g, x, y: g.atan2(x, 1),
    "atan2(x, 0)": lambda g, x, y: g.atan2(x, 0),
    "hypot(x, y)": lambda g, x, y: g.hypot(x, y),
    "sqrt(x * x)": lambda g, x, y: g.sqrt(x * x),
    "sqrt(x * y)": lambda g, x, y: g.sqrt(x * y),
    "sqrt(x) * sqrt(y)": lambda g, x, y: g.sqrt(x) * g.sqrt(y),
    "sqrt(x) * sqrt(x)": lambda g, x, y: g.sqrt(x) * g.sqrt(x),
    "sqrt(x) ** 2": lambda g, x, y: g.sqrt(x) ** 2,
    "x / sqrt(x)": lambda g, x, y: x / g.sqrt(x),
    "1 / sqrt(x)": lambda g, x, y: 1 / g.sqrt(x),
    "x * rsqrt(x)": lambda g, x, y: x * g.rsqrt(x),
    "rsqrt(x) ** 2": lambda g, x, y: g.rsqrt(x) ** 2,
    "1 / rsqrt(x)": lambda g, x, y: 1 / g.rsqrt(x),
    "x ** 0.5": lambda g, x, y: x**0.5,
    "x ** -0.5": lambda g, x, y: x**-0.5,
    "x ** -1": lambda g, x, y: x**-1,
    "(x ** 2) ** 0.5": lambda g, x, y: (x**2) ** 0.5,
    "(x ** 0.5) ** 2": lambda g, x, y: (x**0.5) ** 2,
    "(x ** y) ** 2": lambda g, x, y: (x**y) ** 2,
    "x ** (y - y)": lambda g, x, y: x ** (y - y),
    "1 ** x": lambda g, x, y: g.pow(g.full_like(x, 1), x),
    "0 ** x": lambda g, x, y: g.pow(g.full_like(x, 0), x),
    "2 ** x": lambda g, x, y: g.pow(g.full_like(x, 2), x),
    "log(exp(x))": lambda g, x, y: g.log(g.exp(x)),
    "exp(log(x))": lambda g, x, y: g.exp(g.log(x)),
    "exp(x) * exp(y)": lambda g, x, y: g.exp(x) * g.exp(y),
    "exp(x) * exp(-y)": lambda g, x, y: g.exp(x) * g.exp(-y),
    "exp(x) / exp(y)": lambda g, x, y: g.exp(x) / g.exp(y),
    "1 / exp(x)": lambda g, x, y: 1 / g.exp(x),
    "x / exp(y)": lambda g, x, y: x / g.exp(y),
    "exp(x) ** 2": lambda g, x, y: g.exp(x) ** 2,
    "log(x ** 2)": lambda g, x, y: g.log(x**2),
    "log(x * y)": lambda g, x, y: g.log(x * y),
    "log(x ** y)": lambda g, x, y: g.log(x**y),
    "log(sqrt(x))": lambda g, x, y: g.log(g.sqrt(x)),
    "log(1 / x)": lambda g, x, y: g.log(1 / x),
    "log(1 + x)": lambda g, x, y: g.log(1 + x),
    "floor(x) == x": lambda g, x, y: g.floor(x) == y,
    "floor(ceil(x))": lambda g, x, y: g.floor(g.ceil(x)),
    "floor(x)": lambda g, x, y: g.floor(x),
    "round(x)": lambda g, x, y: g.round(x),
    "x - floor(y)": lambda g, x, y: x - g.floor(y),
    "-floor(-x)": lambda g, x, y: -g.floor(-x),
    "isnan(x)": lambda g, x, y: g.isnan(x),
    "isfinite(x - y)": lambda g, x, y: g.isfinite(x - y),
    "where(isnan(x), y, x)": lambda g, x, y: g.where(g.isnan(x), y, x),
    "where(x != x, 0, x)": lambda g, x, y: g.where(x != x, g.full_like(x, 0), x),
    "max(x, nan)": lambda g, x, y: g.maximum(x, y - y),
    "relu(-relu(x))": lambda g, x, y: g.relu(-g.relu(x)),
    "abs(exp(x))": lambda g, x, y: abs(g.exp(x)),
    "abs(sqrt(x))": lambda g, x, y: abs(g.sqrt(x)),
    "max(exp(x), 0)": lambda g, x, y: g.maximum(g.exp(x), 0),
    "cos(-x)": lambda g, x, y: g.cos(-x),
    "sin(-x)": lambda g, x, y: g.sin(-x),
    "tanh(-x)": lambda g, x, y: g.tanh(-x),
    "sin(x) / cos(x)": lambda g, x, y: g.sin(x) / g.cos(x),
}

# Sums of products, which LLVM contracts on XLA: a product and its addend are rounded once.
_CONTRACTED = ("x * x - y * y", "x * 0.1 + y")
# Rounded more than once, or within the documented bounds of these functions.
_ROUNDED = re.compile(r"\*\*|exp|log|tan|sin|cos|sqrt|hypot")
_ULPS = 4
# Either zero is correct: docs/conventions.md.
_EITHER_ZERO = re.compile(r"max|min|relu|clamp")
# Arguments at which exp is infinite or 0, by dtype.
_OUTSIDE_OF_EXP = {"f16": 20.0, "f64": 800.0}


def _table(dtype: Any) -> dict[str, Build]:
    signed = _SIGNED if dtype.is_signed else {}
    return _COMMON | signed | (_FLOATS if dtype.is_float else _INTEGERS)


def _values(dtype: Any) -> np.ndarray:
    """Return interval ends and ordinary numbers. None of them has a denormal as its inverse or exponential."""
    if dtype.is_integer:
        low, high = int(dtype.min), int(dtype.max)
        ends = [low, low + 1, low // 2, high, high - 1, high // 2, high // 2 + 1, high // 3]
        middle = [0, 1, 2, 3, 5, 7, 8, 11, 12, 16, 100, 127, 2**24 + 1]
        every = [*ends, *middle, *(-value for value in middle)]
        return np.array([(value - low) % (high - low + 1) + low for value in every]).astype(dtype.numpy)
    facts = ml_dtypes.finfo(dtype.numpy)
    smallest = float(facts.smallest_normal)
    large, outside = 2.0 ** (facts.maxexp // 2 + 2), _OUTSIDE_OF_EXP.get(dtype.name, 120.0)
    ordinary = (
        0.5,
        1.0,
        1 + float(facts.eps),
        2.5,
        3.0,
        7.0,
        8.0,
        11.1,
        0.75,
        3.7,
        127.6,
        129.0,
        2.0**24 + 1,
        3e9,
        3e10,
    )
    positive = np.array([0.0, *ordinary, outside, large, smallest * 64, smallest / 4, np.inf, np.nan])
    with np.errstate(over="ignore"):
        return np.concatenate([positive, -positive]).astype(dtype.numpy)


def _flushed(x: np.ndarray) -> np.ndarray:
    """Return the array with zeros in place of denormals, which compiled programs may treat as 0."""
    if x.dtype.kind in "iub":
        return x
    return np.where(np.abs(x) < ml_dtypes.finfo(x.dtype).smallest_normal, x * x.dtype.type(0), x)


def _same(name: str, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    if found.dtype.kind in "iub":
        return found == expected
    ulps = _ULPS * float(ml_dtypes.finfo(found.dtype).eps) if _ROUNDED.search(name) else 0.0
    a, b = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = (a == b) | (np.abs(a - b) <= ulps * np.abs(b)) & np.isfinite(a)
    signs = (np.signbit(a) == np.signbit(b)) | ((a == 0) & bool(_EITHER_ZERO.search(name)))
    return (near & signs) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("way", ["simplify", "xla", "cpu"])
@drawn("kind", ["f32", "f64", "f16", "bf16", "i32", "u32", "i8"])
def test_identities(kind: str, way: str) -> None:
    dtype = rlx.dtype(kind)
    values, table, failures = _values(dtype), _table(dtype), Failures()
    g: Any = rlx.Graph()
    a, b, one = (g.input(name, values.shape, dtype) for name in ("a", "b", "one"))
    x, y = a * one, b * one
    g.set_outputs([build(g, x, y) for build in table.values()])
    inputs = {"a": values, "b": values.copy(), "one": np.ones_like(values)}
    with np.errstate(all="ignore"):
        kept = rlx.evaluate(g, inputs)
        flushed = rlx.evaluate(g, inputs | dict.fromkeys("ab", _flushed(values)))
        if way == "simplify":
            found = rlx.evaluate(rlx.passes.run(g, "builtin.module(rlx-simplify,canonicalize,cse)"), inputs)
        else:
            found = rlx.Session(way).compile(g).run(inputs)
        for name, result, *expected in zip(table, found, kept, flushed, strict=True):
            if way == "xla" and name in _CONTRACTED:
                continue
            right = np.any([_same(name, result, f(e)) for e in expected for f in (lambda e: e, _flushed)], axis=0)
            shown = values[~right] if right.shape == values.shape else ""
            failures.expect(name, bool(right.all()), f"at {shown}: {result[~right]}, not {expected[0][~right]}")
    failures.check()
