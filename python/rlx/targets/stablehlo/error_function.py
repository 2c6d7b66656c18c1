"""The error function and its complement, which StableHLO lacks."""

from __future__ import annotations

from rlx.numerics.coefficients import (
    ERF_P,
    ERF_Q,
    ERFC_P,
    ERFC_Q,
    ERFC_SCALED,
    ERFC_SHIFT,
    ERFC_SHORT,
    ERFC_SLOPE,
)
from rlx.numerics.series import horner
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered

_ERF_EXCESS = [p - q for p, q in zip(ERF_P, ERF_Q, strict=True)]


def erf(emit: HloEmitter, x: Lowered) -> Lowered:
    """Error function of f32 or f64, to 2 ulp."""
    # At 6 the complement is below half an ulp of 1, in both formats.
    size = emit.elementwise("abs", x)
    bounded = emit.min(size, 6.0)
    square = emit.mul(bounded, bounded)
    # P/Q is at most 1.13. As 1 + (P - Q)/Q, less of the quotient's rounding error remains.
    excess = emit.div(horner(emit, square, _ERF_EXCESS), horner(emit, square, ERF_Q))
    near = emit.add(x, emit.mul(x, excess))
    complement = emit.div(horner(emit, bounded, ERFC_P), horner(emit, bounded, ERFC_Q))
    far = emit.sub(emit.like(x, 1), emit.mul(_exp(emit, emit.neg(square)), complement))
    far = emit.mul(emit.elementwise("sign", x), far)
    return emit.select(emit.compare("lt", size, 0.5), near, far)


def erfc(emit: HloEmitter, x: Lowered) -> Lowered:
    """`1 - erf(x)` of f32 or f64, without cancellation."""
    size = emit.elementwise("abs", x)
    bounded = emit.clamp(size, 0.5, 30.0)  # beyond 30 the result is 0
    # The square as a sum of two numbers. The first is the exact square of a number with few bits.
    few = emit.mul(emit.elementwise("round_nearest_even", emit.mul(bounded, 64.0)), 1 / 64)
    rest = emit.mul(emit.sub(few, bounded), emit.add(few, bounded))
    # XLA would merge the two exponentials into one exponential of a rounded sum.
    main = _exp(emit, emit.neg(emit.mul(few, few)))
    decay = emit.mul(emit.barrier(main), _exp(emit, rest))
    complement = emit.mul(decay, _scaled(emit, bounded))
    outer = emit.select(emit.compare("lt", x, 0.0), emit.sub(emit.like(x, 2), complement), complement)
    return emit.select(emit.compare("lt", size, 0.5), emit.sub(emit.like(x, 1), erf(emit, x)), outer)


def _scaled(emit: HloEmitter, x: Lowered) -> Lowered:
    """`exp(x²)·erfc x` from 0.5 on."""
    one = emit.like(x, 1)
    if x.dtype.name == "f32":
        under = emit.add(x, 1.0)
        place = emit.add(emit.mul(emit.div(one, under), ERFC_SLOPE), ERFC_SHIFT)
        return emit.div(horner(emit, place, ERFC_SHORT), under)
    place = emit.sub(one, emit.div(emit.like(x, 7), emit.add(x, 3.0)))
    return emit.div(horner(emit, place, ERFC_SCALED), emit.add(emit.mul(x, 2.0), 1.0))


def _exp(emit: HloEmitter, x: Lowered) -> Lowered:
    return emit.elementwise("exponential", x)
