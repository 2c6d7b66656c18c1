"""Double-f64 arithmetic. A number is an unevaluated sum of two f64 tensors: a value and its rounding error.

The sums and products are those of Knuth and Dekker, which need no fused multiply-add. About 100 bits of a result are
correct. The second parts are not differentiated: the derivative of a pair is that of its first part, in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.numerics.arithmetic import OperatorArithmetic, polynomial, sum_error

# Splits a float of 53 bits into two of 26: Dekker, A floating-point technique for extending the available precision,
# 1971.
_SPLIT = 2.0**27 + 1


@dataclass
class Pair:
    """high + low; `low` is at most about half an ulp of `high`."""

    b: Builder
    high: Tensor
    low: Tensor | float = 0.0

    def __add__(self, other: Pair) -> Pair:
        """The sum, with an error of 2^-104 of the operands."""
        total = pair_sum(self.b, self.high, other.high)
        return Pair(self.b, total.high, total.low + (self.low + other.low)).settled()

    def __neg__(self) -> Pair:
        """The negated pair."""
        return Pair(self.b, -self.high, -self.low)

    def __mul__(self, other: Pair) -> Pair:
        """The product, with a relative error of 2^-104."""
        high, low = _product(self.b, self.high, other.high)
        return Pair(self.b, high, low + self.b.stop_gradient(self.high * other.low + self.low * other.high))

    def reciprocal(self) -> Pair:
        """Return 1/self."""
        return Pair(self.b, self.b.ones_like(self.high)) / self

    def __truediv__(self, other: Pair) -> Pair:
        """The quotient of the first parts, plus the remainder of that division divided by the divisor."""
        quotient = self.high / other.high
        high, low = _product(self.b, quotient, other.high)
        rest = ((self.high - high) - low) + (self.low - quotient * other.low)
        return Pair(self.b, quotient, self.b.stop_gradient(rest / other.high))

    def settled(self) -> Pair:
        """Return the same value, normalised so that `high` is the rounded sum."""
        total = self.high + self.low
        return Pair(self.b, total, self.b.stop_gradient((self.high - total) + self.low))

    @property
    def value(self) -> Tensor:
        """The nearest f64, or one next to it."""
        return self.high + self.low


def pair_sum(b: Builder, lhs: Tensor, rhs: Tensor) -> Pair:
    """Return lhs + rhs of two tensors, exactly (Knuth's two-sum)."""
    total = lhs + rhs
    return Pair(b, total, b.stop_gradient(sum_error(OperatorArithmetic(), lhs, rhs, total)))


def _product(b: Builder, lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """Return lhs·rhs exactly, as a float and its rounding error (Dekker's product)."""
    product = lhs * rhs
    (x, x_rest), (y, y_rest) = _halves(lhs), _halves(rhs)
    return product, b.stop_gradient(((x * y - product) + (x * y_rest + x_rest * y)) + x_rest * y_rest)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    scaled = x * _SPLIT
    upper = scaled - (scaled - x)
    return upper, x - upper


def two_floats(value: Decimal) -> tuple[float, float]:
    """Return a number as the sum of two floats."""
    high = float(value)
    return high, float(value - Decimal(high))


class PairTable:
    """A table of numbers. Each element of a tensor selects one row."""

    def __init__(self, b: Builder, rows: Sequence[Sequence[float]], row: Tensor) -> None:
        self.b = b
        self.width = len(rows[0])
        self.numbers = b.constant(np.array(rows, np.float64).reshape(-1))
        self.start = b.stop_gradient(b.cast(b.clamp(row, 0, len(rows) - 1), i32)) * self.width

    def __getitem__(self, column: int) -> Tensor:
        """Return the number in a column of the selected rows; negative columns count from the end."""
        return self.b.gather(self.numbers, self.start + column % self.width, axis=0)

    def pair(self, column: int) -> Pair:
        """Return the number that is stored in a column and the next one."""
        return Pair(self.b, self[column], self[column + 1])

    def polynomial(self, first: int, end: int, x: Tensor) -> Tensor:
        """Return Σ of the columns from `first` up to `end` (exclusive) times x^0, x^1, …."""
        return polynomial(OperatorArithmetic(), x, [self[column] for column in range(first, end)])
