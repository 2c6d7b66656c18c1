"""Functions of complex scalars of MLIR, on real and imaginary parts.

The complex dialect's own expansions lose most digits in sqrt, log near the unit circle and tanh, return NaN for arg 0, and
overflow in intermediate values of finite results. `complex_formulas` has the formulas that are used instead.
"""

from __future__ import annotations

from rlx import mlir
from rlx.ir.dtype import f64
from rlx.numerics import functions, trigonometry
from rlx.numerics.arithmetic import MAGNITUDES, Magnitudes, Parts, is_finite, is_infinite, sum_error
from rlx.numerics.complex_formulas import FORMULAS, hypot, special_powers
from rlx.numerics.division import Scale, quotient
from rlx.numerics.powers import exact_log, exp_pair, ln2_pair, log_pair
from rlx.numerics.scalars import Scalars

_Parts = Parts["mlir.Value"]


class Reals(Scalars):
    """`Functions` of scalars of f32 or f64, the parts of complex scalars."""

    @property
    def magnitudes(self) -> Magnitudes:
        return MAGNITUDES[self.dtype.name]

    def sqrt(self, a: mlir.Value) -> mlir.Value:
        return self.math.sqrt(a)

    def barrier(self, a: mlir.Value) -> mlir.Value:
        """The value itself: MLIR and LLVM do not reassociate."""
        return a

    def exp(self, a: mlir.Value) -> mlir.Value:
        return self.math.exp(a)

    def expm1(self, a: mlir.Value) -> mlir.Value:
        return self._library("expm1", a)

    def log(self, a: mlir.Value) -> mlir.Value:
        return functions.FUNCTIONS["log"](self, a)

    def log1p(self, a: mlir.Value) -> mlir.Value:
        return self._library("log1p", a)

    def sin(self, a: mlir.Value) -> mlir.Value:
        return trigonometry.sin(self, a)

    def cos(self, a: mlir.Value) -> mlir.Value:
        return trigonometry.cos(self, a)

    def tan(self, a: mlir.Value) -> mlir.Value:
        return trigonometry.tan(self, a)

    def atan2(self, y: mlir.Value, x: mlir.Value) -> mlir.Value:
        return trigonometry.atan2(self, y, x)

    def size_squared_less_one(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        p, q = self.mul(a, a), self.mul(b, b)
        lost = self.add(self.fma(a, a, self.neg(p)), self.fma(b, b, self.neg(q)))
        less = self.sub(p, self.constant(1.0))
        total = self.add(less, q)
        return self.add(total, self.add(sum_error(self, less, q, total), lost))

    def _library(self, kind: str, x: mlir.Value) -> mlir.Value:
        """A function that compilers expand for f32 but not for f64."""
        return functions.FUNCTIONS[kind](self, x) if self.dtype is f64 else getattr(self.math, kind)(x)


def activation(s: Scalars, kind: str, z: mlir.Value) -> mlir.Value:
    """An activation on a complex scalar. The result of `abs` is real."""
    r, (x, y) = Reals(s.dtype.part), _split(s, z)
    if kind == "abs":
        return hypot(r, x, y)
    return _joined(s, (r.neg(x), r.neg(y)) if kind == "neg" else FORMULAS[kind](r, x, y))


def divide(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """a/b, as `quotient` computes it."""
    return _joined(s, quotient(Reals(s.dtype.part), _split(s, a), _split(s, b)))


def power(s: Scalars, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """a**b as exp(b·log a), with log a and its product with b as sums of two floats.

    `special_powers` has the exact cases.
    """
    r = Reals(s.dtype.part)
    (x, y), (u, v) = _split(s, a), _split(s, b)
    size, angle = _log_size_pair(r, x, y), trigonometry.angle_pair(r, y, x)
    zero, half = r.constant(0.0), r.constant(0.5)
    growth = _sum_of_products(r, (u, size), (r.neg(v), angle))
    grown = exp_pair(r, *growth)
    is_real = r.compare("eq", v, zero)  # then the phase does not depend on the magnitude, which may be infinite
    turning = r.select(is_real, zero, size[0]), r.select(is_real, zero, size[1])
    phase, correction = _sum_of_products(r, (v, turning), (u, angle))
    is_small = r.compare("lt", r.absolute(correction), r.constant(2.0**-10))
    correction = r.select(is_small, correction, zero)  # else the phase has no correct digits
    sine, cosine = trigonometry.sin(r, phase), trigonometry.cos(r, phase)
    real, imaginary = r.fma(r.neg(sine), correction, cosine), r.fma(cosine, correction, sine)
    # Where the size overflows, a small part of it may not: half of the growth each time.
    root, overflows = exp_pair(r, *(r.mul(half, part) for part in growth)), is_infinite(r, grown)
    first, second = r.select(overflows, root, grown), r.select(overflows, root, r.constant(1.0))
    real, imaginary = (r.mul(r.mul(part, first), second) for part in (real, imaginary))
    imaginary = r.select(r.compare("eq", phase, zero), phase, imaginary)
    vanishes = r.compare("eq", grown, zero)  # for any phase, which may be infinite
    real, imaginary = r.select(vanishes, zero, real), r.select(vanishes, zero, imaginary)
    return _joined(s, special_powers(r, (x, y), (u, v), (real, imaginary)))


def _sum_of_products(r: Reals, *terms: tuple[mlir.Value, _Parts]) -> _Parts:
    """a·x + b·y as a float and a correction, where x and y are such sums."""
    (a, (x, x_low)), (b, (y, y_low)) = terms
    p, q = r.mul(a, x), r.mul(b, y)
    p_lost = r.fma(a, x_low, r.fma(a, x, r.neg(p)))
    q_lost = r.fma(b, y_low, r.fma(b, y, r.neg(q)))
    total = r.add(p, q)
    rest = r.add(sum_error(r, p, q, total), r.add(p_lost, q_lost))
    high = r.add(total, rest)
    # Of an infinite total the errors are not numbers.
    finite, zero = is_finite(r, total), r.constant(0.0)
    return r.select(finite, high, total), r.select(finite, r.add(r.sub(total, high), rest), zero)


def _log_size_pair(r: Reals, x: mlir.Value, y: mlir.Value) -> _Parts:
    """Log √(x² + y²) as a float and a correction."""
    scale = Scale(r, r.max(r.absolute(x), r.absolute(y)))
    x, y = r.mul(x, scale.power()), r.mul(y, scale.power())
    p, q = r.mul(x, x), r.mul(y, y)
    lost = r.add(r.fma(x, x, r.neg(p)), r.fma(y, y, r.neg(q)))
    square = r.add(p, q)
    lost = r.add(sum_error(r, p, q, square), lost)
    high, low = log_pair(r, square, exact_log)
    low = r.add(low, r.div(lost, square))
    # The factor is 2^n: log|z| is half of that, less n·log 2.
    count = r.neg(scale.exponent())
    ln2_high, ln2_low = ln2_pair(r)
    half = r.constant(0.5)
    base, part = r.mul(count, ln2_high), r.mul(half, high)
    total = r.add(base, part)
    rest = r.fma(count, ln2_low, r.mul(half, low))
    return total, r.add(sum_error(r, base, part, total), rest)


def _split(s: Scalars, z: mlir.Value) -> _Parts:
    return s.complex.re(z), s.complex.im(z)


def _joined(s: Scalars, parts: _Parts) -> mlir.Value:
    return s.complex.create_(s.element, *parts)
