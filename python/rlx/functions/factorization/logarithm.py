"""Divided differences of the logarithm, also at arguments that are equal or close."""

from __future__ import annotations

from rlx.ir.graph.builder import Builder, Tensor

# Relative distances below which the series are used, and their numbers of terms for f64.
_NEAR, _TERMS = 0.1, 9
_NEAR_SECOND, _TERMS_SECOND = 0.03, 12


def first_difference(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Return `(log(x) - log(y))/(x - y)`, and `1/x` where both are equal.

    It is `2/(x + y)·artanh(z)/z` for `z = (x - y)/(x + y)`.
    """
    gap, total = x - y, x + y
    z = gap / total
    square, is_near = z * z, b.abs(z) < _NEAR
    series = b.full_like(z, 1.0 / (2 * _TERMS + 1))
    for term in reversed(range(_TERMS)):
        series = series * square + 1.0 / (2 * term + 1)
    return b.where(is_near, 2.0 * series / total, (b.log(x) - b.log(y)) / b.where(is_near, 1.0, gap))


def second_difference(b: Builder, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Return the second divided difference of the logarithm, `-1/(2x²)` where all are equal.

    For close arguments it is the Taylor series about the middle m of the smallest and the largest:
    `m⁻²·sum (-1)^(k+1)/(k+2)·h_k`, where `h_k` is the complete homogeneous polynomial of the relative distances to m.
    """
    low = b.minimum(b.minimum(x, y), z)
    high = b.maximum(b.maximum(x, y), z)
    middle = b.maximum(b.minimum(x, y), b.minimum(b.maximum(x, y), z))
    m = 0.5 * (low + high)
    radius = 0.5 * (high - low) / m
    is_near = radius < _NEAR_SECOND
    u, v = b.where(is_near, radius, 0.0), b.where(is_near, (middle - m) / m, 0.0)
    of_one, of_two, of_three = (b.full_like(u, 1.0) for _ in range(3))
    series = -0.5 * of_three
    for k in range(1, _TERMS_SECOND):
        of_one = -u * of_one
        of_two = of_one + v * of_two
        of_three = of_two + u * of_three
        series = series + (-1.0) ** (k + 1) / (k + 2) * of_three
    apart = b.where(is_near, 1.0, low - high)
    quotient = (first_difference(b, low, middle) - first_difference(b, middle, high)) / apart
    return b.where(is_near, series / (m * m), quotient)
