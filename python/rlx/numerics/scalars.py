"""Arithmetic on scalars inside loop bodies, by rlx dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rlx import mlir
from rlx.ir.dtype import DType, f32, f64


@cache
def storage_type(dtype: DType) -> mlir.Type:
    """The element type that stores a dtype: signless for unsigned integers, a byte for storage dtypes."""
    return mlir.ir.Type.parse(dtype.element.mlir, context=mlir.context())


def signless(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of a dtype as an array of the stored element type."""
    return array if dtype.element is dtype else array.view(dtype.element.numpy)


def constant(value: Any, element: mlir.Type) -> mlir.Value:
    """A constant of an MLIR element type, or of a vector type with equal lanes."""
    arith = mlir.dialect("arith")
    if isinstance(element, mlir.ir.VectorType):
        return mlir.dialect("vector").broadcast(element, constant(value, element.element_type))
    if isinstance(element, mlir.ir.FloatType):
        return arith.constant(element, mlir.ir.FloatAttr.get(element, float(value)))
    if isinstance(element, mlir.ir.ComplexType):
        part = element.element_type
        parts = [mlir.ir.FloatAttr.get(part, p) for p in (complex(value).real, complex(value).imag)]
        return mlir.dialect("complex").constant(element, mlir.ir.ArrayAttr.get(parts))
    width = element.width if isinstance(element, mlir.ir.IntegerType) else 64
    value = int(value)
    if width < 64 or value > (1 << 63) - 1:
        value &= (1 << width) - 1
        value -= (1 << width) if value >> (width - 1) else 0
    return arith.constant(element, mlir.ir.IntegerAttr.get(element, value))


def _with_digits(value: mlir.Value, dtype: DType, digits: int, dropped: int) -> mlir.Value:
    """Round an integer to odd: keep its leading `digits` bits, and set the last of them if a dropped bit is set."""
    s = Scalars(dtype)
    arith, mask = s.arith, (1 << dropped) - 1
    inexact = s.compare("ne", arith.andi(value, s.constant(mask)), s.constant(0))
    short = arith.ori(
        arith.andi(value, s.constant(~mask)), arith.select(inexact, s.constant(1 << dropped), s.constant(0))
    )
    distance = arith.addi(value, s.constant(1 << digits)) if dtype.is_signed else value
    limit = s.constant(1 << digits + dtype.is_signed)
    return arith.select(arith.cmpi(arith.CmpIPredicate.ult, distance, limit), value, short)


def storage_floats() -> Any:
    """Import the module for conversions of storage floats, which imports this one."""
    from rlx.numerics import storage_floats as found

    return found


class Scalars:
    """Emits arith, math and complex ops on scalars of one dtype.

    A dtype whose `compute` is another dtype is computed in that dtype (`enter` and `leave`). f16 and bf16 are computed in f32:
    CPUs have no f16 library functions, and one operation in f32 rounds to the same f16.

    Args:
        dtype: The dtype.
        lanes: The lanes of vectors to compute with, for arithmetic on floats; None for scalars.
    """

    def __init__(self, dtype: DType, lanes: int | None = None):
        self.outer, self.lanes = dtype, lanes
        self.dtype = dtype.compute
        self.element = self.type_of(storage_type(self.dtype))
        self.arith = mlir.dialect("arith")
        self.math = mlir.dialect("math")
        self.complex = mlir.dialect("complex")

    def type_of(self, scalar: mlir.Type) -> mlir.Type:
        """The type of values whose elements are of a scalar type."""
        return scalar if self.lanes is None else mlir.ir.VectorType.get([self.lanes], scalar)

    def enter(self, value: mlir.Value) -> mlir.Value:
        """Convert a stored scalar to the dtype of the computation."""
        outer = self.outer
        if outer is self.dtype:
            return value
        if not outer.storage:
            return self.arith.extf(self.element, value)
        if outer.is_float:
            return storage_floats().decoded(self, value, outer)
        unused = self.constant(8 * outer.itemsize - outer.bits)
        value = self.arith.shli(value, unused)
        return (self.arith.shrsi if outer.is_signed else self.arith.shrui)(value, unused)

    def leave(self, value: mlir.Value) -> mlir.Value:
        """Convert a computed scalar to the stored dtype."""
        outer = self.outer
        if outer is self.dtype:
            return value
        if not outer.storage:
            return self.arith.truncf(storage_type(outer), value)
        if outer.is_float:
            return storage_floats().encoded(self, value, outer)
        return self.arith.andi(value, self.constant((1 << outer.bits) - 1))

    def constant(self, value: Any) -> mlir.Value:
        return constant(value, self.element)

    # --- arithmetic -------------------------------------------------------------------------------

    def _pick(self, for_float: str, for_integer: str, for_complex: str | None = None) -> Callable[..., mlir.Value]:
        if self.dtype.is_float:
            return getattr(self.arith, for_float)
        if self.dtype.is_complex:
            return getattr(self.complex, for_complex or for_float)
        return getattr(self.arith, for_integer)

    def add(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._pick("addf", "ori" if self.dtype.is_bool else "addi", "add")(a, b)

    def sub(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._pick("subf", "subi", "sub")(a, b)

    def mul(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self._pick("mulf", "andi" if self.dtype.is_bool else "muli", "mul")(a, b)

    def div(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        if self.dtype.is_complex:
            from rlx.numerics import complex_functions

            return complex_functions.divide(self, a, b)
        return self._pick("divf", "divsi" if self.dtype.is_signed else "divui")(a, b)

    def fma(self, a: mlir.Value, b: mlir.Value, c: mlir.Value) -> mlir.Value:
        """a·b + c of floats, rounded once."""
        return self.math.fma(a, b, c)

    def max(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        if self.dtype.is_bool:
            return self.arith.ori(a, b)
        return self._pick("maximumf", "maxsi" if self.dtype.is_signed else "maxui")(a, b)

    def min(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        if self.dtype.is_bool:
            return self.arith.andi(a, b)
        return self._pick("minimumf", "minsi" if self.dtype.is_signed else "minui")(a, b)

    def rem(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """The remainder of a truncating division. For integers, the remainder of division by 0 is `a`."""
        if self.dtype.is_float:
            from rlx.numerics import remainder

            return remainder.remainder(self, a, b)
        return self._divided(a, b, "rem", a, self.constant(0))

    def trunc_div(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """The quotient of integers, rounded toward zero; -1 for division by 0."""
        return self._divided(a, b, "div", self.constant(-1), a)

    def _divided(
        self, a: mlir.Value, b: mlir.Value, kind: str, by_zero: mlir.Value, least_by_minus_one: mlir.Value
    ) -> mlir.Value:
        """A division of integers, with defined results where LLVM's operation is undefined."""
        one, is_zero = self.constant(1), self.compare("eq", b, self.constant(0))
        if not self.dtype.is_signed:
            return self.select(is_zero, by_zero, getattr(self.arith, f"{kind}ui")(a, self.select(is_zero, one, b)))
        least = self.constant(-(1 << 8 * self.dtype.itemsize - 1))
        wraps = self.arith.andi(self.compare("eq", a, least), self.compare("eq", b, self.constant(-1)))
        divided = getattr(self.arith, f"{kind}si")(a, self.select(self.arith.ori(is_zero, wraps), one, b))
        return self.select(is_zero, by_zero, self.select(wraps, least_by_minus_one, divided))

    def shift_left(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """A left shift; 0 if the count is negative or at least the number of bits."""
        inside = self._is_count(b)
        zero = self.constant(0)
        return self.select(inside, self.arith.shli(a, self.select(inside, b, zero)), zero)

    def shift_right(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """A right shift, arithmetic for signed integers. Counts outside [0, bits) shift out all bits except the sign."""
        inside = self._is_count(b)
        if self.dtype.is_signed:
            return self.arith.shrsi(a, self.select(inside, b, self.constant(8 * self.dtype.itemsize - 1)))
        zero = self.constant(0)
        return self.select(inside, self.arith.shrui(a, self.select(inside, b, zero)), zero)

    def _is_count(self, b: mlir.Value) -> mlir.Value:
        """Whether a count is in [0, bits)."""
        return self.arith.cmpi(self.arith.CmpIPredicate.ult, b, self.constant(8 * self.dtype.itemsize))

    def neg(self, a: mlir.Value) -> mlir.Value:
        if self.dtype.is_float:
            return self.arith.negf(a)
        if self.dtype.is_complex:
            return self.complex.neg(a)
        return self.arith.subi(self.constant(0), a)

    def select(self, condition: mlir.Value, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        return self.arith.select(condition, a, b)

    def like(self, value: mlir.Value, number: float) -> mlir.Value:
        """A constant. All values are scalars, so the model does not matter."""
        return self.constant(number)

    def absolute(self, a: mlir.Value) -> mlir.Value:
        return self.math.absf(a)

    def copysign(self, size: mlir.Value, sign: mlir.Value) -> mlir.Value:
        """`size`, which is not negative, with the sign of another float."""
        from rlx.numerics.words import with_sign_of

        return with_sign_of(self, size, sign)

    # --- comparison -------------------------------------------------------------------------------

    def compare(self, kind: str, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """A comparison, as i1. `kind` is a case of the Comparison enumeration. NaN is unequal to everything."""
        predicates = self.arith
        if self.dtype.is_complex:
            return (self.complex.eq if kind == "eq" else self.complex.neq)(a, b)
        if self.dtype.is_float:
            name = ("U" if kind == "ne" else "O") + kind.upper()
            return self.arith.cmpf(getattr(predicates.CmpFPredicate, name), a, b)
        prefix = "" if kind in ("eq", "ne") else "s" if self.dtype.is_signed else "u"
        return self.arith.cmpi(getattr(predicates.CmpIPredicate, prefix + kind), a, b)

    def both(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Whether two conditions hold."""
        return self.arith.andi(a, b)

    def either(self, a: mlir.Value, b: mlir.Value) -> mlir.Value:
        """Whether a condition holds."""
        return self.arith.ori(a, b)

    def is_nan(self, a: mlir.Value) -> mlir.Value:
        """Whether a float is NaN."""
        return self.arith.cmpf(self.arith.CmpFPredicate.UNO, a, a)

    def nearest(self, a: mlir.Value) -> mlir.Value:
        """The integer nearest to a float whose ulp is at most 0.5; ties are rounded up (`slow-rounding`)."""
        return self.math.floor(self.add(a, self.constant(0.5)))

    # --- conversion -------------------------------------------------------------------------------

    def convert(self, value: mlir.Value, source: DType) -> mlir.Value:
        """Convert a *stored* scalar of `source` to a *stored* scalar of this dtype, with the semantics of `rlx.cast`."""
        target = self.outer
        if source is target:
            return value
        if target.is_complex:
            return self._convert_complex(value, source)
        if source.is_complex and not target.is_bool:
            value, source = self.complex.re(value), source.part
        if source.storage and source.is_float:
            if target.is_bool:
                return storage_floats().is_not_zero(value, source)
            if target is f64:  # in f64 no number of `source` is subnormal, so none is flushed to 0
                return storage_floats().decoded(self, value, source)
        from_scalars = Scalars(source)
        value = from_scalars.enter(value)
        source = from_scalars.dtype
        if target.is_bool:
            return from_scalars.compare("ne", value, from_scalars.constant(0))
        if target.storage and target.is_float and source.bits > 16:
            wide = Scalars(source if source.is_float else f32)
            exact = value if source.is_float else wide.from_shortened(value, source)
            return storage_floats().encoded(wide, exact, target)
        return self.leave(self._convert_real(value, source))

    def _convert_complex(self, value: mlir.Value, source: DType) -> mlir.Value:
        parts = Scalars(self.dtype.part)
        if source.is_complex:
            real, imaginary = self.complex.re(value), self.complex.im(value)
            return self.complex.create_(
                self.element, parts.convert(real, source.part), parts.convert(imaginary, source.part)
            )
        return self.complex.create_(self.element, parts.convert(value, source), parts.constant(0))

    def from_shortened(self, value: mlir.Value, source: DType) -> mlir.Value:
        """Convert a 32-bit or 64-bit integer to f32, such that rounding to at most 14 bits gives the correct rounding.

        The last bits of a longer number are rounded to odd, eight at a time, until it has at most 24 bits, and at least 16.
        """
        for dropped in range(8, source.bits - 16, 8):
            value = _with_digits(value, source, 16 + dropped, dropped)
        return self.from_integer(value, signed=source.is_signed)

    def _convert_real(self, value: mlir.Value, source: DType) -> mlir.Value:
        target = self.dtype
        if source is target:
            return value
        if target.is_float:
            if source.is_float:
                if source is f64 and self.outer is not f32:
                    return self._rounded_to_odd(value)
                wider = target.itemsize > source.itemsize
                return (self.arith.extf if wider else self.arith.truncf)(self.element, value)
            if self.outer.name == "bf16" and source.itemsize > 2:
                # f16 does not need this: all integers that are inexact in f32 are beyond its range.
                return self.from_shortened(value, source)
            return self.from_integer(value, signed=source.is_signed and not source.is_bool)
        if source.is_float:
            return self._saturate(value, source)
        bits = 1 if source.is_bool else 8 * source.itemsize
        if bits == 8 * target.itemsize:
            return value
        if bits > 8 * target.itemsize:
            return self.arith.trunci(self.element, value)
        signed = source.is_signed and not source.is_bool
        return (self.arith.extsi if signed else self.arith.extui)(self.element, value)

    def from_integer(self, value: mlir.Value, *, signed: bool) -> mlir.Value:
        """Convert an integer to a computed float, with one rounding.

        Adding 0 does not change these numbers and costs nothing, because LLVM removes it. It keeps MLIR from folding the
        conversion and a following `truncf`, here or in a fused op, into one conversion. Most CPUs lack a conversion from
        integers to bf16, and LLVM then calls a missing function (`__truncsfbf2`). One rounding instead of two would also change
        results.
        """
        converted = (self.arith.sitofp if signed else self.arith.uitofp)(self.element, value)
        return self.arith.addf(converted, self.constant(0.0))

    def _rounded_to_odd(self, value: mlir.Value) -> mlir.Value:
        """Convert f64 to f32, rounded to odd. Rounding the result to f16 or bf16 is then the correct rounding of the f64.

        An inexact f32 with an even last bit is replaced by its neighbour on the other side of the f64 (S. Boldo and
        G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
        """
        arith = self.arith
        word = mlir.ir.IntegerType.get_signless(32)
        near = arith.truncf(self.element, value)
        back, bits = arith.extf(value.type, near), arith.bitcast(word, near)
        one, zero = constant(1, word), constant(0, word)
        even = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(bits, one), zero)
        inexact = arith.cmpf(arith.CmpFPredicate.ONE, back, value)
        short = arith.cmpf(arith.CmpFPredicate.OLT, self.math.absf(back), self.math.absf(value))
        neighbour = arith.select(short, arith.addi(bits, one), arith.subi(bits, one))
        return arith.bitcast(self.element, arith.select(arith.andi(even, inexact), neighbour, bits))

    def _saturate(self, value: mlir.Value, source: DType) -> mlir.Value:
        """Convert a float to an integer: toward zero, saturating, NaN to 0. `fptosi` alone is undefined out of range."""
        from_scalars = Scalars(source)
        least, most = int(self.outer.min), int(self.outer.max)
        above = from_scalars.compare("ge", value, from_scalars.constant(float(most + 1)))
        # least - 1 may not be representable; least itself always is.
        below = from_scalars.compare("le", value, from_scalars.constant(float(least)))
        outside = self.arith.ori(self.arith.ori(above, below), from_scalars.is_nan(value))
        safe = self.arith.select(outside, from_scalars.constant(0), value)
        if self.dtype.bits < 32:  # not every compiler supports a conversion to this number of bits
            wide = self.arith.fptosi(mlir.ir.IntegerType.get_signless(32), safe)
            result = self.arith.trunci(self.element, wide)
        else:
            result = (self.arith.fptosi if self.dtype.is_signed else self.arith.fptoui)(self.element, safe)
        result = self.arith.select(above, self.constant(most), result)
        return self.arith.select(below, self.constant(least), result)
