"""Functions of complex numbers where XLA's own lose digits or NaN. The parts are computed in f64 and rounded once."""

from __future__ import annotations

import math

from rlx.ir.dtype import DType, c128, f32, f64, i32, i64
from rlx.numerics.arithmetic import is_finite, is_infinite, with_infinite_quotients
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.functions import log1p
from rlx.targets.stablehlo.rules import Lowered

Parts = tuple[Lowered, Lowered]

_LARGE = 700.0  # exp of this is near the largest f64


def parts_of(emit: HloEmitter, z: Lowered) -> Parts:
    """Real and imaginary part in f64."""
    real, imaginary = (emit.elementwise(name, z, kind=z.dtype.part) for name in ("real", "imag"))
    return emit.convert(real, f64), emit.convert(imaginary, f64)


def joined(emit: HloEmitter, kind: DType, real: Lowered, imaginary: Lowered) -> Lowered:
    """Complex numbers of a dtype from f64 parts."""
    return emit.elementwise("complex", emit.convert(real, kind.part), emit.convert(imaginary, kind.part), kind=kind)


def divide(emit: HloEmitter, a: Lowered, b: Lowered) -> Lowered:
    """a/b by R. L. Smith's method in f64, where only the result can overflow. a/0 divides both parts by 0."""
    numerator, divisor = parts_of(emit, a), parts_of(emit, b)
    (ar, ai), up = _scaled(emit, numerator, a.dtype)
    (br, bi), down = _scaled(emit, divisor, b.dtype)
    size, height = emit.elementwise("abs", br), emit.elementwise("abs", bi)
    is_wide = emit.compare("ge", size, height)
    near, far = emit.select(is_wide, br, bi), emit.select(is_wide, bi, br)
    first, second = emit.select(is_wide, ar, ai), emit.select(is_wide, ai, ar)
    ratio = emit.div(far, near)
    under = emit.add(near, emit.mul(far, ratio))
    cross = emit.sub(second, emit.mul(first, ratio))
    real = emit.div(emit.add(first, emit.mul(second, ratio)), under)
    imaginary = emit.div(emit.select(is_wide, cross, emit.neg(cross)), under)
    by_zero = emit.compare("eq", emit.max(size, height), 0.0)
    quotient = zip((ar, ai), (real, imaginary), strict=True)
    parts = [emit.select(by_zero, emit.div(part, size), found) for part, found in quotient]
    if a.dtype is c128:  # the inverse of the scale may be out of range, but its square root is not
        step = emit.div(emit.elementwise("sqrt", down), emit.elementwise("sqrt", up))
        parts = [emit.mul(emit.kept(emit.mul(part, step)), step) for part in parts]
    return joined(emit, a.dtype, *with_infinite_quotients(emit, numerator, divisor, (parts[0], parts[1])))


def _scaled(emit: HloEmitter, parts: Parts, kind: DType) -> tuple[Parts, Lowered]:
    """Scale the parts of c128 by a power of two to the range of safe squares. c64 needs no scaling. Returns parts and scale."""
    size = emit.max(*(emit.elementwise("abs", part) for part in parts))
    one = emit.like(size, 1.0)
    if kind is not c128:
        return parts, one
    small, large = emit.compare("lt", size, 2.0**-500), emit.compare("gt", size, 2.0**500)
    factor = emit.select(small, 2.0**540, emit.select(large, 2.0**-540, one))
    real, imaginary = (emit.mul(part, factor) for part in parts)
    return (real, imaginary), factor


# --- what follows has the infinities and NaN of C99, annex G ------------------------------------------


def _is_zero(emit: HloEmitter, x: Lowered) -> Lowered:
    return emit.compare("eq", x, 0.0)


def modulus(emit: HloEmitter, z: Lowered) -> Lowered:
    """`|z|`, which is infinite if one part is, regardless of the other."""
    x, y = parts_of(emit, z)
    infinite = emit.either(is_infinite(emit, x), is_infinite(emit, y))
    return emit.select(infinite, math.inf, emit.elementwise("abs", z, kind=z.dtype.part))


def log(emit: HloEmitter, z: Lowered) -> Lowered:
    """`log |z| + i·arg z`."""
    x, y = parts_of(emit, z)
    real = emit.convert(_log_of_modulus(emit, z, x, y), z.dtype.part)
    infinite = emit.either(is_infinite(emit, x), is_infinite(emit, y))
    # XLA's own angle of a denormal is NaN.
    angle = emit.convert(emit.elementwise("atan2", y, x), z.dtype.part)
    return emit.elementwise("complex", emit.select(infinite, math.inf, real), angle, kind=z.dtype)


def _log_of_modulus(emit: HloEmitter, z: Lowered, x: Lowered, y: Lowered) -> Lowered:
    """`log |z|`. XLA's own function loses digits near 1 for c128. c64 is not affected."""
    if z.dtype is not c128:
        return emit.elementwise("real", emit.elementwise("log", z), kind=z.dtype.part)
    sizes = [emit.elementwise("abs", part) for part in (x, y)]
    large, small = emit.max(*sizes), emit.min(*sizes)
    no_part = emit.either(_is_zero(emit, small), is_infinite(emit, large))
    ratio = emit.select(no_part, 0.0, emit.div(small, large))
    far = emit.add(emit.elementwise("log", large), emit.mul(log1p(emit, emit.mul(ratio, ratio)), 0.5))
    # Between 1/2 and 2: the square minus 1, as a product to avoid cancellation.
    one = emit.like(x, 1.0)
    excess = emit.add(emit.mul(emit.sub(large, one), emit.add(large, one)), emit.mul(small, small))
    near = emit.mul(log1p(emit, excess), 0.5)
    is_near = emit.both(emit.compare("gt", excess, -0.75), emit.compare("lt", excess, 3.0))
    return emit.select(is_near, near, far)


def exp(emit: HloEmitter, z: Lowered) -> Lowered:
    """`exp(x)·cos(y) + i·exp(x)·sin(y)`, which is 0 for x = -inf and any imaginary part."""
    x, y = parts_of(emit, z)
    size, finite = emit.elementwise("exponential", x), is_finite(emit, y)
    cosine, sine = (_grown(emit, emit.elementwise(name, y), x, size, z.dtype) for name in ("cosine", "sine"))
    real = emit.select(finite, cosine, emit.select(is_infinite(emit, x), size, math.nan))
    vanishing = emit.select(emit.compare("eq", x, -math.inf), size, math.nan)
    imaginary = emit.select(finite, sine, vanishing)
    return joined(emit, z.dtype, real, emit.select(_is_zero(emit, y), y, imaginary))


def _grown(emit: HloEmitter, factor: Lowered, x: Lowered, size: Lowered, kind: DType) -> Lowered:
    """`factor·size` for a `size` that grows like `exp(x)`. `size` may overflow although the product is finite."""
    usual = emit.mul(factor, size)
    if kind is not c128:  # the product is beyond the range of f32
        return usual
    root = emit.elementwise("exponential", emit.mul(x, 0.5))
    # The barrier keeps XLA from merging the two roots into one exponential.
    large = emit.mul(emit.kept(emit.mul(factor, root)), root)
    is_large = emit.both(emit.compare("gt", x, _LARGE), is_finite(emit, x))
    return emit.select(is_large, large, usual)


def sqrt(emit: HloEmitter, z: Lowered) -> Lowered:
    """The root whose imaginary part has the sign of the imaginary part of z, including the sign of a zero."""
    root = emit.elementwise("sqrt", z)
    real, imaginary = (emit.elementwise(name, root, kind=z.dtype.part) for name in ("real", "imag"))
    x, y = (emit.elementwise(name, z, kind=z.dtype.part) for name in ("real", "imag"))
    steep, unknown = is_infinite(emit, y), emit.compare("ne", y, y)
    right = emit.either(steep, emit.both(unknown, emit.compare("eq", x, math.inf)))
    up = emit.either(steep, emit.both(unknown, emit.compare("eq", x, -math.inf)))
    real, imaginary = emit.select(right, math.inf, real), emit.select(up, math.inf, imaginary)
    is_below = emit.both(
        emit.compare("lt", emit.bitcast(y, i32 if y.dtype is f32 else i64), 0), emit.compare("eq", y, y)
    )
    size = emit.elementwise("abs", imaginary)
    return emit.elementwise("complex", real, emit.select(is_below, emit.neg(size), size), kind=z.dtype)


def _hyperbolic(emit: HloEmitter, x: Lowered) -> Parts:
    """The hyperbolic sine and cosine, from `e = exp(x) - 1`: sinh is `(e + e/(e + 1))/2`, without cancellation at 0."""
    less_one = emit.elementwise("exponential_minus_one", x)
    exponential, inverse = emit.elementwise("exponential", x), emit.elementwise("exponential", emit.neg(x))
    sinh = emit.mul(emit.add(less_one, emit.div(less_one, exponential)), 0.5)
    far = emit.compare("gt", emit.elementwise("abs", x), 20.0)  # where the quotient may be infinity/infinity
    sinh = emit.select(far, emit.mul(emit.sub(exponential, inverse), 0.5), sinh)
    return sinh, emit.mul(emit.add(exponential, inverse), 0.5)


def _beside(emit: HloEmitter, zero: Lowered, other: Lowered) -> Lowered:
    """A product that is a zero if the first factor is 0, even with infinities and NaN."""
    usual = emit.either(is_finite(emit, other), emit.compare("ne", zero, 0.0))
    sign = emit.select(emit.compare("lt", other, 0.0), emit.like(other, -1.0), 1.0)
    return emit.mul(zero, emit.select(usual, other, sign))


def _hyperbolic_product(
    emit: HloEmitter, factor: Lowered, y: Lowered, function: Lowered, usual: Lowered, kind: DType
) -> Lowered:
    """`factor·function` for a hyperbolic function of y: `usual`, unless it may overflow although the product does not."""
    if kind is not c128:
        return usual
    size, half = emit.elementwise("abs", y), emit.mul(factor, 0.5)
    signed = emit.select(emit.compare("lt", function, 0.0), emit.neg(half), half)
    is_number = emit.both(is_finite(emit, factor), emit.compare("ne", factor, 0.0))
    far = emit.both(emit.compare("gt", size, _LARGE), emit.both(is_finite(emit, y), is_number))
    return emit.select(far, _grown(emit, signed, size, function, kind), usual)


def sin(emit: HloEmitter, z: Lowered) -> Lowered:
    """`sin(x)·cosh(y) + i·cos(x)·sinh(y)`."""
    x, y = parts_of(emit, z)
    sinh, cosh = _hyperbolic(emit, y)
    real, imaginary = emit.elementwise("sine", x), emit.elementwise("cosine", x)
    unknown = emit.both(is_infinite(emit, y), emit.compare("ne", real, real))
    usual = emit.select(unknown, math.inf, _beside(emit, sinh, imaginary))
    imaginary = _hyperbolic_product(emit, imaginary, y, sinh, usual, z.dtype)
    real = _hyperbolic_product(emit, real, y, cosh, _beside(emit, real, cosh), z.dtype)
    return joined(emit, z.dtype, real, imaginary)


def cos(emit: HloEmitter, z: Lowered) -> Lowered:
    """`cos(x)·cosh(y) - i·sin(x)·sinh(y)`."""
    x, y = parts_of(emit, z)
    sinh, cosh = _hyperbolic(emit, y)
    real, sine = emit.elementwise("cosine", x), emit.elementwise("sine", x)
    unknown = emit.both(is_infinite(emit, y), emit.compare("ne", real, real))
    # Either factor of the imaginary part may be 0 and the other an infinity or NaN.
    imaginary = emit.select(_is_zero(emit, sinh), _beside(emit, sinh, sine), _beside(emit, sine, sinh))
    imaginary = _hyperbolic_product(emit, sine, y, sinh, imaginary, z.dtype)
    usual = emit.select(unknown, math.inf, emit.mul(real, cosh))
    real = _hyperbolic_product(emit, real, y, cosh, usual, z.dtype)
    return joined(emit, z.dtype, real, emit.neg(imaginary))


def tanh(emit: HloEmitter, z: Lowered) -> Lowered:
    """With `t = tan y` and `s = sinh x`, `((1 + t²)·√(1 + s²)·s + i·t) / (1 + (1 + t²)·s²)` (W. Kahan, Branch cuts for
    complex elementary functions, 1987), and from 20 on `±1 + 4i·sin(y)·cos(y)·exp(-2|x|)`.
    """
    x, y = parts_of(emit, z)
    sine, cosine = emit.elementwise("sine", y), emit.elementwise("cosine", y)
    s, _ = _hyperbolic(emit, x)
    t, squared = emit.div(sine, cosine), emit.mul(s, s)
    beta = emit.add(emit.mul(t, t), 1.0)
    under = emit.add(emit.mul(beta, squared), 1.0)
    rho = emit.elementwise("sqrt", emit.add(squared, 1.0))
    real, imaginary = emit.div(emit.mul(emit.mul(beta, rho), s), under), emit.div(t, under)
    size = emit.elementwise("abs", x)
    far, infinite = emit.compare("gt", size, 20.0), is_infinite(emit, x)
    limit = emit.select(emit.compare("gt", x, 0.0), emit.like(x, 1.0), -1.0)
    slight = emit.mul(emit.mul(emit.mul(sine, cosine), 4.0), emit.elementwise("exponential", emit.mul(size, -2.0)))
    slight = emit.select(emit.both(infinite, emit.compare("ne", slight, slight)), 0.0, slight)
    real = emit.select(far, emit.add(limit, emit.select(infinite, 0.0, emit.mul(slight, 0.0))), real)
    imaginary = emit.select(far, slight, imaginary)
    return joined(emit, z.dtype, emit.select(_is_zero(emit, x), x, real), emit.select(_is_zero(emit, y), y, imaginary))


def power(emit: HloEmitter, z: Lowered, w: Lowered) -> Lowered:
    """`exp(w·log z)`. It is 0 where its magnitude is 0, for any phase.

    z**0 and 1**w are 1, and z**1 is z. 0**w is 0 where the real part of w is positive, else NaN.
    """
    (x, y), (u, v) = parts_of(emit, z), parts_of(emit, w)
    if z.dtype is c128:  # its squares may overflow
        size = _log_of_modulus(emit, z, x, y)
    else:
        size = emit.mul(emit.elementwise("log", emit.add(emit.mul(x, x), emit.mul(y, y))), 0.5)
    angle = emit.elementwise("atan2", y, x)
    grown = emit.elementwise("exponential", emit.sub(emit.mul(u, size), emit.mul(v, angle)))
    # For a real exponent the phase does not depend on the magnitude, which may be infinite.
    phase = emit.add(emit.select(_is_zero(emit, v), 0.0, emit.mul(v, size)), emit.mul(u, angle))
    vanishes = emit.compare("eq", grown, 0.0)
    real, imaginary = (emit.mul(grown, emit.elementwise(name, phase)) for name in ("cosine", "sine"))
    imaginary = emit.select(_is_zero(emit, phase), phase, imaginary)
    parts = [emit.select(vanishes, 0.0, part) for part in (real, imaginary)]
    at_zero = emit.both(emit.compare("eq", x, 0.0), emit.compare("eq", y, 0.0))
    is_positive = emit.both(emit.compare("gt", u, 0.0), emit.compare("eq", v, v))
    of_zero = emit.select(is_positive, emit.like(u, 0.0), math.nan)
    to_zero = emit.both(emit.compare("eq", u, 0.0), emit.compare("eq", v, 0.0))
    parts = [emit.select(at_zero, of_zero, part) for part in parts]
    by_one = emit.both(emit.compare("eq", u, 1.0), emit.compare("eq", v, 0.0))
    parts = [emit.select(by_one, same, part) for same, part in zip((x, y), parts, strict=True)]
    of_one = emit.both(emit.compare("eq", x, 1.0), emit.compare("eq", y, 0.0))
    is_one = emit.either(to_zero, of_one)
    parts = [emit.select(is_one, one, part) for one, part in zip((1.0, 0.0), parts, strict=True)]
    return joined(emit, z.dtype, *parts)
