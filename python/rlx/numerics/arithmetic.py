"""Formulas that are written once for scalars of MLIR, tensors of StableHLO and NumPy arrays, over a protocol of arithmetic."""

from __future__ import annotations

import math
from typing import Any, Protocol, TypeVar

import numpy as np

V = TypeVar("V")
Parts = tuple[V, V]


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


def is_infinite(r: Arithmetic[V], x: V) -> V:
    """Return whether a number is infinite."""
    return r.compare("eq", r.absolute(x), r.like(x, math.inf))


def is_finite(r: Arithmetic[V], x: V) -> V:
    """Return whether a number is neither infinite nor NaN."""
    return r.compare("lt", r.absolute(x), r.like(x, math.inf))


def sum_error(r: Sums[V], a: V, b: V, total: V) -> V:
    """Return the rounding error of `total = a + b` (D. E. Knuth's two-sum)."""
    part = r.sub(total, a)
    return r.add(r.sub(a, r.sub(total, part)), r.sub(b, part))


def with_infinite_quotients(r: Arithmetic[V], a: Parts[V], b: Parts[V], usual: Parts[V]) -> Parts[V]:
    """Return the quotient a/b of complex numbers with the infinities and zeros of C99, G.5.1.

    An infinite number over a finite one other than 0 is infinite, and a finite number over an infinite one is zero.

    Args:
        r: The arithmetic of the parts.
        a: Real and imaginary part of the numerator.
        b: Those of the divisor.
        usual: The quotient in all other cases.
    """
    zero = r.like(a[0], 0.0)
    a_finite, b_finite = (r.both(is_finite(r, z[0]), is_finite(r, z[1])) for z in (a, b))
    a_infinite, b_infinite = (r.either(is_infinite(r, z[0]), is_infinite(r, z[1])) for z in (a, b))
    not_zero = r.either(r.compare("ne", b[0], zero), r.compare("ne", b[1], zero))
    vanishes = r.both(a_finite, b_infinite)
    explodes = r.both(a_infinite, r.both(b_finite, not_zero))
    (ar, ai), (br, bi) = _boxed(r, a, explodes), _boxed(r, b, vanishes)
    half = r.like(a[0], 0.5)
    ar, ai = r.mul(ar, half), r.mul(ai, half)  # prevents overflow of the sums; only their signs matter
    factor = r.select(vanishes, zero, r.like(a[0], math.inf))
    parts = r.add(r.mul(ar, br), r.mul(ai, bi)), r.sub(r.mul(ai, br), r.mul(ar, bi))
    is_known = r.either(vanishes, explodes)
    real, imaginary = (r.select(is_known, r.mul(factor, p), u) for p, u in zip(parts, usual, strict=True))
    return real, imaginary


def _boxed(r: Arithmetic[V], parts: Parts[V], condition: V) -> Parts[V]:
    """Return parts that are, where the condition holds, ±1 for an infinite part and ±0 for another."""

    def boxed(part: V) -> V:
        size = r.select(is_infinite(r, part), r.like(part, 1.0), r.like(part, 0.0))
        return r.select(condition, r.copysign(size, part), part)

    return boxed(parts[0]), boxed(parts[1])


class OperatorSums:
    """`Sums` of anything with Python's operators, such as tensors of a graph."""

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def sub(self, a: Any, b: Any) -> Any:
        return a - b


class NumpyArithmetic(OperatorSums):
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
        return _COMPARISONS[kind](a, b)

    def both(self, a: Any, b: Any) -> Any:
        return a & b

    def either(self, a: Any, b: Any) -> Any:
        return a | b

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)


_COMPARISONS: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
