"""Integer arithmetic on the bits of f32 and f64 scalars in loop bodies."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from rlx import mlir
from rlx.numerics.scalars import Scalars, constant


@dataclass(frozen=True)
class Format:
    """The layout of an IEEE 754 binary format."""

    width: int
    fraction: int
    bias: int


class FloatBits:
    """An emitter for ops on integers of the width of a float dtype. All ops wrap around.

    Args:
        s: Scalars of f32 or f64.
    """

    def __init__(self, s: Scalars):
        self.s = s
        self.arith = s.arith
        layout = s.dtype.float_format
        assert layout is not None
        self.format = Format(s.dtype.bits, layout.mantissa, layout.bias)
        self.integer = s.type_of(mlir.ir.IntegerType.get_signless(self.format.width))
        self.float = s.element

    def constant(self, value: int) -> mlir.Value:
        return constant(value & ((1 << self.format.width) - 1), self.integer)

    def of(self, x: mlir.Value) -> mlir.Value:
        """The bits of a float."""
        return self.arith.bitcast(self.integer, x)

    def float_of(self, bits: mlir.Value) -> mlir.Value:
        """The float with these bits."""
        return self.arith.bitcast(self.float, bits)

    def bits_of_constant(self, value: float) -> int:
        """The bits of a number, rounded to the format."""
        return int(self.rounded(value).view(f"u{self.format.width // 8}"))

    def rounded(self, value: float) -> np.ndarray:
        """A number, rounded to the format."""
        return np.array(value, f"f{self.format.width // 8}")

    # --- arithmetic -------------------------------------------------------------------------------

    def add(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self.arith.addi(a, b)

    def sub(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self.arith.subi(a, b)

    def mul(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self.arith.muli(a, b)

    def mul_wide(self, a: mlir.Value, b: mlir.Value) -> tuple[mlir.Value, mlir.Value]:
        """Low and high word of an unsigned product, from products of half words.

        Some compilers cannot unroll `arith.mului_extended` on vectors of two axes, and some GPUs lack wider words.
        """
        half = self.format.width // 2
        mask = self.constant((1 << half) - 1)
        (a_low, a_high), (b_low, b_high) = ((self.both(x, mask), self.right(x, half)) for x in (a, b))
        # Neither sum overflows: (2^h - 1)^2 + 2^h - 1 is below 2^2h.
        middle = self.add(self.mul(a_high, b_low), self.right(self.mul(a_low, b_low), half))
        carried = self.add(self.mul(a_low, b_high), self.both(middle, mask))
        high = self.add(self.mul(a_high, b_high), self.add(self.right(middle, half), self.right(carried, half)))
        return self.mul(a, b), high

    def both(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Bitwise and."""
        return self.arith.andi(a, b)

    def either(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Bitwise or."""
        return self.arith.ori(a, b)

    def flipped(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Bitwise exclusive or."""
        return self.arith.xori(a, b)

    def left(self, a: mlir.Value, count: int | mlir.Value) -> mlir.Value:
        return self.arith.shli(a, self._count(count))

    def right(self, a: mlir.Value, count: int | mlir.Value) -> mlir.Value:
        """A logical right shift."""
        return self.arith.shrui(a, self._count(count))

    def right_signed(self, a: mlir.Value, count: int | mlir.Value) -> mlir.Value:
        """An arithmetic right shift."""
        return self.arith.shrsi(a, self._count(count))

    def _count(self, count: int | mlir.Value) -> mlir.Value:
        return self.constant(count) if isinstance(count, int) else count

    def is_set(self, a: mlir.Value, mask: int) -> mlir.Value:
        """Whether any bit of a mask is set."""
        zero = self.constant(0)
        return self.arith.cmpi(self.arith.CmpIPredicate.ne, self.both(a, self.constant(mask)), zero)

    def below(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Unsigned less-than."""
        return self.arith.cmpi(self.arith.CmpIPredicate.ult, a, b)

    # --- floats -----------------------------------------------------------------------------------

    @property
    def sign_mask(self) -> int:
        return 1 << (self.format.width - 1)

    def sign(self, x: mlir.Value) -> mlir.Value:
        """The sign bit of a float, in place."""
        return self.both(self.of(x), self.constant(self.sign_mask))

    def with_sign_flipped(self, x: mlir.Value, sign: mlir.Value) -> mlir.Value:
        """A float, negated where the sign bit of a word is set. The word's other bits must be zero."""
        return self.float_of(self.flipped(self.of(x), sign))

    def power_of_two(self, exponent: mlir.Value) -> mlir.Value:
        """`2**exponent` for a word in the range of normal numbers."""
        biased = self.add(exponent, self.constant(self.format.bias))
        return self.float_of(self.left(biased, self.format.fraction))

    def parts(self, exact: Fraction) -> tuple[mlir.Value, mlir.Value]:
        """Two constants: a number rounded to the format, and the rounding error."""
        high = float(self.rounded(float(exact)))
        return self.s.constant(high), self.s.constant(float(exact - Fraction(high)))

    def to_float(self, a: mlir.Value) -> mlir.Value:
        """A signed integer as a float, rounded."""
        return self.s.from_integer(a, signed=True)

    def to_integer(self, x: mlir.Value) -> mlir.Value:
        """A float with a small integer value, as a signed integer."""
        return self.arith.fptosi(self.integer, x)


def nearest_even(s: Scalars, size: mlir.Value) -> mlir.Value:
    """The integer nearest to the non-negative `size`, with ties to even, by adding and subtracting 2^fraction."""
    least_whole = s.constant(2.0 ** FloatBits(s).format.fraction)
    near = s.sub(s.add(size, least_whole), least_whole)
    return s.select(s.compare("lt", size, least_whole), near, size)


def with_sign_of(s: Scalars, size: mlir.Value, x: mlir.Value) -> mlir.Value:
    """The non-negative `size` with the sign of x. LLVM crashes for gfx942 on an f64 `math.copysign` next to an addition."""
    w = FloatBits(s)
    return w.with_sign_flipped(size, w.sign(x))
