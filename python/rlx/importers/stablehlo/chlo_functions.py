"""CHLO functions without an RLX op: the upper half of a product, and a Bessel function."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rlx.importers.stablehlo.rules import imports
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph

# Up to this x, I1(x)·exp(-x) is a series in x. Above it, it is a series in 1/x, divided by the square root of x.
_NEAR = 8.0
_TERMS = 40
_POINTS = 2**14


@imports("chlo.mulhi")
def mulhi(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    bits = a.dtype.bits
    if bits > 32:
        return _upper_half(g, a, b)
    product = g.cast(a, "i64") * g.cast(b, "i64")
    return g.cast(g.binary("shift_right", product, g.full(a.shape.dims, bits, "i64")), a.dtype)


def _upper_half(g: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Return the upper half of a product of 64-bit integers, from products of halves (Warren, "Hacker's Delight", 8-2)."""
    kind, half = a.dtype, 32

    def low(x: Tensor) -> Tensor:
        return g.bitwise_and(x, 2**half - 1)

    def high(x: Tensor) -> Tensor:  # keeps the sign
        return g.binary("shift_right", x, half)

    crossed = high(a) * low(b) + g.shift_right_logical(low(a) * low(b), g.full((), half, kind))
    other = low(a) * high(b) + low(crossed)
    return high(a) * high(b) + high(crossed) + high(other)


@imports("chlo.bessel_i1e")
def bessel_i1e(g: Graph, x: Tensor) -> Tensor:
    """Return `exp(-|x|)·I1(x)`, computed in f64 to nearly full precision."""
    wide = g.cast(x, "f64")
    size = g.abs(wide)
    is_near = size <= _NEAR
    near, far = g.where(is_near, size, 1.0), g.where(is_near, _NEAR, size)
    below, above = _series()
    of_near = _chebyshev(g, below, near * (4 / _NEAR) - 2.0) * near / _levelling(near, g.sqrt)
    of_far = _chebyshev(g, above, 4 * _NEAR / far - 2.0) / g.sqrt(far)
    value = g.where(is_near, of_near, of_far)
    value = g.where(wide < 0, -value, value)
    return g.cast(g.where(g.isnan(wide), wide, g.where(g.isinf(wide), 0.0, value)), x.dtype)


def _chebyshev(g: Graph, coefficients: np.ndarray, double: Tensor) -> Tensor:
    """Evaluate a series of Chebyshev polynomials at half of `double`, by Clenshaw's rule."""
    last: Any = g.zeros(double.shape.dims, "f64")
    before: Any = last
    for coefficient in coefficients[:0:-1]:
        last, before = double * last - before + float(coefficient), last
    return double * last * 0.5 - before + float(coefficients[0])


@cache
def _series() -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients for `_levelling(x)·I1(x)·exp(-x)/x` below `_NEAR`, and for I1(x)·exp(-x)·√x above it."""
    nodes = np.cos(np.pi * (np.arange(_TERMS) + 0.5) / _TERMS)
    below, above = _NEAR * (nodes + 1) / 2, 2 * _NEAR / (nodes + 1)
    values = _scaled(below) / below * _levelling(below, np.sqrt), _scaled(above) * np.sqrt(above)
    transform = np.cos(np.pi * np.outer(np.arange(_TERMS), np.arange(_TERMS) + 0.5) / _TERMS) * 2 / _TERMS
    transform[0] /= 2
    return transform @ values[0], transform @ values[1]


def _levelling(x: Any, root: Any) -> Any:
    """Return the reciprocal of the approximate decay of I1(x)·exp(-x)/x.

    The product of both varies little, so its series is precise also where the function is small.
    """
    return (x + _NEAR / 2) * root(x + _NEAR / 2)


def _scaled(x: np.ndarray) -> np.ndarray:
    """Return I1(x)·exp(-x) as the mean of `exp(x·(cos t - 1))·cos t` over a period, accurate to nearly all digits."""
    angle = 2 * np.pi * np.arange(_POINTS) / _POINTS
    return np.mean(np.exp(-2 * x[:, None] * np.sin(angle / 2) ** 2) * np.cos(angle), axis=1)
