"""Formulas that are written once for scalars of MLIR, tensors of StableHLO and NumPy arrays, over a protocol of arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

V = TypeVar("V")
Parts = tuple[V, V]


class FusedProducts(Protocol[V]):
    """Multiplication and addition in one step."""

    def fma(self, a: V, b: V, c: V, /) -> V:
        """a·b + c. Emitters whose compiler has a fused operation round once, others twice."""
        ...


class Multiplication(FusedProducts[V], Protocol[V]):
    """`FusedProducts`, with constants."""

    def like(self, x: V, value: float, /) -> V:
        """A constant of the dtype, and for tensors of the shape, of another value."""
        ...


class Sums(Protocol[V]):
    """Addition and subtraction of floats of one dtype."""

    def add(self, a: V, b: V, /) -> V:
        """A + b."""
        ...

    def sub(self, a: V, b: V, /) -> V:
        """A - b."""
        ...


class Arithmetic(Sums[V], Protocol[V]):
    """Arithmetic of floats of one dtype. Conditions are values as well."""

    def like(self, x: V, value: float, /) -> V:
        """A constant of the dtype, and for tensors of the shape, of another value."""
        ...

    def mul(self, a: V, b: V, /) -> V:
        """a·b."""
        ...

    def absolute(self, a: V, /) -> V:
        """|a|."""
        ...

    def copysign(self, size: V, sign: V, /) -> V:
        """`size`, which is not negative, with the sign of `sign`, also of a zero."""
        ...

    def compare(self, kind: str, a: V, b: V, /) -> V:
        """A comparison of kind `eq`, `ne`, `lt`, `le`, `gt` or `ge`; only `ne` holds for NaN."""
        ...

    def both(self, a: V, b: V, /) -> V:
        """Whether both conditions hold."""
        ...

    def either(self, a: V, b: V, /) -> V:
        """Whether a condition holds."""
        ...

    def select(self, condition: V, a: V, b: V, /) -> V:
        """`a` where the condition holds, else `b`."""
        ...


class Division(Arithmetic[V], FusedProducts[V], Protocol[V]):
    """Arithmetic with quotients and roots, for complex numbers as pairs of their parts."""

    @property
    def magnitudes(self) -> Magnitudes:
        """The magnitudes that formulas must treat specially."""
        ...

    def div(self, a: V, b: V, /) -> V:
        """a/b."""
        ...

    def neg(self, a: V, /) -> V:
        """-a."""
        ...

    def max(self, a: V, b: V, /) -> V:
        """The maximum; NaN if an operand is NaN."""
        ...

    def min(self, a: V, b: V, /) -> V:
        """The minimum; NaN if an operand is NaN."""
        ...

    def sqrt(self, a: V, /) -> V:
        """√a, correctly rounded."""
        ...

    def barrier(self, a: V, /) -> V:
        """The same value, which the compiler may not combine with the operations on it."""
        ...


class Functions(Division[V], Protocol[V]):
    """Arithmetic with elementary functions of real numbers."""

    def exp(self, a: V, /) -> V:
        """Exponential."""
        ...

    def expm1(self, a: V, /) -> V:
        """`exp(a) - 1` without cancellation."""
        ...

    def log(self, a: V, /) -> V:
        """Natural logarithm."""
        ...

    def log1p(self, a: V, /) -> V:
        """`log(1 + a)` without cancellation."""
        ...

    def sin(self, a: V, /) -> V:
        """Sine."""
        ...

    def cos(self, a: V, /) -> V:
        """Cosine."""
        ...

    def tan(self, a: V, /) -> V:
        """Tangent."""
        ...

    def atan2(self, y: V, x: V, /) -> V:
        """The angle of (x, y), from -π to π."""
        ...

    def size_squared_less_one(self, a: V, b: V, /) -> V:
        """a² + b² - 1 for a near 1 and b up to a, without cancellation of a² and 1."""
        ...


@dataclass(frozen=True)
class Magnitudes:
    """The magnitudes of a float format that formulas for complex numbers must treat specially.

    Attributes:
        safe: Magnitudes between 2^-safe and 2^safe can be squared. None: all operands can.
        factor: Other magnitudes are multiplied by 2^factor or its inverse. It is even, so that the root is also a power of two.
        far: From here on the real part of tanh is 1, and squares of exp(-x) are negligible relative to 1.
    """

    safe: int | None
    factor: int
    far: float


MAGNITUDES = {"f32": Magnitudes(60, 66, 10.0), "f64": Magnitudes(500, 540, 20.0)}
# Those of f64 for operands that are exact in f32.
MAGNITUDES_OF_F32_IN_F64 = Magnitudes(None, 0, 20.0)


def is_infinite(r: Arithmetic[V], x: V) -> V:
    """Return whether a number is infinite."""
    return r.compare("eq", r.absolute(x), r.like(x, math.inf))


def is_finite(r: Arithmetic[V], x: V) -> V:
    """Return whether a number is neither infinite nor NaN."""
    return r.compare("lt", r.absolute(x), r.like(x, math.inf))


def is_endless(r: Arithmetic[V], x: V) -> V:
    """Return whether a number is infinite or NaN."""
    return r.either(is_infinite(r, x), r.compare("ne", x, x))


def polynomial(r: FusedProducts[V], x: V, coefficients: Sequence[V]) -> V:
    """Return the polynomial with these coefficients, the constant first, by Horner's scheme."""
    value = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        value = r.fma(value, x, c)
    return value


def sum_error(r: Sums[V], a: V, b: V, total: V) -> V:
    """Return the rounding error of `total = a + b` (D. E. Knuth's two-sum)."""
    part = r.sub(total, a)
    return r.add(r.sub(a, r.sub(total, part)), r.sub(b, part))


class OperatorArithmetic:
    """`Sums` and `FusedProducts` of anything with Python's operators, such as tensors of a graph."""

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return a * b + c


class NumpyArithmetic(OperatorArithmetic):
    """`Arithmetic` of NumPy arrays, for the evaluator."""

    def like(self, x: Any, value: float, /) -> Any:
        return np.asarray(value, x.dtype)

    def mul(self, a: Any, b: Any) -> Any:
        return a * b

    def absolute(self, a: Any) -> Any:
        return np.abs(a)

    def copysign(self, size: Any, sign: Any) -> Any:
        return np.copysign(size, sign)

    def compare(self, kind: str, a: Any, b: Any) -> Any:
        return COMPARISONS[kind](a, b)

    def both(self, a: Any, b: Any) -> Any:
        return a & b

    def either(self, a: Any, b: Any) -> Any:
        return a | b

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)


# The functions of arrays by kind: false for NaN, except that NaN is unequal to everything.
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
