"""`rlx-iree-emulate`: expands arithmetic that IREE compiles incorrectly.

* On a CPU without f16 instructions, IREE's own function for rounding to f16 returns 0 for all numbers below the smallest normal
  f16. LLVM compares converted f16 numbers in f16, with this rounding after each conversion. Quirk: `small-halves`.
* Without an instruction for the fused multiply-add of f64, IREE rounds the product. Quirk: `unfused-fma`.
* On every CPU, IREE drops the rounding of an f32 to bf16 inside a kernel if the next op widens the result again, so that
  `(x + 3) - 3` would not be rounded. RLX rounds with bit operations. Quirk: `dropped-rounding`.
* IREE's VM rounds floats to the nearest integer where `arith.fptosi` truncates. Quirk: `nearest-integers`.
* Vulkan allows a device to round the product of a fused multiply-add, and errors of `exp`, `log` and `tanh` of many ulp. Quirk:
  `imprecise-functions`.
* On Mesa's lavapipe, some remainders of i64 have the wrong sign. Quirk: `narrow-remainders`.

RLX's lowerings depend on correct results of all these ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlx import mlir
from rlx.ir.dtype import f32
from rlx.numerics.functions import ACCURATE_FUNCTIONS
from rlx.numerics.scalars import Scalars
from rlx.passes.base import Pass, option
from rlx.support.errors import PassError
from rlx.targets.iree.passes.base import every

# The spacing of f32 numbers at 0.5 equals the spacing of f16 subnormals.
_HALF, _SMALLEST_NORMAL = 0.5, 2.0**-14
_BITS_OF_HALF = 0x3F000000
_QUIET_BF16 = 0x0040  # the bit that keeps a NaN a NaN when the lower bits of its fraction are removed
_SIGN, _INFINITY, _BITS_OF_SMALLEST_NORMAL = 0x8000, 0x7C00, 0x0400
_FRACTIONS_APART = 23 - 10
# The difference between the exponent biases of f16 and f32. For infinities and NaN it is added twice.
_REBIASED = (127 - 15) << 23
# By bits of a float: the number of bits in the lower half of its fraction, and a magnitude far from subnormal numbers.
_BITS_OF_LOWER_HALF = {32: 12, 64: 27}
_SMALLEST_SPLIT = {32: 2.0**-90, 64: 2.0**-900}


@dataclass(frozen=True)
class Emulate(Pass, name="rlx-iree-emulate"):
    """Emulate scalar arithmetic for which a CPU has no instructions, or that IREE omits."""

    instructions: tuple[str, ...] = option(
        (),
        "what is emulated: bf16 (rounding to it), f16 (conversions), fma (of f64), fma-f32 (except with constant addends), "
        "functions (exp, log and tanh of f32), remainders (of signed i64), truncation",
    )

    def run(self, module: mlir.Module) -> None:
        unknown = sorted({*self.instructions} - {*EMULATED})
        if unknown:
            raise PassError(f"instructions are some of {', '.join(EMULATED)}, not {', '.join(unknown)}")
        rules = {signature: rule for name in self.instructions for signature, rule in EMULATED[name].items()}
        names = {name for name, *_ in rules}
        for op in every(module, lambda op: op.name in names and is_free(op)):
            rule = rules.get((op.name, str(op.operands[0].type), str(op.results[0].type)))
            if rule is not None:
                with op.location, mlir.ir.InsertionPoint(op):
                    op.results[0].replace_all_uses_with(rule(_ScalarEmitter(), *op.operands))
                op.erase()


def is_free(op: Any) -> bool:
    """Whether an op may be replaced by several ops. This is not possible in the body of a named linalg op."""
    parent = op.parent.name
    return parent == "linalg.generic" or not parent.startswith("linalg.")


class _ScalarEmitter:
    """An emitter for scalar ops."""

    def __init__(self) -> None:
        self.arith, self.math, self.ir = mlir.dialect("arith"), mlir.dialect("math"), mlir.ir
        self.bf16 = self.ir.BF16Type.get()
        self.f16, self.f32 = self.ir.F16Type.get(), self.ir.F32Type.get()
        self.i16, self.i32, self.i64 = (self.ir.IntegerType.get_signless(n) for n in (16, 32, 64))

    def number(self, type_: Any, value: float) -> Any:
        return self.arith.constant(type_, self.ir.FloatAttr.get(type_, value))

    def bits(self, type_: Any, value: int) -> Any:
        return self.arith.constant(type_, self.ir.IntegerAttr.get(type_, value))

    def word(self, a: Any) -> Any:
        """The type of integers with as many bits as a float."""
        return self.i32 if a.type == self.f32 else self.i64

    def below(self, a: Any, limit: float) -> Any:
        """Whether the magnitude of a float is below a limit; false for NaN."""
        return self.arith.cmpf(self.arith.CmpFPredicate.OLT, self.math.absf(a), self.number(a.type, limit))

    def less(self, a: Any, limit: int) -> Any:
        """Whether an unsigned i32 is below a limit."""
        return self.arith.cmpi(self.arith.CmpIPredicate.ult, a, self.bits(self.i32, limit))


def _narrowed(e: _ScalarEmitter, x: Any) -> Any:
    """Round an f32 to the nearest f16."""
    arith = e.arith
    rounded = arith.addf(e.math.absf(x), e.number(e.f32, _HALF))
    magnitude = arith.subi(arith.bitcast(e.i32, rounded), e.bits(e.i32, _BITS_OF_HALF))
    sign = arith.andi(arith.shrui(arith.bitcast(e.i32, x), e.bits(e.i32, 16)), e.bits(e.i32, _SIGN))
    small = arith.bitcast(e.f16, arith.trunci(e.i16, arith.ori(magnitude, sign)))
    return arith.select(e.below(x, _SMALLEST_NORMAL), small, arith.truncf(e.f16, x))


def _rounded_to_bf16(e: _ScalarEmitter, x: Any) -> Any:
    """Round an f32 to the nearest bf16: add half a unit of the upper bits, or slightly less for ties to even, and keep them."""
    arith = e.arith
    bits = arith.bitcast(e.i32, x)
    upper = arith.shrui(bits, e.bits(e.i32, 16))
    is_odd = arith.andi(upper, e.bits(e.i32, 1))
    nearest = arith.shrui(arith.addi(arith.addi(bits, e.bits(e.i32, 0x7FFF)), is_odd), e.bits(e.i32, 16))
    is_nan = arith.cmpf(arith.CmpFPredicate.UNO, x, x)
    result = arith.select(is_nan, arith.ori(upper, e.bits(e.i32, _QUIET_BF16)), nearest)
    return arith.bitcast(e.bf16, arith.trunci(e.i16, result))


def _widened(e: _ScalarEmitter, x: Any) -> Any:
    """Convert an f16 to an f32."""
    arith = e.arith
    bits = arith.extui(e.i32, arith.bitcast(e.i16, x))
    sign = arith.shli(arith.andi(bits, e.bits(e.i32, _SIGN)), e.bits(e.i32, 16))
    magnitude = arith.andi(bits, e.bits(e.i32, _SIGN - 1))
    shifted = arith.shli(magnitude, e.bits(e.i32, _FRACTIONS_APART))
    normal = arith.addi(shifted, e.bits(e.i32, _REBIASED))
    special = arith.addi(normal, e.bits(e.i32, _REBIASED))
    above_half = arith.bitcast(e.f32, arith.addi(magnitude, e.bits(e.i32, _BITS_OF_HALF)))
    small = arith.bitcast(e.i32, arith.subf(above_half, e.number(e.f32, _HALF)))
    wide = arith.select(e.less(magnitude, _INFINITY), normal, special)
    wide = arith.select(e.less(magnitude, _BITS_OF_SMALLEST_NORMAL), small, wide)
    return arith.bitcast(e.f32, arith.ori(wide, sign))


def _multiplied_and_added(e: _ScalarEmitter, a: Any, b: Any, c: Any) -> Any:
    """a·b + c of f32 or f64, rounded once.

    The product uses T. J. Dekker's splitting, and the sums D. E. Knuth's algorithm, each with its rounding error. The sum of
    the errors is rounded to odd (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums", 2008). The product
    is rounded if a value is infinite, or if parts of the factors or of the product would be subnormal, because subnormals may
    be flushed to 0.
    """
    add, sub, mul = e.arith.addf, e.arith.subf, e.arith.mulf
    (a_high, a_low), (b_high, b_low) = _halves(e, a), _halves(e, b)
    product = mul(a, b)
    product_error = add(add(sub(mul(a_high, b_high), product), mul(a_high, b_low)), mul(a_low, b_high))
    product_error = add(product_error, mul(a_low, b_low))
    low, low_error = _summed(e, c, product_error)
    high, high_error = _summed(e, product, low)
    exact = add(high, _summed_to_odd(e, low_error, high_error))
    is_rounded = e.arith.cmpf(e.arith.CmpFPredicate.UGE, e.math.absf(exact), e.number(a.type, float("inf")))
    for value in (a, b, product):
        is_rounded = e.arith.ori(is_rounded, e.below(value, _SMALLEST_SPLIT[a.type.width]))
    return e.arith.select(is_rounded, add(product, c), exact)


def _halves(e: _ScalarEmitter, x: Any) -> tuple[Any, Any]:
    """Split a float into two numbers whose fractions have half the number of bits. Their sum is the float."""
    arith, word, lower = e.arith, e.word(x), _BITS_OF_LOWER_HALF[x.type.width]
    bits = arith.addi(arith.bitcast(word, x), e.bits(word, 1 << lower - 1))
    high = arith.bitcast(x.type, arith.andi(bits, e.bits(word, -1 << lower)))
    return high, arith.subf(x, high)


def _summed(e: _ScalarEmitter, a: Any, b: Any) -> tuple[Any, Any]:
    """Return a sum and its rounding error."""
    add, sub = e.arith.addf, e.arith.subf
    total = add(a, b)
    part = sub(total, a)
    return total, add(sub(a, sub(total, part)), sub(b, part))


def _summed_to_odd(e: _ScalarEmitter, a: Any, b: Any) -> Any:
    """Return a sum rounded to odd: the exact sum, or its neighbour whose last bit is set."""
    arith = e.arith
    total, error = _summed(e, a, b)
    word, zero = e.word(total), e.number(total.type, 0.0)
    bits, one = arith.bitcast(word, total), e.bits(word, 1)
    signs = [arith.cmpf(arith.CmpFPredicate.OGT, value, zero) for value in (total, error)]
    beyond = arith.xori(*signs)  # the total is farther from 0 than the exact sum
    neighbour = arith.select(beyond, arith.subi(bits, one), arith.addi(bits, one))
    even = arith.cmpi(arith.CmpIPredicate.eq, arith.andi(bits, one), e.bits(word, 0))
    inexact = arith.cmpf(arith.CmpFPredicate.ONE, error, zero)
    return arith.bitcast(total.type, arith.select(arith.andi(even, inexact), neighbour, bits))


def _multiplied_and_added_in_f32(e: _ScalarEmitter, a: Any, b: Any, c: Any) -> Any:
    """a·b + c of f32, rounded once unless c is a constant: polynomials do not depend on it."""
    if not isinstance(c, mlir.ir.BlockArgument) and c.owner.name == "arith.constant":
        return e.math.fma(a, b, c)
    return _multiplied_and_added(e, a, b, c)


def _remainder(e: _ScalarEmitter, a: Any, b: Any) -> Any:
    """The remainder of a truncating division, from the quotient."""
    return e.arith.subi(a, e.arith.muli(e.arith.divsi(a, b), b))


def _truncated(kind: str, width: int, e: _ScalarEmitter, x: Any) -> Any:
    """Convert an f32 to an integer, rounding toward zero."""
    is_negative = e.arith.cmpf(e.arith.CmpFPredicate.OLT, x, e.number(e.f32, 0.0))
    whole = e.arith.select(is_negative, e.math.ceil(x), e.math.floor(x))
    return getattr(e.arith, kind)(e.ir.IntegerType.get_signless(width), whole)


def _function(of_scalar: Callable[[Scalars, Any], Any], _: _ScalarEmitter, x: Any) -> Any:
    """A function of an f32."""
    return of_scalar(Scalars(f32), x)


# By kind of emulation: the functions by op name, operand type and result type.
EMULATED: dict[str, dict[tuple[str, str, str], Callable[..., Any]]] = {
    "bf16": {("arith.truncf", "f32", "bf16"): _rounded_to_bf16},
    "f16": {("arith.truncf", "f32", "f16"): _narrowed, ("arith.extf", "f16", "f32"): _widened},
    "fma": {("math.fma", "f64", "f64"): _multiplied_and_added},
    "fma-f32": {("math.fma", "f32", "f32"): _multiplied_and_added_in_f32},
    "functions": {
        (f"math.{name}", "f32", "f32"): partial(_function, of_f32) for name, of_f32 in ACCURATE_FUNCTIONS.items()
    },
    "remainders": {("arith.remsi", "i64", "i64"): _remainder},
    "truncation": {
        (f"arith.{kind}", "f32", f"i{width}"): partial(_truncated, kind, width)
        for kind in ("fptosi", "fptoui")
        for width in (32, 64)
    },
}
