"""Polynomials for elementary functions, computed from their power series on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from rlx.numerics.arithmetic import Multiplication, V, polynomial

_Polynomial = list[Fraction]


def _log_of_ratio(r: Fraction) -> Fraction:
    """`log((1 + r)/(1 - r)) = 2·atanh(r)` for r <= 1/3, to more than 200 bits."""
    return 2 * sum((r ** (2 * n + 1) / (2 * n + 1) for n in range(70)), Fraction(0))


LN2 = _log_of_ratio(Fraction(1, 3))
# 10 = 2^3 · 5/4
LN10 = 3 * LN2 + _log_of_ratio(Fraction(1, 9))


def economise(
    term: Callable[[int], Fraction], count: int, interval: tuple[Fraction, Fraction], tolerance: float
) -> tuple[float, ...]:
    """Return a shorter polynomial than a partial sum of a power series, with the same precision on an interval.

    The leading term is reduced by the Chebyshev polynomial of its degree, and so on for lower terms, as long as the total
    change stays below the tolerance (C. Lanczos, "Trigonometric interpolation of empirical and analytical functions", 1938).

    Args:
        term: The coefficient of each power.
        count: The number of initial terms. The terms after these must be negligible.
        interval: The interval for the polynomial.
        tolerance: Greatest absolute error on the interval.

    Returns:
        Coefficients, the constant first.
    """
    coefficients = [term(n) for n in range(count)]
    basis = _chebyshev(count, interval)
    spent = Fraction(0)
    while len(coefficients) > 1:
        last = basis[len(coefficients) - 1]
        factor = coefficients[-1] / last[-1]
        spent += abs(factor)
        if spent > tolerance:
            break
        coefficients = [c - factor * t for c, t in zip(coefficients[:-1], last[:-1], strict=True)]
    return tuple(float(c) for c in coefficients)


@cache
def _chebyshev(count: int, interval: tuple[Fraction, Fraction]) -> list[_Polynomial]:
    """Return the first Chebyshev polynomials of an interval, by their recurrence."""
    low, high = interval
    slope, shift = 2 / (high - low), -(high + low) / (high - low)
    found: list[_Polynomial] = [[Fraction(1)], [shift, slope]]
    while len(found) < count:
        before, last = found[-2:]
        grown = [2 * shift * c for c in [*last, Fraction(0)]]
        for i, c in enumerate(last):
            grown[i + 1] += 2 * slope * c
        for i, c in enumerate(before):
            grown[i] -= c
        found.append(grown)
    return found


def horner(r: Multiplication[V], x: V, coefficients: Sequence[float]) -> V:
    """Return the polynomial with these coefficients, the constant first."""
    return polynomial(r, x, [r.like(x, c) for c in coefficients])
