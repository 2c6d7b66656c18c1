"""log Γ and digamma in 50 digits, and the tables for their values below 0.

Between -n - 1/2 and -n + 1/2 write x = δ - n. There log |Γ(x)| is -log |δ| plus a smooth function of δ, and digamma is
-1/δ plus a smooth function. Near a root these terms cancel. The tables therefore store for each interval a root r and
the divided difference of the smooth part, (s(δ) - s(r))/(δ - r), as a polynomial. The result is then a multiple of δ -
r, without a sum that cancels. The tables are computed from the definitions, in Python's decimal numbers, when they are
first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, wraps
from typing import TypeVar

from rlx.functions.elementwise.pairs import two_floats

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_START = 40  # from this argument on, twenty terms of the asymptotic series give 40 digits
Rows = list[list[float]]
R = TypeVar("R")


def precise(function: Callable[..., R]) -> Callable[..., R]:
    """Return the function, computed in 50 digits in any decimal context of the caller."""

    @wraps(function)
    def inside(*args: object) -> R:
        with localcontext() as context:
            context.prec = 50
            return function(*args)

    return inside


@cache
def bernoulli(count: int) -> tuple[Fraction, ...]:
    """Return the Bernoulli numbers B2, B4 … B(2·count), by their recurrence."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(m + 1, k) * numbers[k] for k in range(m)), Fraction(0)) / (m + 1))
    return tuple(numbers[2::2])


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


@cache
def log_gamma(z: Decimal) -> Decimal:
    """Return log Γ(z) for z > 0: by the recurrence up to 40, and Stirling's series."""
    product = Decimal(1)
    while z < _START:
        product, z = product * z, z + 1
    series = sum(_decimal(n / (2 * k * (2 * k - 1))) / z ** (2 * k - 1) for k, n in enumerate(bernoulli(20), 1))
    return (z - Decimal("0.5")) * z.ln() - z + (2 * _PI).ln() / 2 + series - product.ln()


@cache
def psi(z: Decimal) -> Decimal:
    """Return digamma(z) for z > 0: by the recurrence up to 40, and the asymptotic series."""
    steps = Decimal(0)
    while z < _START:
        steps, z = steps + 1 / z, z + 1
    return (
        z.ln() - 1 / (2 * z) - sum(_decimal(n / (2 * k)) / z ** (2 * k) for k, n in enumerate(bernoulli(20), 1)) - steps
    )


def interpolated(function: Callable[[Decimal], Decimal], low: float, high: float, count: int) -> list[Decimal]:
    """Return a function between two limits as a polynomial in the relative position from -1 to 1, the constant first.

    It agrees with the function at the Chebyshev points (Newton's divided differences, multiplied out).
    """
    nodes = [Decimal(math.cos(math.pi * (k + 0.5) / count)) for k in range(count)]
    centre, half = (Decimal(high) + Decimal(low)) / 2, (Decimal(high) - Decimal(low)) / 2
    differences = [function(centre + half * node) for node in nodes]
    for order in range(1, count):
        for k in range(count - 1, order - 1, -1):
            differences[k] = (differences[k] - differences[k - 1]) / (nodes[k] - nodes[k - order])
    powers: list[Decimal] = []
    for difference, node in zip(reversed(differences), reversed(nodes), strict=True):
        shifted = [Decimal(0), *powers]
        powers = [a - node * b for a, b in zip(shifted, [*powers, Decimal(0)], strict=True)]
        powers[0] += difference
    return powers


def _root(function: Callable[[Decimal], Decimal], start: float) -> Decimal:
    """Return a root near `start`, by the secant method."""
    before, here = Decimal(start) * Decimal("1.001"), Decimal(start)
    at_before, at_here = function(before), function(here)
    while at_here != at_before and abs(here - before) > abs(here) * Decimal("1e-44"):
        before, here = here, here - at_here * (here - before) / (at_here - at_before)
        at_before, at_here = at_here, function(here)
    return here


def _difference(smooth: Callable[[Decimal], Decimal], root: Decimal) -> Callable[[Decimal], Decimal]:
    at_root = smooth(root)
    return lambda d: (smooth(d) - at_root) / (d - root)


@cache
@precise
def log_gamma_rows(count: int, degree: int) -> Rows:
    """Return two rows for each n from 1 to `count`: for δ from -1/2 to 0, and from 0 to 1/2.

    A row is the root r in two floats, log |Γ| at r, the constant of the polynomial minus 1/r, and the polynomial in
    4|δ| - 1. Where log |Γ| has no root on that side of -n, r is the end, ±1/2. Two additional rows for n = 3 have r =
    0.33 and 0.43, near the only local minimum that is nearly 0, -0.12.
    """
    half = Decimal("0.5")
    rows = [_log_gamma_row(n, end, degree) for n in range(1, count + 1) for end in (-half, half)]
    return rows + [_log_gamma_row(3, half, degree, Decimal(root)) for root in ("0.33", "0.43")]


def _log_gamma_row(n: int, end: Decimal, degree: int, root: Decimal | None = None) -> list[float]:
    def smooth(d: Decimal) -> Decimal:
        return log_gamma(1 + d) + log_gamma(1 - d) - log_gamma(n + 1 - d)

    def whole(d: Decimal) -> Decimal:
        return smooth(d) - abs(d).ln()

    value = whole(root or end)
    if root is None and value < 0:
        start = float(end)
        for _ in range(12):  # the iteration δ = ±exp(s(δ)) converges to the root from any start
            start = math.copysign(min(math.exp(float(smooth(Decimal(start)))), 0.5), start)
        root, value = _root(whole, start), Decimal(0)
    root = end if root is None else root
    low, high = sorted((0.0, float(end)))
    series = interpolated(_difference(smooth, root), low, high, degree)
    turned = [c if end > 0 or k % 2 == 0 else -c for k, c in enumerate(series)]
    return [*two_floats(root), float(value), float(turned[0] - 1 / root), *map(float, turned)]


@cache
@precise
def digamma_rows(count: int, degree: int) -> Rows:
    """Return a row per n from 1 to `count`, for δ from 0 to 1: the root in two floats, and the polynomial in 2δ - 1.

    The smooth part excludes -1/δ and -1/(δ - 1).
    """
    rows: Rows = []
    for n in range(1, count + 1):

        def smooth(d: Decimal, n: int = n) -> Decimal:
            return psi(n + 1 - d) - psi(2 - d) + psi(1 + d)

        def whole(d: Decimal, smooth: Callable[[Decimal], Decimal] = smooth) -> Decimal:
            return smooth(d) - 1 / d - 1 / (d - 1)

        root = _root(whole, math.atan2(math.pi, math.log(n + 0.5)) / math.pi)
        series = interpolated(_difference(smooth, root), 0.0, 1.0, degree)
        rows.append([*two_floats(root), *map(float, series)])
    return rows


@cache
@precise
def cotangent_rows(count: int, degree: int) -> Rows:
    """Return `1/δ - π·cot(πδ)` from k/(2·count) to the next: polynomials in the position, each coefficient in two floats."""

    def smooth(d: Decimal) -> Decimal:
        return psi(1 + d) - psi(1 - d)

    rows: Rows = []
    for k in range(count):
        series = interpolated(smooth, k / (2 * count), (k + 1) / (2 * count), degree)
        rows.append([number for c in series for number in two_floats(c)])
    return rows


@cache
@precise
def logarithm_rows(count: int) -> Rows:
    """Return log(1 + (k + 1/2)/count) in two floats."""
    return [[*two_floats((1 + (k + Decimal("0.5")) / count).ln())] for k in range(count)]


@cache
@precise
def log_of_2() -> tuple[float, float]:
    """Return log 2 in two floats."""
    return two_floats(Decimal(2).ln())
