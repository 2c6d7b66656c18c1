"""Functions of complex scalars, on real and imaginary parts.

The complex dialect's own expansions lose most digits in sqrt, log near the unit circle and tanh, return NaN for arg 0, and
overflow in intermediate values of finite results. The functions here have NumPy's branch cuts. Infinities follow C99, annex G,
except where it does not specify a sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx import mlir
from rlx.ir.dtype import f64
from rlx.numerics import functions, trigonometry
from rlx.numerics.arithmetic import is_finite, is_infinite, sum_error, with_infinite_quotients
from rlx.numerics.powers import exact_log, exp_pair, ln2_pair, log_pair
from rlx.numerics.scalars import Scalars, constant
from rlx.numerics.words import with_sign_of

_Parts = tuple["mlir.Value", "mlir.Value"]

# Magnitudes between 2^-SAFE and 2^SAFE can be squared safely. Others are scaled by 2^FACTOR or its inverse. The exponents are
# by dtype of the parts; those of factors are even.
_SAFE = {"f32": 60, "f64": 500}
_FACTOR = {"f32": 66, "f64": 540}
# From here on the real part of tanh is 1, and squares of exp(-x) are negligible relative to 1.
_FAR = {"f32": 10.0, "f64": 20.0}


def activation(s: Scalars, kind: str, z: mlir.Value) -> mlir.Value:
    """An activation on a complex scalar. The result of `abs` is real."""
    r, x, y = _real(s), s.complex.re(z), s.complex.im(z)
    if kind == "abs":
        return hypot(r, x, y)
    return _joined(s, _FUNCTIONS[kind](r, x, y))


def divide(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """a/b by R. L. Smith's method, scaled so that only the result can overflow. a/0 divides both parts by 0."""
    r = _real(s)
    (ar, ai), (br, bi) = numerator, divisor = _split(s, a), _split(s, b)
    zero = r.constant(0.0)
    size = r.max(r.math.absf(br), r.math.absf(bi))
    by_zero = r.compare("eq", size, zero)
    factor, _ = _scale(r, size)
    other, _ = _scale(r, r.max(r.math.absf(ar), r.math.absf(ai)))
    br, bi = r.mul(br, factor), r.mul(bi, factor)
    ar, ai = r.mul(ar, other), r.mul(ai, other)
    wide = r.compare("ge", r.math.absf(br), r.math.absf(bi))
    near, far = r.select(wide, br, bi), r.select(wide, bi, br)
    ratio = r.div(far, near)
    under = r.select(by_zero, zero, r.math.fma(far, ratio, near))
    first, second = r.select(wide, ar, ai), r.select(wide, ai, ar)
    # Division by 0 uses the unscaled parts: after scaling, a small part may be 0 next to a large one.
    real = r.select(by_zero, numerator[0], r.math.fma(second, ratio, first))
    cross = r.math.fma(r.neg(first), ratio, second)
    imaginary = r.select(by_zero, numerator[1], r.select(wide, cross, r.neg(cross)))
    # The inverse of the scale may be out of range, but its square root is not.
    step = r.mul(r.math.sqrt(factor), _root_of_inverse(r, other))
    real, imaginary = (r.mul(r.mul(r.div(part, under), step), step) for part in (real, imaginary))
    return _joined(s, with_infinite_quotients(r, numerator, divisor, (real, imaginary)))


def _kinds(r: Scalars, parts: _Parts) -> tuple[mlir.Value, mlir.Value]:
    """Whether a number is finite, and whether it is infinite: in any part, regardless of the other."""
    finite, infinite = ([test(r, part) for part in parts] for test in (is_finite, is_infinite))
    return r.arith.andi(*finite), r.arith.ori(*infinite)


def power(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """a**b as exp(b·log a), with log a and its product with b as sums of two floats.

    a**0 and 1**b are 1. 0**b is 0 where the real part of b is positive, else NaN.
    """
    r = _real(s)
    (x, y), (u, v) = _split(s, a), _split(s, b)
    size, angle = _log_size_pair(r, x, y), trigonometry.angle_pair(r, y, x)
    zero, half = r.constant(0.0), r.constant(0.5)
    growth = _sum_of_products(r, (u, size), (r.neg(v), angle))
    grown = exp_pair(r, *growth)
    is_real = r.compare("eq", v, zero)  # then the phase does not depend on the magnitude, which may be infinite
    turning = r.select(is_real, zero, size[0]), r.select(is_real, zero, size[1])
    phase, correction = _sum_of_products(r, (v, turning), (u, angle))
    is_small = r.compare("lt", r.math.absf(correction), r.constant(2.0**-10))
    correction = r.select(is_small, correction, zero)  # else the phase has no correct digits
    sine, cosine = trigonometry.sin(r, phase), trigonometry.cos(r, phase)
    real, imaginary = r.math.fma(r.neg(sine), correction, cosine), r.math.fma(cosine, correction, sine)
    # Where the size overflows, a small part of it may not: half of the growth each time.
    root, overflows = exp_pair(r, *(r.mul(half, part) for part in growth)), is_infinite(r, grown)
    first, second = r.select(overflows, root, grown), r.select(overflows, root, r.constant(1.0))
    real, imaginary = (r.mul(r.mul(part, first), second) for part in (real, imaginary))
    imaginary = r.select(r.compare("eq", phase, zero), phase, imaginary)
    vanishes = r.compare("eq", grown, zero)  # for any phase, which may be infinite
    real, imaginary = r.select(vanishes, zero, real), r.select(vanishes, zero, imaginary)
    return _joined(s, _special_powers(r, (x, y), (u, v), (real, imaginary)))


def _sum_of_products(r: Scalars, *terms: tuple[mlir.Value, _Parts]) -> _Parts:
    """a·x + b·y as a float and a correction, where x and y are such sums."""
    (a, (x, x_low)), (b, (y, y_low)) = terms
    p, q = r.mul(a, x), r.mul(b, y)
    p_lost = r.math.fma(a, x_low, r.math.fma(a, x, r.neg(p)))
    q_lost = r.math.fma(b, y_low, r.math.fma(b, y, r.neg(q)))
    total = r.add(p, q)
    rest = r.add(sum_error(r, p, q, total), r.add(p_lost, q_lost))
    high = r.add(total, rest)
    # Of an infinite total the errors are not numbers.
    finite, zero = is_finite(r, total), r.constant(0.0)
    return r.select(finite, high, total), r.select(finite, r.add(r.sub(total, high), rest), zero)


def _special_powers(r: Scalars, a: _Parts, b: _Parts, general: _Parts) -> _Parts:
    zero, one, nan = r.constant(0.0), r.constant(1.0), r.constant(math.nan)

    def equals(parts: _Parts, value: mlir.Value) -> mlir.Value:
        return r.arith.andi(r.compare("eq", parts[0], value), r.compare("eq", parts[1], zero))

    at_zero = equals(a, zero)
    is_number = r.compare("eq", b[1], b[1])
    of_zero = r.select(r.arith.andi(r.compare("gt", b[0], zero), is_number), zero, nan)
    square = r.math.fma(a[0], a[0], r.neg(r.mul(a[1], a[1]))), r.mul(r.add(a[0], a[0]), a[1])
    cases = [
        (at_zero, (of_zero, of_zero)),
        (r.arith.andi(equals(b, r.constant(2.0)), _kinds(r, a)[0]), square),
        (equals(b, one), a),
        (equals(b, zero), (one, zero)),
        (equals(a, one), (one, zero)),
    ]
    real, imaginary = general
    for condition, (special_real, special_imaginary) in cases:
        real = r.select(condition, special_real, real)
        imaginary = r.select(condition, special_imaginary, imaginary)
    return real, imaginary


# --- parts ------------------------------------------------------------------------------------


def _real(s: Scalars) -> Scalars:
    return Scalars(s.dtype.part)


def _library(r: Scalars, kind: str, x: mlir.Value) -> mlir.Value:
    """A function that compilers expand for f32 but not for f64."""
    return functions.FUNCTIONS[kind](r, x) if r.dtype is f64 else getattr(r.math, kind)(x)


def _split(s: Scalars, z: mlir.Value) -> _Parts:
    return s.complex.re(z), s.complex.im(z)


def _joined(s: Scalars, parts: _Parts) -> mlir.Value:
    return s.complex.create_(s.element, *parts)


def _scale(r: Scalars, size: mlir.Value) -> _Parts:
    """A power of two that scales a magnitude to the range of safe squares, and its inverse."""
    bits, safe, one = _FACTOR[r.dtype.name], _SAFE[r.dtype.name], r.constant(1.0)
    up, down = r.constant(2.0**bits), r.constant(2.0**-bits)
    small, large = r.compare("lt", size, r.constant(2.0**-safe)), r.compare("gt", size, r.constant(2.0**safe))
    return r.select(small, up, r.select(large, down, one)), r.select(small, down, r.select(large, up, one))


def _not(r: Scalars, condition: mlir.Value) -> mlir.Value:
    return r.arith.xori(condition, constant(1, condition.type))


def hypot(r: Scalars, x: mlir.Value, y: mlir.Value) -> mlir.Value:
    """√(x² + y²) without overflow; infinity if either is infinite."""
    across, up = r.math.absf(x), r.math.absf(y)
    large, small = r.max(across, up), r.min(across, up)
    factor, inverse = _scale(r, large)
    large, small = r.mul(large, factor), r.mul(small, factor)
    size = r.mul(r.math.sqrt(r.math.fma(large, large, r.mul(small, small))), inverse)
    infinite = r.arith.ori(is_infinite(r, x), is_infinite(r, y))
    return r.select(infinite, r.constant(math.inf), size)


# --- exp and log ------------------------------------------------------------------------------


def _exp(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    root = r.math.exp(r.mul(x, r.constant(0.5)))  # multiplied twice: exp(x) may overflow although the product does not
    real = r.mul(r.mul(root, trigonometry.cos(r, y)), root)
    imaginary = r.mul(r.mul(root, trigonometry.sin(r, y)), root)
    imaginary = r.select(r.compare("eq", y, r.constant(0.0)), y, imaginary)
    endless = _not(r, is_finite(r, y))
    vanishes = r.arith.andi(endless, r.compare("eq", x, r.constant(-math.inf)))
    explodes = r.arith.andi(endless, r.compare("eq", x, r.constant(math.inf)))
    zero = r.constant(0.0)
    real = r.select(explodes, x, r.select(vanishes, zero, real))
    return real, r.select(vanishes, zero, imaginary)


def _log(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    across, up = r.math.absf(x), r.math.absf(y)
    large, small = r.max(across, up), r.min(across, up)
    zero = r.constant(0.0)
    # Near the unit circle log|z| is log1p(|z|² - 1)/2, elsewhere log(large) + log1p((small/large)²)/2.
    bounds = r.compare("gt", large, r.constant(0.5)), r.compare("lt", large, r.constant(2.0))
    near = r.arith.andi(*bounds)
    ratio = r.select(r.compare("eq", large, zero), zero, r.div(small, large))
    argument = r.select(near, _size_squared_less_one(r, large, small), r.mul(ratio, ratio))
    base = r.select(near, zero, functions.FUNCTIONS["log"](r, large))
    real = r.math.fma(r.constant(0.5), _library(r, "log1p", argument), base)
    infinite = r.arith.ori(is_infinite(r, x), is_infinite(r, y))
    return r.select(infinite, r.constant(math.inf), real), trigonometry.atan2(r, y, x)


def _size_squared_less_one(r: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """a² + b² - 1 where a is near 1, without cancellation."""
    p, q = r.mul(a, a), r.mul(b, b)
    lost = r.add(r.math.fma(a, a, r.neg(p)), r.math.fma(b, b, r.neg(q)))
    less = r.sub(p, r.constant(1.0))
    total = r.add(less, q)
    return r.add(total, r.add(sum_error(r, less, q, total), lost))


def _log_size_pair(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    """Log √(x² + y²) as a float and a correction."""
    size = r.max(r.math.absf(x), r.math.absf(y))
    factor, inverse = _scale(r, size)
    x, y = r.mul(x, factor), r.mul(y, factor)
    p, q = r.mul(x, x), r.mul(y, y)
    lost = r.add(r.math.fma(x, x, r.neg(p)), r.math.fma(y, y, r.neg(q)))
    square = r.add(p, q)
    lost = r.add(sum_error(r, p, q, square), lost)
    high, low = log_pair(r, square, exact_log)
    low = r.add(low, r.div(lost, square))
    # The factor is 2^n: log|z| is half of that, less n·log 2.
    bits = _FACTOR[r.dtype.name]
    one, zero = r.constant(1.0), r.constant(0.0)
    scaled_up, scaled_down = r.compare("gt", factor, one), r.compare("gt", inverse, one)
    count = r.select(scaled_up, r.constant(-bits), r.select(scaled_down, r.constant(bits), zero))
    ln2_high, ln2_low = ln2_pair(r)
    half = r.constant(0.5)
    base, part = r.mul(count, ln2_high), r.mul(half, high)
    total = r.add(base, part)
    rest = r.math.fma(count, ln2_low, r.mul(half, low))
    return total, r.add(sum_error(r, base, part, total), rest)


# --- sqrt -------------------------------------------------------------------------------------


def _sqrt(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    across, up = r.math.absf(x), r.math.absf(y)
    large = r.max(across, up)
    factor, _ = _scale(r, large)
    a, b = r.mul(across, factor), r.mul(up, factor)
    size = r.math.sqrt(r.math.fma(a, a, r.mul(b, b)))
    half = r.constant(0.5)
    main = r.math.sqrt(r.math.fma(half, a, r.mul(half, size)))
    infinity = r.constant(math.inf)
    main = r.select(is_infinite(r, x), infinity, main)
    other = r.div(b, r.add(main, main))
    other = r.select(r.compare("eq", large, r.constant(0.0)), r.constant(0.0), other)
    root = _root_of_inverse(r, factor)
    main, other = r.mul(main, root), r.mul(other, root)
    endless = is_infinite(r, y)
    main, other = r.select(endless, infinity, main), r.select(endless, infinity, other)
    left = r.compare("lt", x, r.constant(0.0))
    imaginary = with_sign_of(r, r.select(left, main, other), y)
    return r.select(left, other, main), imaginary


def _root_of_inverse(r: Scalars, factor: mlir.Value) -> mlir.Value:
    """1/√factor, for a factor returned by `_scale`."""
    one, root = r.constant(1.0), 2.0 ** (_FACTOR[r.dtype.name] // 2)
    scaled_down = r.compare("lt", factor, one)
    other = r.select(scaled_down, r.constant(root), one)
    return r.select(r.compare("gt", factor, one), r.constant(1 / root), other)


# --- sin, cos, tanh ---------------------------------------------------------------------------


def _sin(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    sine, cosine = trigonometry.sin(r, x), trigonometry.cos(r, x)
    cosh, sinh = _hyperbolic(r, y)
    return _product(r, sine, cosh), _or_infinite(r, x, y, _product(r, cosine, sinh))


def _cos(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    sine, cosine = trigonometry.sin(r, x), trigonometry.cos(r, x)
    cosh, sinh = _hyperbolic(r, y)
    real = _or_infinite(r, x, r.math.absf(y), _product(r, cosine, cosh))
    return real, r.neg(_product(r, sine, sinh))


def _hyperbolic(r: Scalars, y: mlir.Value) -> tuple[_Parts, _Parts]:
    """Return cosh y and sinh y, each as two factors: they may overflow although a product with a sine does not."""
    size = r.math.absf(y)
    half, one = r.constant(0.5), r.constant(1.0)
    u = _library(r, "expm1", size)
    inverse = r.div(u, r.add(u, one))
    cosh = r.math.fma(r.mul(half, u), inverse, one)
    sinh = r.mul(half, r.add(u, inverse))
    large = r.compare("gt", size, r.constant(20.0))  # exp(-40) is negligible in both dtypes
    root = r.math.exp(r.mul(half, size))
    factor = r.select(large, root, one)
    half_root = r.mul(half, root)
    sinh = with_sign_of(r, r.select(large, half_root, sinh), y)
    return (r.select(large, half_root, cosh), factor), (sinh, factor)


def _product(r: Scalars, circular: mlir.Value, hyperbolic: _Parts) -> mlir.Value:
    """A product where an exact 0 times infinity or NaN is 0."""
    first, second = hyperbolic
    value = r.mul(r.mul(circular, first), second)
    zero = r.constant(0.0)
    vanishes = r.arith.ori(r.compare("eq", circular, zero), r.compare("eq", first, zero))
    signed = r.mul(with_sign_of(r, zero, circular), with_sign_of(r, r.constant(1.0), first))
    return r.select(vanishes, signed, value)


def _or_infinite(r: Scalars, x: mlir.Value, y: mlir.Value, value: mlir.Value) -> mlir.Value:
    """`value`, or y where y is infinite and the cosine of x is NaN."""
    return r.select(r.arith.andi(is_infinite(r, y), _not(r, is_finite(r, x))), y, value)


def _tanh(r: Scalars, x: mlir.Value, y: mlir.Value) -> _Parts:
    """W. Kahan, "Branch cuts for complex elementary functions", 1987."""
    one, zero = r.constant(1.0), r.constant(0.0)
    size = r.math.absf(x)
    tangent = trigonometry.tan(r, y)
    (_, _), (sinh, _) = _hyperbolic(r, x)
    beta = r.math.fma(tangent, tangent, one)
    square = r.mul(sinh, sinh)
    root = r.math.sqrt(r.add(square, one))
    under = r.math.fma(beta, square, one)
    real, imaginary = r.div(r.mul(r.mul(beta, root), sinh), under), r.div(tangent, under)
    far = r.compare("gt", size, r.constant(_FAR[r.dtype.name]))
    decay = r.math.exp(r.neg(size))
    twice = r.mul(trigonometry.sin(r, y), trigonometry.cos(r, y))
    far_imaginary = r.mul(r.mul(r.mul(twice, r.constant(4.0)), decay), decay)
    endless, at_infinity = _not(r, is_finite(r, y)), is_infinite(r, x)
    real = r.select(far, with_sign_of(r, one, x), real)
    real = r.select(r.arith.andi(endless, _not(r, at_infinity)), r.constant(math.nan), real)
    far_imaginary = r.select(r.arith.andi(endless, at_infinity), zero, far_imaginary)
    imaginary = r.select(far, far_imaginary, imaginary)
    return r.select(r.compare("eq", x, zero), x, real), r.select(r.compare("eq", y, zero), y, imaginary)


_FUNCTIONS: dict[str, Callable[[Scalars, mlir.Value, mlir.Value], _Parts]] = {
    "neg": lambda r, x, y: (r.neg(x), r.neg(y)),
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
}
