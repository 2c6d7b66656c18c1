"""`lgamma` and `digamma` of negative f64 arguments, accurate to a few ulp also near their roots.

There are one or two roots between any two negative integers.
"""

from __future__ import annotations

from typing import Any

from rlx.functions.elementwise import gamma_exact as exact
from rlx.functions.elementwise.pairs import Pair, PairTable, pair_sum
from rlx.ir.dtype import f64, i64
from rlx.ir.graph.builder import Builder, Tensor

# Below -LOG_GAMMA_ROWS, no f64 is close to a root of log |Γ|: the roots are closer to an integer than any other f64.
LOG_GAMMA_ROWS = 30
_LOG_GAMMA_DEGREE = 24
_ATANH_TERMS = 10
# Intervals around the local minimum -0.12 of log |Γ|, which is nearly 0. They use the last rows of the table.
_FEW_DIGITS = ((-2.7, -2.64), (-2.64, -2.5))
_DIGAMMA_ROWS = 64
_DIGAMMA_DEGREE = 26
_COTANGENT_ROWS, _COTANGENT_DEGREE, _COTANGENT_PAIRS = 64, 12, 7
_LOGARITHM_BITS = 7


def log_gamma_below(b: Builder, x: Tensor) -> Tensor:
    """Return log |Γ(x)| for -LOG_GAMMA_ROWS - 1/2 < x < -1/2, not an integer."""
    n = b.stop_gradient(-b.round(x))
    d = x + n
    rows = exact.log_gamma_rows(LOG_GAMMA_ROWS, _LOG_GAMMA_DEGREE)
    row = n * 2.0 - b.where(d > 0, 1.0, 2.0)
    for number, (low, high) in enumerate(_FEW_DIGITS, 1 - len(_FEW_DIGITS)):
        row = b.where((x > low) & (x <= high) & (d > 0), len(rows) - 1.0 + number, row)
    table = PairTable(b, rows, row)
    root, value = table.pair(0), table[2]
    distance = (d - root.high) - root.low
    ratio = distance / root.high
    # -log |δ/r|: computed from the distance, unless δ is so near to 0 that the quotient has a smaller error than the
    # ratio.
    beside = ratio > -0.375
    far = b.log(b.where(beside, 1.0, d / root.high)) - root.low / root.high
    logarithm = b.where(beside, b.log1p(b.where(beside, ratio, 0.0)), far)
    place = b.abs(d) * 4.0 - 1.0
    higher = table.polynomial(5, 4 + _LOG_GAMMA_DEGREE, place) * place
    general = value - (logarithm - distance * (table[4] + higher))
    # Close to r both terms have about the same size and nearly cancel. There 1/r is subtracted from the polynomial, and
    # the logarithm minus the ratio is a series: 2s = ratio - ratio·s, and 2·atanh(s) is the logarithm.
    close = b.abs(ratio) < 0.25
    s = b.where(close, ratio / (2.0 + ratio), 0.0)
    square = s * s
    series: Any = 0.0
    for k in range(_ATANH_TERMS, 0, -1):
        series = series * square + 2.0 / (2 * k + 1)
    return b.where(close, value + (distance * (table[3] + higher) + s * (ratio - square * series)), general)


def digamma_below(b: Builder, x: Tensor) -> Tensor:
    """Return digamma(x) for x < -1/4, neither an integer nor an infinity."""
    far = x < -float(_DIGAMMA_ROWS)
    return b.where(far, _by_reflection(b, b.where(far, x, -99.75)), _beside_root(b, b.where(far, -1.5, x)))


def _beside_root(b: Builder, x: Tensor) -> Tensor:
    """Return digamma(δ - n), 0 < δ < 1: the distance from its root in that interval times a sum of positive numbers."""
    n = b.stop_gradient(-b.floor(x))
    d = x + n
    lost = b.stop_gradient(x - (d - n))
    table = PairTable(b, exact.digamma_rows(_DIGAMMA_ROWS, _DIGAMMA_DEGREE), n - 1.0)
    root = table.pair(0)
    poles = 1.0 / (d * root.high) + 1.0 / ((1.0 - d) * (1.0 - root.high))
    slope = table.polynomial(2, 2 + _DIGAMMA_DEGREE, d * 2.0 - 1.0)
    return ((d - root.high) + (lost - root.low)) * (poles + slope)


def _by_reflection(b: Builder, x: Tensor) -> Tensor:
    """Return digamma(δ - n) = digamma(n + 1 - δ) - π·cot(πδ), |δ| <= 1/2, for n >= `_DIGAMMA_ROWS`, in pairs."""
    n = b.stop_gradient(-b.round(x))
    d = x + n
    y = pair_sum(b, n + 1.0, -d)
    w = y.reciprocal()
    square = w * w
    fourth = square * square

    def over(number: int) -> Pair:
        one = b.ones_like(d)
        return Pair(b, one) / Pair(b, one * float(number))

    series = fourth * over(120) + -(square * over(12)) + -(w * Pair(b, b.full_like(d, 0.5)))
    higher: Any = 0.0
    for k, number in reversed(list(enumerate(exact.bernoulli(9), 1))[2:]):
        higher = higher * square.high - float(number / (2 * k))
    positive = _logarithm(b, y) + (series + Pair(b, higher * fourth.high * square.high))

    size = b.abs(d)
    table = PairTable(b, exact.cotangent_rows(_COTANGENT_ROWS, _COTANGENT_DEGREE), size * (2.0 * _COTANGENT_ROWS))
    cell = b.stop_gradient(b.clamp(b.floor(size * (2.0 * _COTANGENT_ROWS)), 0.0, _COTANGENT_ROWS - 1.0))
    place = (size * (2.0 * _COTANGENT_ROWS) - cell) * 2.0 - 1.0
    rest = table[2 * (_COTANGENT_DEGREE - 1)]
    for k in range(_COTANGENT_DEGREE - 2, _COTANGENT_PAIRS - 1, -1):
        rest = rest * place + table[2 * k]
    cotangent = Pair(b, rest)
    for k in range(_COTANGENT_PAIRS - 1, -1, -1):
        cotangent = cotangent * Pair(b, place) + table.pair(2 * k)
    sign = b.stop_gradient(b.where(d < 0, -1.0, 1.0))
    cotangent = Pair(b, cotangent.high * sign, cotangent.low * sign)
    return (positive + (cotangent + -Pair(b, d).reciprocal())).value


def _logarithm(b: Builder, y: Pair) -> Pair:
    """Return log y for y > 1: log a from a table, with a near y and few bits, plus `2·atanh((y - a)/(y + a))`."""
    kept = 52 - _LOGARITHM_BITS
    bits = b.stop_gradient(b.bitcast(y.high, i64))
    exponent = b.cast(b.right_shift(bits, 52) - 1023, f64)
    row = b.bitwise_and(b.right_shift(bits, kept), 2**_LOGARITHM_BITS - 1)
    anchor = b.bitcast(b.bitwise_or(b.left_shift(b.right_shift(bits, kept), kept), 1 << (kept - 1)), f64)
    table = PairTable(b, exact.logarithm_rows(2**_LOGARITHM_BITS), row)
    z = (Pair(b, y.high - anchor)) / pair_sum(b, y.high, anchor)
    square = z * z
    third = Pair(b, b.full_like(y.high, 2.0)) / Pair(b, b.full_like(y.high, 3.0))
    fifth = square.high * square.high * z.high
    higher = fifth * (2.0 / 5.0 + square.high * (2.0 / 7.0 + square.high * (2.0 / 9.0)))
    atanh = Pair(b, z.high * 2.0, z.low * 2.0) + (square * z * third + Pair(b, higher))
    two = Pair(b, *(b.full_like(y.high, part) for part in exact.log_of_2()))
    total = Pair(b, exponent) * two + table.pair(0) + atanh
    return total + Pair(b, b.stop_gradient(y.low / y.high))
