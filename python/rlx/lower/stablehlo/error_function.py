"""The error function, which StableHLO has not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.lower.libm.coefficients import ERF_P, ERF_Q, ERFC_P, ERFC_Q
from rlx.lower.stablehlo.emitter import Emitter
from rlx.lower.stablehlo.rules import Lowered

_ERF_EXCESS = [p - q for p, q in zip(ERF_P, ERF_Q, strict=True)]


def horner(emit: Emitter, x: Lowered, coefficients: Sequence[float]) -> Lowered:
    """The polynomial with these coefficients, the constant first."""
    value: Any = emit.like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = emit.add(emit.mul(value, x), c)
    return value


def erf(emit: Emitter, x: Lowered) -> Lowered:
    """Error function of f32 or f64, to 2 units in the last place."""
    # At 6 the complement is below half a unit in the last place of 1, in both formats.
    size = emit.elementwise("abs", x)
    bounded = emit.min(size, 6.0)
    square = emit.mul(bounded, bounded)
    # P/Q is 1.13 at most: as 1 + (P - Q)/Q it has less of the quotient's rounding.
    excess = emit.div(horner(emit, square, _ERF_EXCESS), horner(emit, square, ERF_Q))
    near = emit.add(x, emit.mul(x, excess))
    far = emit.div(horner(emit, bounded, ERFC_P), horner(emit, bounded, ERFC_Q))
    far = emit.sub(emit.like(x, 1), emit.mul(emit.elementwise("exponential", emit.neg(square)), far))
    far = emit.mul(emit.elementwise("sign", x), far)
    return emit.select(emit.compare("lt", size, 0.5), near, far)
