"""Quotients of complex numbers as pairs of their parts, over the protocol `Division`."""

from __future__ import annotations

import math
from typing import Generic

from rlx.numerics.arithmetic import Arithmetic, Division, Parts, V, is_finite, is_infinite


class Scale(Generic[V]):
    """A power of two that scales a magnitude to the range in which squares neither overflow nor vanish.

    Args:
        r: The arithmetic of the magnitude.
        size: The magnitude.
    """

    def __init__(self, r: Division[V], size: V):
        self._r, self._size = r, size
        safe = r.magnitudes.safe
        self._range: tuple[V, V] | None = None
        if safe is not None:
            self._range = (
                r.compare("lt", size, r.like(size, 2.0**-safe)),
                r.compare("gt", size, r.like(size, 2.0**safe)),
            )

    def power(self, exponent: float = 1.0) -> V:
        """Return the factor to the power of 1, -1, 1/2 or -1/2."""
        up = 2.0 ** (self._r.magnitudes.factor * exponent)
        return self._choice(up, 1 / up, 1.0)

    def exponent(self) -> V:
        """Return n of the factor 2^n."""
        bits = float(self._r.magnitudes.factor)
        return self._choice(bits, -bits, 0.0)

    def _choice(self, for_small: float, for_large: float, else_: float) -> V:
        r, size = self._r, self._size
        usual = r.like(size, else_)
        if self._range is None:
            return usual
        small, large = self._range
        return r.select(small, r.like(size, for_small), r.select(large, r.like(size, for_large), usual))


def quotient(r: Division[V], a: Parts[V], b: Parts[V]) -> Parts[V]:
    """Return a/b by R. L. Smith's method, scaled so that only the result can overflow. a/0 divides both parts by 0.

    Args:
        r: The arithmetic of the parts.
        a: Real and imaginary part of the numerator.
        b: Those of the divisor.
    """
    zero = r.like(a[0], 0.0)
    size = r.max(r.absolute(b[0]), r.absolute(b[1]))
    by_zero = r.compare("eq", size, zero)
    down, up = Scale(r, size), Scale(r, r.max(r.absolute(a[0]), r.absolute(a[1])))
    br, bi = (r.mul(part, down.power()) for part in b)
    ar, ai = (r.mul(part, up.power()) for part in a)
    wide = r.compare("ge", r.absolute(br), r.absolute(bi))
    near, far = r.select(wide, br, bi), r.select(wide, bi, br)
    ratio = r.div(far, near)
    under = r.select(by_zero, zero, r.fma(far, ratio, near))
    first, second = r.select(wide, ar, ai), r.select(wide, ai, ar)
    cross = r.fma(r.neg(first), ratio, second)
    # Division by 0 uses the unscaled parts: after scaling, a small part may be 0 next to a large one.
    real = r.select(by_zero, a[0], r.fma(second, ratio, first))
    imaginary = r.select(by_zero, a[1], r.select(wide, cross, r.neg(cross)))
    # The inverse of the scale may be out of range, but its square root is not.
    step = r.mul(down.power(0.5), up.power(-0.5))
    real, imaginary = (r.mul(r.barrier(r.mul(r.div(part, under), step)), step) for part in (real, imaginary))
    return with_infinite_quotients(r, a, b, (real, imaginary))


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
    (ar, ai), (br, bi) = _raised(r, _boxed(r, a, explodes)), _raised(r, _boxed(r, b, vanishes))
    infinity = r.like(a[0], math.inf)
    # Only the signs of these sums matter, and whether they are 0. They may overflow.
    sums = r.add(r.mul(ar, br), r.mul(ai, bi)), r.sub(r.mul(ai, br), r.mul(ar, bi))
    real, imaginary = (
        r.select(vanishes, r.copysign(zero, p), r.select(explodes, r.mul(p, infinity), u))
        for p, u in zip(sums, usual, strict=True)
    )
    return real, imaginary


def _boxed(r: Arithmetic[V], parts: Parts[V], condition: V) -> Parts[V]:
    """Return parts that are, where the condition holds, ±1 for an infinite part and ±0 for another."""

    def boxed(part: V) -> V:
        size = r.select(is_infinite(r, part), r.like(part, 1.0), r.like(part, 0.0))
        return r.select(condition, r.copysign(size, part), part)

    return boxed(parts[0]), boxed(parts[1])


def _raised(r: Arithmetic[V], parts: Parts[V]) -> Parts[V]:
    """Return parts with the same signs and ratio whose sums and differences are not subnormal.

    A CPU that flushes subnormals would make a zero of them, whose product with infinity is NaN.
    """
    one = r.like(parts[0], 1.0)
    small = r.both(*(r.compare("lt", r.absolute(part), one) for part in parts))
    factor = r.select(small, r.like(one, 2.0**64), one)
    return r.mul(parts[0], factor), r.mul(parts[1], factor)
