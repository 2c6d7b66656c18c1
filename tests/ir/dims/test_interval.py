from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from rlx.ir.dims import interval
from rlx.ir.dims.dim import DimExpr, parse
from rlx.ir.dims.interval import Interval

ENDS = range(-4, 5)
INTERVALS = [(low, high) for low in ENDS for high in ENDS if low <= high]

OPERATIONS: list[tuple[Callable[[Interval, Interval], Interval], Callable[[int, int], int]]] = [
    (interval.add, lambda x, y: x + y),
    (interval.multiply, lambda x, y: x * y),
    (interval.floordiv, lambda x, y: x // y),
    (interval.mod, lambda x, y: x % y),
]


@pytest.mark.parametrize(("bounds", "operation"), OPERATIONS)
def test_finite_intervals(bounds: Callable[[Interval, Interval], Interval], operation: Callable[[int, int], int]):
    divides = bounds in (interval.floordiv, interval.mod)
    for a, b in itertools.product(INTERVALS, INTERVALS):
        values = [operation(x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1) if y or not divides]
        low, high = bounds(a, b)
        assert not values or (low <= min(values) and max(values) <= high)
        if values and bounds is not interval.mod and (not divides or b[0] >= 0):
            assert (low, high) == (min(values), max(values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", (0, math.inf)),
        ("5-x", (-math.inf, 5)),
        ("x-y", (-math.inf, math.inf)),
        ("2*(x%4)+y%3+1", (1, 9)),
        ("(x%4)*(y%3)", (0, 6)),
        ("(x%4)*(y%3-1)", (-3, 6)),  # each term separately
        ("z//(x%(y%2))", (0, math.inf)),  # a divisor that is never valid
        ("(x%4)//y", (0, 3)),
        ("(x%4-5)//y", (-5, -1)),
        ("(x%4)//(y-1)", (-math.inf, math.inf)),
        ("(x%4)%y", (0, 3)),
        ("(x%4-2)%y", (0, math.inf)),
        ("x%(y-1)", (-math.inf, math.inf)),
        ("(x-5)//3", (-2, math.inf)),
        ("max(x, y, 3)", (3, math.inf)),
        ("min(x, y, 3)", (0, 3)),
        ("0*x+x*y", (0, math.inf)),
    ],
)
def test_bounds_of_dimensions(text: str, expected: Interval):
    d = parse(text)
    assert isinstance(d, DimExpr)
    assert d.bounds == expected
