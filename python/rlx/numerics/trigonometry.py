"""sin, cos, tan and atan of f32 and f64 scalars, to about 1 ulp over the whole range.

A code generator's own f32 versions lose all digits near multiples of π and beyond a few thousand, and its f64 versions need a
library that is not available. The argument is reduced by the method of M. Payne and R. Hanek ("Radian reduction for
trigonometric functions", 1983): it is multiplied, as an integer, with the relevant bits of 2/π.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

from rlx import mlir
from rlx.numerics.scalars import Scalars
from rlx.numerics.series import economise, horner
from rlx.numerics.words import FloatBits

_Pair = tuple["mlir.Value", "mlir.Value"]

_TOLERANCE = {"f32": 2.0**-28, "f64": 2.0**-58}


def sin(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Sine of a scalar; NaN for infinities. The sign of a zero is kept."""
    quadrant, high, low = _reduced(s, x)
    w = FloatBits(s)
    value = s.select(w.is_set(quadrant, 1), _cos_kernel(s, high, low), _sin_kernel(s, high, low))
    turned = w.left(w.both(quadrant, w.constant(2)), w.format.width - 2)
    return _finite(s, x, w.with_sign_flipped(value, w.flipped(turned, w.sign(x))))


def cos(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Cosine of a scalar; NaN for infinities."""
    quadrant, high, low = _reduced(s, x)
    w = FloatBits(s)
    value = s.select(w.is_set(quadrant, 1), _sin_kernel(s, high, low), _cos_kernel(s, high, low))
    next_quadrant = w.add(quadrant, w.constant(1))
    turned = w.left(w.both(next_quadrant, w.constant(2)), w.format.width - 2)
    return _finite(s, x, w.with_sign_flipped(value, turned))


def tan(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Tangent of a scalar; NaN for infinities. The sign of a zero is kept."""
    quadrant, high, low = _reduced(s, x)
    w = FloatBits(s)
    sine, cosine = _sin_kernel(s, high, low), _cos_kernel(s, high, low)
    odd = w.is_set(quadrant, 1)
    quotient = s.div(s.select(odd, s.neg(cosine), sine), s.select(odd, sine, cosine))
    return _finite(s, x, w.with_sign_flipped(quotient, w.sign(x)))


def atan(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Arc tangent of a scalar. The sign of a zero is kept."""
    size = s.math.absf(x)
    one = s.constant(1.0)
    steep = s.compare("gt", size, one)
    angle = _first_octant(s, s.select(steep, one, size), s.select(steep, size, one))
    w = FloatBits(s)
    return w.with_sign_flipped(s.add(*_placed(s, angle, steep)), w.sign(x))


def atan2(s: Scalars, y: mlir.Value, x: mlir.Value) -> mlir.Value:
    """The angle of the point (x, y), with the special cases of C99."""
    return s.add(*angle_pair(s, y, x))


def asin(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Arc sine of a scalar; NaN beyond 1. The sign of a zero is kept."""
    return atan2(s, x, _cathetus(s, x))


def acos(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Arc cosine of a scalar; NaN beyond 1."""
    return atan2(s, _cathetus(s, x), x)


def _cathetus(s: Scalars, x: mlir.Value) -> mlir.Value:
    """`sqrt(1 - x²)`, without a difference of rounded numbers."""
    one = s.constant(1.0)
    return s.math.sqrt(s.mul(s.sub(one, x), s.add(one, x)))


def angle_pair(s: Scalars, y: mlir.Value, x: mlir.Value) -> _Pair:
    """`atan2` as a float and a correction: at least four bits more precise than a float alone."""
    w = FloatBits(s)
    across, up = s.math.absf(x), s.math.absf(y)
    steep = s.compare("gt", up, across)
    angle = _first_octant(s, s.select(steep, across, up), s.select(steep, up, across))
    high, low = _placed(s, angle, steep, w.is_set(w.of(x), w.sign_mask))
    sign = w.sign(y)
    high, low = w.with_sign_flipped(high, sign), w.with_sign_flipped(low, sign)
    undefined = s.arith.ori(s.is_nan(x), s.is_nan(y))
    return s.select(undefined, s.constant(math.nan), high), low


def _finite(s: Scalars, x: mlir.Value, value: mlir.Value) -> mlir.Value:
    """`value` where x is finite, else NaN."""
    return s.select(s.compare("lt", s.math.absf(x), s.constant(math.inf)), value, s.constant(math.nan))


# --- arc tangent ------------------------------------------------------------------------------


def _first_octant(s: Scalars, opposite: mlir.Value, adjacent: mlir.Value) -> _Pair:
    """The angle whose tangent is opposite/adjacent, for 0 <= opposite <= adjacent, as a float and a correction.

    It is 0 for 0/0 and π/4 for inf/inf. Above tan(π/8), it is π/4 plus the angle with the tangent
    (opposite - adjacent)/(opposite + adjacent).
    """
    zero, bias = s.constant(0.0), FloatBits(s).format.bias
    # Scaling prevents infinite sums, and subnormal differences of small numbers, which may be flushed to 0.
    large, small = s.constant(2.0 ** (bias - 1)), s.constant(2.0 ** -(bias // 3))
    scale = s.select(s.compare("gt", adjacent, large), s.constant(0.5), s.constant(1.0))
    scale = s.select(s.compare("lt", adjacent, small), s.constant(2.0 ** (bias // 3 * 2)), scale)
    same, one = s.compare("eq", opposite, adjacent), s.constant(1.0)
    near = s.select(same, one, s.mul(adjacent, scale))
    far = s.select(same, one, s.mul(opposite, scale))
    far = s.select(s.compare("eq", opposite, zero), zero, far)
    turned = s.compare("gt", far, s.mul(near, s.constant(math.tan(math.pi / 8))))
    difference, total = s.sub(far, near), s.add(near, far)
    over = s.select(turned, difference, far)
    under = s.select(turned, total, near)
    ratio = s.div(over, under)
    over_lost = s.select(turned, s.sub(far, s.add(difference, near)), zero)
    under_lost = s.select(turned, s.sub(far, s.sub(total, near)), zero)
    rest = s.add(s.math.fma(s.neg(ratio), under, over), over_lost)
    rest = s.div(s.sub(rest, s.mul(ratio, under_lost)), under)
    # The correction is NaN next to infinities, and wrong if its terms may be flushed to 0. The angle is then the quotient.
    useful = s.arith.andi(
        s.compare("lt", s.math.absf(rest), one), s.compare("gt", far, s.constant(2.0 ** -(bias // 2)))
    )
    rest = s.select(useful, rest, zero)
    square = s.mul(ratio, ratio)
    tail = s.mul(s.mul(ratio, square), horner(s, square, _atan_series(s.dtype.name)))
    tail = s.add(tail, s.math.fma(s.neg(square), rest, rest))
    quarter, quarter_lost = FloatBits(s).parts(pi() / 4)
    high, low = _sum(s, s.select(turned, quarter, zero), ratio)
    return _sum(s, high, s.add(tail, s.add(low, s.select(turned, quarter_lost, zero))))


def _placed(s: Scalars, angle: _Pair, steep: mlir.Value, behind: mlir.Value | None = None) -> _Pair:
    """Move an angle of the first octant to its octant: `steep` if the absolute values were exchanged, `behind` for x < 0."""
    zero, back = s.constant(0.0), steep
    (half_high, half_low), (whole_high, whole_low) = FloatBits(s).parts(pi() / 2), FloatBits(s).parts(pi())
    base_high, base_low = s.select(steep, half_high, zero), s.select(steep, half_low, zero)
    if behind is not None:
        back = s.arith.xori(steep, behind)
        straight = s.arith.andi(back, behind)
        base_high = s.select(straight, whole_high, base_high)
        base_low = s.select(straight, whole_low, base_low)
    high, low = (s.select(back, s.neg(part), part) for part in angle)
    total, lost = _sum(s, base_high, high)
    return total, s.add(lost, s.add(base_low, low))


def _sum(s: Scalars, a: mlir.Value, b: mlir.Value) -> _Pair:
    """Return a + b and its rounding error, where a is 0 or the larger operand (T. J. Dekker's fast two-sum)."""
    total = s.add(a, b)
    return total, s.add(s.sub(a, total), b)


@cache
def _atan_series(dtype: str) -> tuple[float, ...]:
    """P(z) with atan x = x + x·z·P(z), z = x², up to tan(π/8)² < 0.172."""
    interval = Fraction(0), Fraction(172, 1000)
    return economise(lambda n: Fraction((-1) ** (n + 1), 2 * n + 3), 32, interval, _TOLERANCE[dtype])


# --- sine and cosine --------------------------------------------------------------------------


def _sin_kernel(s: Scalars, high: mlir.Value, low: mlir.Value) -> mlir.Value:
    """sin(high + low) for an angle up to π/4, where low is a correction to high."""
    square = s.mul(high, high)
    cubic = s.mul(s.mul(high, square), horner(s, square, sin_series(s.dtype.name)))
    correction = s.mul(low, s.math.fma(square, s.constant(-0.5), s.constant(1.0)))
    return s.add(high, s.add(cubic, correction))


def _cos_kernel(s: Scalars, high: mlir.Value, low: mlir.Value) -> mlir.Value:
    """cos(high + low) for an angle up to π/4, where low is a correction to high."""
    square = s.mul(high, high)
    half = s.mul(s.constant(0.5), square)
    first = s.sub(s.constant(1.0), half)
    lost = s.sub(s.sub(s.constant(1.0), first), half)
    fourth = s.mul(s.mul(square, square), horner(s, square, cos_series(s.dtype.name)))
    return s.add(first, s.add(lost, s.sub(fourth, s.mul(high, low))))


@cache
def sin_series(dtype: str) -> tuple[float, ...]:
    """S(z) with sin x = x + x·z·S(z), z = x², up to (π/4)² < 0.617."""
    interval = Fraction(0), Fraction(617, 1000)
    return economise(lambda n: Fraction((-1) ** (n + 1), math.factorial(2 * n + 3)), 16, interval, _TOLERANCE[dtype])


@cache
def cos_series(dtype: str) -> tuple[float, ...]:
    """C(z) with cos x = 1 - z/2 + z²·C(z), z = x², up to (π/4)² < 0.617."""
    interval = Fraction(0), Fraction(617, 1000)
    return economise(lambda n: Fraction((-1) ** n, math.factorial(2 * n + 4)), 16, interval, _TOLERANCE[dtype])


# --- reduction of the argument ----------------------------------------------------------------


def _reduced(s: Scalars, x: mlir.Value) -> tuple[mlir.Value, mlir.Value, mlir.Value]:
    """|x| as a count of quarter turns (the last two bits of a word) and an angle high + low up to π/4."""
    w = FloatBits(s)
    size = s.math.absf(x)
    quadrant, fraction_high, fraction_low = _quarter_turns(s, w, w.of(size))
    half_pi, rest = w.parts(pi() / 2)
    product = s.mul(fraction_high, half_pi)
    lost = s.math.fma(fraction_high, half_pi, s.neg(product))
    small = s.math.fma(fraction_high, rest, s.math.fma(fraction_low, half_pi, lost))
    high = s.add(product, small)
    low = s.add(s.sub(product, high), small)
    near = s.compare("lt", size, s.constant(math.pi / 4))
    zero = s.constant(0.0)
    return s.select(near, w.constant(0), quadrant), s.select(near, size, high), s.select(near, zero, low)


def _quarter_turns(s: Scalars, w: FloatBits, bits: mlir.Value) -> tuple[mlir.Value, mlir.Value, mlir.Value]:
    """x·2/π modulo 4, for x >= π/4 given by its bits: the nearest integer, and the remainder as high + low.

    x is M·2^k with an integer M. The bits of 2/π before the bit of value 2^(1-k) contribute multiples of 4. So M is multiplied
    with the three words that begin there, and the three lowest words of the product are kept. Their first two bits count
    quarter turns.
    """
    width, fraction = w.format.width, w.format.fraction
    mantissa = w.both(bits, w.constant((1 << fraction) - 1))
    mantissa = w.either(mantissa, w.constant(1 << fraction))
    # The table begins with a word of zeros before the bits of 2/π, for x below 2^fraction.
    position = w.sub(w.right(bits, fraction), w.constant(w.format.bias + fraction + 2 - width))
    first, second, third = _window(s, w, position)
    _, carried = w.mul_wide(mantissa, third)
    middle, top = w.mul_wide(mantissa, second)
    middle = w.add(middle, carried)
    overflow = s.select(w.below(middle, carried), w.constant(1), w.constant(0))
    top = w.add(w.add(w.mul(mantissa, first), top), overflow)
    # Two bits of quarter turns, then the fraction. From 1/2 on, the next integer is nearer.
    after = w.either(w.left(top, 2), w.right(middle, width - 2))
    below = w.left(middle, 2)
    negative = w.right_signed(after, width - 1)
    quadrant = w.sub(w.right(top, width - 2), negative)
    after, below = w.flipped(after, negative), w.flipped(below, negative)
    return quadrant, *_fraction(s, w, after, below, negative)


def _window(s: Scalars, w: FloatBits, position: mlir.Value) -> list[mlir.Value]:
    """Three words of the bits of 2/π, beginning at a position."""
    width = w.format.width
    words: list[mlir.Value] = [w.constant(word) for word in _two_over_pi(width, w.format.bias)]
    index = w.right(position, width.bit_length() - 1)
    step = 1 << ((len(words) - 4).bit_length() - 1)
    while step:  # after each step, the index is less than `step`
        taken = w.is_set(index, step)
        count = min(len(words), step + 3)
        last = len(words) - 1
        words = [s.select(taken, words[min(i + step, last)], words[i]) for i in range(count)]
        step //= 2
    shift = w.both(position, w.constant(width - 1))
    other = w.flipped(shift, w.constant(width - 1))  # width - 1 - shift: a shift by the whole width is undefined
    return [w.either(w.left(a, shift), w.right(w.right(b, 1), other)) for a, b in itertools.pairwise(words)]


def _fraction(s: Scalars, w: FloatBits, after: mlir.Value, below: mlir.Value, negative: mlir.Value) -> _Pair:
    """Two words after the binary point as a float and a correction, negated where a mask is set."""
    width, fraction = w.format.width, w.format.fraction
    spare = width - fraction - 1
    leading = w.to_float(w.both(after, w.constant(-1 << spare)))
    trailing = w.to_float(w.both(after, w.constant((1 << spare) - 1)))
    lowest = s.mul(w.to_float(w.right(below, 1)), s.constant(2.0 ** (1 - 2 * width)))
    high = s.mul(leading, s.constant(2.0**-width))
    low = s.math.fma(trailing, s.constant(2.0**-width), lowest)
    sign = w.both(negative, w.constant(w.sign_mask))
    return w.with_sign_flipped(high, sign), w.with_sign_flipped(low, sign)


@cache
def _two_over_pi(width: int, bias: int) -> list[int]:
    """A word of zeros, and the bits of 2/π for all finite floats."""
    count = bias // width + 5
    value = int(Fraction(2) / pi() * (1 << width * (count - 1)))
    return [(value >> width * (count - 1 - i)) & ((1 << width) - 1) for i in range(count)]


@cache
def parts_of_half_pi(bits: int, count: int) -> tuple[float, ...]:
    """Numbers of some significant bits whose sum is π/2: each is what is left, rounded."""
    parts: list[float] = []
    rest = pi() / 2
    for _ in range(count):
        unit = Fraction(2) ** (math.frexp(float(rest))[1] - bits)
        parts.append(float(round(rest / unit) * unit))
        rest -= Fraction(parts[-1])
    return tuple(parts)


@cache
def pi() -> Fraction:
    """π to 1400 bits, by J. Machin's formula."""
    one = 1 << 1432

    def arc_cotangent(n: int) -> int:
        power, total, k = one // n, 0, 0
        while power:
            total += (-1) ** k * power // (2 * k + 1)
            power, k = power // (n * n), k + 1
        return total

    return Fraction(4 * (4 * arc_cotangent(5) - arc_cotangent(239)), one)
