"""Functions of complex numbers where XLA's own lose digits or NaN. The parts are computed in f64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.dtype import DType, c128, f64
from rlx.numerics.arithmetic import MAGNITUDES, MAGNITUDES_OF_F32_IN_F64, Magnitudes, is_infinite
from rlx.numerics.arithmetic import Parts as PartsOf
from rlx.numerics.complex_formulas import FORMULAS, log_of_modulus, special_powers
from rlx.numerics.division import quotient
from rlx.targets.stablehlo import functions
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered

Parts = PartsOf[Lowered]


class HloReals(HloEmitter):
    """`Functions` of tensors of f64, the parts of complex tensors.

    Args:
        emit: The emitter.
        kind: The dtype of the complex tensors.
    """

    def __init__(self, emit: HloEmitter, kind: DType):
        super().__init__(emit.shardings)
        self._kind = kind

    @property
    def magnitudes(self) -> Magnitudes:
        return MAGNITUDES["f64"] if self._kind is c128 else MAGNITUDES_OF_F32_IN_F64

    def sqrt(self, x: Lowered) -> Lowered:
        return self.elementwise("sqrt", x)

    def exp(self, x: Lowered) -> Lowered:
        return self.elementwise("exponential", x)

    def expm1(self, x: Lowered) -> Lowered:
        return self.elementwise("exponential_minus_one", x)

    def log(self, x: Lowered) -> Lowered:
        return self.elementwise("log", x)

    def log1p(self, x: Lowered) -> Lowered:
        return functions.log1p(self, x)

    def sin(self, x: Lowered) -> Lowered:
        return self.elementwise("sine", x)

    def cos(self, x: Lowered) -> Lowered:
        return self.elementwise("cosine", x)

    def tan(self, x: Lowered) -> Lowered:
        return self.div(self.sin(x), self.cos(x))

    def atan2(self, y: Lowered, x: Lowered) -> Lowered:
        return self.elementwise("atan2", y, x)

    def size_squared_less_one(self, a: Lowered, b: Lowered) -> Lowered:
        one = self.like(a, 1.0)
        return self.add(self.mul(self.sub(a, one), self.add(a, one)), self.mul(b, b))

    # --- complex numbers --------------------------------------------------------------------------

    def split(self, z: Lowered) -> Parts:
        """Real and imaginary part in f64."""
        real, imaginary = (self.elementwise(name, z, kind=z.dtype.part) for name in ("real", "imag"))
        return self.convert(real, f64), self.convert(imaginary, f64)

    def joined(self, parts: Parts) -> Lowered:
        """Complex numbers from f64 parts."""
        real, imaginary = (self.convert(part, self._kind.part) for part in parts)
        return self.elementwise("complex", real, imaginary, kind=self._kind)


def divide(emit: HloEmitter, a: Lowered, b: Lowered) -> Lowered:
    """a/b, as `quotient` computes it."""
    r = HloReals(emit, a.dtype)
    return r.joined(quotient(r, r.split(a), r.split(b)))


def modulus(emit: HloEmitter, z: Lowered) -> Lowered:
    """`|z|`, which is infinite if one part is, regardless of the other."""
    x, y = HloReals(emit, z.dtype).split(z)
    infinite = emit.either(is_infinite(emit, x), is_infinite(emit, y))
    return emit.select(infinite, math.inf, emit.elementwise("abs", z, kind=z.dtype.part))


def _formula(kind: str) -> Callable[[HloEmitter, Lowered], Lowered]:
    def function(emit: HloEmitter, z: Lowered) -> Lowered:
        r = HloReals(emit, z.dtype)
        return r.joined(FORMULAS[kind](r, *r.split(z)))

    return function


FUNCTIONS: dict[str, Callable[[HloEmitter, Lowered], Lowered]] = {kind: _formula(kind) for kind in FORMULAS}


def power(emit: HloEmitter, z: Lowered, w: Lowered) -> Lowered:
    """`exp(w·log z)`. It is 0 where its magnitude is 0, for any phase. `special_powers` has the exact cases."""
    r = HloReals(emit, z.dtype)
    (x, y), (u, v) = r.split(z), r.split(w)
    size, angle = log_of_modulus(r, x, y), r.atan2(y, x)
    grown = r.exp(r.sub(r.mul(u, size), r.mul(v, angle)))
    # For a real exponent the phase does not depend on the magnitude, which may be infinite.
    phase = r.add(r.select(r.compare("eq", v, 0.0), 0.0, r.mul(v, size)), r.mul(u, angle))
    vanishes = r.compare("eq", grown, 0.0)
    real, imaginary = r.mul(grown, r.cos(phase)), r.mul(grown, r.sin(phase))
    imaginary = r.select(r.compare("eq", phase, 0.0), phase, imaginary)
    real, imaginary = r.select(vanishes, 0.0, real), r.select(vanishes, 0.0, imaginary)
    return r.joined(special_powers(r, (x, y), (u, v), (real, imaginary)))
