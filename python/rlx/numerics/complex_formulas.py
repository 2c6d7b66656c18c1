"""Functions of complex numbers as pairs of their parts, over the protocol `Functions`.

The functions have NumPy's branch cuts. Infinities follow C99, annex G, except where it does not specify a sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlx.numerics.arithmetic import Division, Functions, Parts, V, is_endless, is_finite, is_infinite
from rlx.numerics.division import Scale


def hypot(r: Division[V], x: V, y: V) -> V:
    """√(x² + y²) without overflow; infinity if either is infinite."""
    across, up = r.absolute(x), r.absolute(y)
    large, small = r.max(across, up), r.min(across, up)
    scale = Scale(r, large)
    large, small = r.mul(large, scale.power()), r.mul(small, scale.power())
    size = r.mul(r.sqrt(r.fma(large, large, r.mul(small, small))), scale.power(-1))
    return r.select(r.either(is_infinite(r, x), is_infinite(r, y)), r.like(x, math.inf), size)


# --- exp and log ------------------------------------------------------------------------------


def exp(r: Functions[V], x: V, y: V) -> Parts[V]:
    """`exp(x)·cos(y) + i·exp(x)·sin(y)`, which is 0 for x = -inf and any imaginary part."""
    root = r.exp(r.mul(x, r.like(x, 0.5)))  # multiplied twice: exp(x) may overflow although the product does not
    real, imaginary = (r.mul(r.barrier(r.mul(root, turn)), root) for turn in (r.cos(y), r.sin(y)))
    zero = r.like(x, 0.0)
    imaginary = r.select(r.compare("eq", y, zero), y, imaginary)
    endless = is_endless(r, y)
    vanishes = r.both(endless, r.compare("eq", x, r.like(x, -math.inf)))
    explodes = r.both(endless, r.compare("eq", x, r.like(x, math.inf)))
    return r.select(explodes, x, r.select(vanishes, zero, real)), r.select(vanishes, zero, imaginary)


def log(r: Functions[V], x: V, y: V) -> Parts[V]:
    """`log |z| + i·arg z`."""
    return log_of_modulus(r, x, y), r.atan2(y, x)


def log_of_modulus(r: Functions[V], x: V, y: V) -> V:
    """`log √(x² + y²)`: log1p(|z|² - 1)/2 near the unit circle, elsewhere log(large) + log1p((small/large)²)/2."""
    across, up = r.absolute(x), r.absolute(y)
    large, small = r.max(across, up), r.min(across, up)
    zero = r.like(x, 0.0)
    infinite = r.either(is_infinite(r, x), is_infinite(r, y))
    near = r.both(r.compare("gt", large, r.like(x, 0.5)), r.compare("lt", large, r.like(x, 2.0)))
    ratio = r.select(r.compare("eq", large, zero), zero, r.div(small, large))
    argument = r.select(near, r.size_squared_less_one(large, small), r.mul(ratio, ratio))
    base = r.select(near, zero, r.log(large))
    return r.select(infinite, r.like(x, math.inf), r.fma(r.like(x, 0.5), r.log1p(argument), base))


# --- sqrt -------------------------------------------------------------------------------------


def sqrt(r: Functions[V], x: V, y: V) -> Parts[V]:
    """The root whose imaginary part has the sign of y, including the sign of a zero."""
    across, up = r.absolute(x), r.absolute(y)
    large = r.max(across, up)
    scale = Scale(r, large)
    a, b = r.mul(across, scale.power()), r.mul(up, scale.power())
    size = r.sqrt(r.fma(a, a, r.mul(b, b)))
    zero, half, infinity = r.like(x, 0.0), r.like(x, 0.5), r.like(x, math.inf)
    main = r.sqrt(r.fma(half, a, r.mul(half, size)))
    main = r.select(is_infinite(r, x), infinity, main)
    other = r.div(b, r.add(main, main))
    other = r.select(r.compare("eq", large, zero), zero, other)
    main, other = r.mul(main, scale.power(-0.5)), r.mul(other, scale.power(-0.5))
    endless = is_infinite(r, y)
    main, other = r.select(endless, infinity, main), r.select(endless, infinity, other)
    left = r.compare("lt", x, zero)
    return r.select(left, other, main), r.copysign(r.select(left, main, other), y)


# --- sin, cos, tanh ---------------------------------------------------------------------------


def sin(r: Functions[V], x: V, y: V) -> Parts[V]:
    """`sin(x)·cosh(y) + i·cos(x)·sinh(y)`."""
    sine, cosine = r.sin(x), r.cos(x)
    cosh, sinh = _hyperbolic(r, y)
    return _product(r, sine, cosh), _or_infinite(r, x, y, _product(r, cosine, sinh))


def cos(r: Functions[V], x: V, y: V) -> Parts[V]:
    """`cos(x)·cosh(y) - i·sin(x)·sinh(y)`."""
    sine, cosine = r.sin(x), r.cos(x)
    cosh, sinh = _hyperbolic(r, y)
    real = _or_infinite(r, x, r.absolute(y), _product(r, cosine, cosh))
    return real, r.neg(_product(r, sine, sinh))


def _hyperbolic(r: Functions[V], y: V) -> tuple[Parts[V], Parts[V]]:
    """Return cosh y and sinh y, each as two factors: they may overflow although a product with a sine does not."""
    size = r.absolute(y)
    half, one = r.like(y, 0.5), r.like(y, 1.0)
    u = r.expm1(size)
    inverse = r.div(u, r.add(u, one))
    cosh = r.fma(r.mul(half, u), inverse, one)
    sinh = r.mul(half, r.add(u, inverse))
    large = r.compare("gt", size, r.like(y, 20.0))  # exp(-40) is negligible in both dtypes
    root = r.exp(r.mul(half, size))
    factor = r.select(large, root, one)
    half_root = r.mul(half, root)
    sinh = r.copysign(r.select(large, half_root, sinh), y)
    return (r.select(large, half_root, cosh), factor), (sinh, factor)


def _product(r: Functions[V], circular: V, hyperbolic: Parts[V]) -> V:
    """A product where an exact 0 times infinity or NaN is 0."""
    first, second = hyperbolic
    value = r.mul(r.barrier(r.mul(circular, first)), second)
    zero, one = r.like(circular, 0.0), r.like(circular, 1.0)
    vanishes = r.either(r.compare("eq", circular, zero), r.compare("eq", first, zero))
    signed = r.mul(r.copysign(zero, circular), r.copysign(one, first))
    return r.select(vanishes, signed, value)


def _or_infinite(r: Functions[V], x: V, y: V, value: V) -> V:
    """`value`, or y where y is infinite and the cosine of x is NaN."""
    return r.select(r.both(is_infinite(r, y), is_endless(r, x)), y, value)


def tanh(r: Functions[V], x: V, y: V) -> Parts[V]:
    """With `t = tan y` and `s = sinh x`, `((1 + t²)·√(1 + s²)·s + i·t) / (1 + (1 + t²)·s²)` (W. Kahan, "Branch cuts for
    complex elementary functions", 1987), and for large x `±1 + 4i·sin(y)·cos(y)·exp(-2|x|)`.
    """
    one, zero = r.like(x, 1.0), r.like(x, 0.0)
    size, tangent = r.absolute(x), r.tan(y)
    _, (sinh, _) = _hyperbolic(r, x)
    beta = r.fma(tangent, tangent, one)
    square = r.mul(sinh, sinh)
    root = r.sqrt(r.add(square, one))
    under = r.fma(beta, square, one)
    real, imaginary = r.div(r.mul(r.mul(beta, root), sinh), under), r.div(tangent, under)
    far = r.compare("gt", size, r.like(x, r.magnitudes.far))
    decay = r.exp(r.neg(size))
    twice = r.mul(r.sin(y), r.cos(y))
    far_imaginary = r.mul(r.barrier(r.mul(r.mul(twice, r.like(x, 4.0)), decay)), decay)
    endless, at_infinity = is_endless(r, y), is_infinite(r, x)
    real = r.select(far, r.copysign(one, x), real)
    real = r.select(endless, r.select(at_infinity, real, r.like(x, math.nan)), real)
    far_imaginary = r.select(r.both(endless, at_infinity), zero, far_imaginary)
    imaginary = r.select(far, far_imaginary, imaginary)
    return r.select(r.compare("eq", x, zero), x, real), r.select(r.compare("eq", y, zero), y, imaginary)


# By name of the activation.
FORMULAS: dict[str, Callable[[Functions[Any], Any, Any], Parts[Any]]] = {
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
}


# --- powers -----------------------------------------------------------------------------------


def special_powers(r: Division[V], a: Parts[V], b: Parts[V], general: Parts[V]) -> Parts[V]:
    """Return a**b with its special values, which are exact.

    a**0 and 1**b are 1, a**1 is a, and a**2 is a product. 0**b is 0 where the real part of b is positive, else NaN.

    Args:
        r: The arithmetic of the parts.
        a: Real and imaginary part of the base.
        b: Those of the exponent.
        general: The power in all other cases.
    """
    zero, one, nan = (r.like(a[0], value) for value in (0.0, 1.0, math.nan))

    def equals(parts: Parts[V], value: V) -> V:
        return r.both(r.compare("eq", parts[0], value), r.compare("eq", parts[1], zero))

    is_positive = r.both(r.compare("gt", b[0], zero), r.compare("eq", b[1], b[1]))
    of_zero = r.select(is_positive, zero, nan)
    cross = r.mul(a[0], a[1])
    even = r.compare("eq", r.absolute(a[0]), r.absolute(a[1]))  # then 0, even if the sum overflows
    square = r.select(even, zero, r.mul(r.sub(a[0], a[1]), r.add(a[0], a[1]))), r.add(cross, cross)
    finite = r.both(is_finite(r, a[0]), is_finite(r, a[1]))
    cases = [
        (equals(a, zero), (of_zero, of_zero)),
        (r.both(equals(b, r.like(zero, 2.0)), finite), square),
        (equals(b, one), a),
        (equals(b, zero), (one, zero)),
        (equals(a, one), (one, zero)),
    ]
    real, imaginary = general
    for condition, (special_real, special_imaginary) in cases:
        real = r.select(condition, special_real, real)
        imaginary = r.select(condition, special_imaginary, imaginary)
    return real, imaginary
