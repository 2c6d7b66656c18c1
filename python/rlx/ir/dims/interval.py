"""Interval arithmetic over integers, for the bounds of symbolic dimensions.

An interval is a (least, greatest) pair. An end may be infinite. Finite ends are exact integers.
"""

from __future__ import annotations

import math

Interval = tuple[float, float]

NON_NEGATIVE: Interval = (0, math.inf)
ALL: Interval = (-math.inf, math.inf)


def add(a: Interval, b: Interval) -> Interval:
    """Bounds of ``x + y``."""
    return _sum(a[0], b[0]), _sum(a[1], b[1])


def _sum(x: float, y: float) -> float:
    return x if math.inf in (x, -x) else y if math.inf in (y, -y) else x + y


def multiply(a: Interval, b: Interval) -> Interval:
    """Bounds of ``x * y``."""
    ends = [_product(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _product(x: float, y: float) -> float:
    if not x or not y:
        return 0  # an end of 0 is exact: 0 * inf is 0
    if math.inf in (
        x,
        -x,
        y,
        -y,
    ):  # do not multiply: the other number may be an integer that is too large for a float
        return math.inf if (x > 0) == (y > 0) else -math.inf
    return x * y


def floordiv(a: Interval, b: Interval) -> Interval:
    """Bounds of ``x // y`` for non-zero `y`."""
    if b[0] < 0:
        return ALL
    ends = [_quotient(x, max(y, 1)) for x in a for y in b]
    return min(ends), max(ends)


def _quotient(x: float, y: float) -> float:
    if math.inf in (x, -x):
        return x
    return (0 if x >= 0 else -1) if y == math.inf else x // y


def mod(a: Interval, b: Interval) -> Interval:
    """Bounds of ``x % y`` for non-zero `y`."""
    if b[0] < 0:
        return ALL
    largest = max(b[1], 1) - 1
    return 0, min(largest, a[1]) if a[0] >= 0 else largest
