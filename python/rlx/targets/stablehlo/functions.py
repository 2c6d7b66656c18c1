"""Elementary functions that StableHLO lacks, composed of functions that it has."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlx.ir.dtype import f64
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.error_function import erf, erfc
from rlx.targets.stablehlo.rules import Lowered


def _log(emit: HloEmitter, x: Lowered) -> Lowered:
    return emit.elementwise("log", x)


def log1p(emit: HloEmitter, x: Lowered) -> Lowered:
    """`log(1 + x)`. XLA's own function has an error of a hundred ulp in f64.

    For f64 this uses W. Kahan's correction of the rounding of `1 + x` (D. Goldberg, ACM Computing Surveys 23, 1991, theorem 4).
    """
    if x.dtype is not f64:
        return emit.elementwise("log_plus_one", x)
    u = emit.add(x, 1)
    excess = emit.sub(emit.barrier(u), emit.like(u, 1))
    kept = emit.either(emit.compare("eq", excess, 0), emit.compare("eq", x, math.inf))
    corrected = emit.mul(_log(emit, u), emit.div(x, emit.select(kept, 1, excess)))
    return emit.select(kept, x, corrected)


def _root(emit: HloEmitter, x: Lowered) -> Lowered:
    return emit.elementwise("sqrt", x)


def _signed(emit: HloEmitter, size: Lowered, x: Lowered) -> Lowered:
    """A magnitude with the sign of x, or x itself where it is 0 or NaN."""
    kept = emit.either(emit.compare("eq", x, 0), emit.compare("ne", x, x))
    return emit.select(kept, x, emit.select(emit.compare("lt", x, 0), emit.neg(size), size))


# --- circular ---------------------------------------------------------------------------------------


def _cathetus(emit: HloEmitter, x: Lowered) -> Lowered:
    """`sqrt(1 - x²)`, without a difference of rounded numbers."""
    return _root(emit, emit.mul(emit.sub(emit.like(x, 1), x), emit.add(x, 1)))


def asin(emit: HloEmitter, x: Lowered) -> Lowered:
    """Arc sine."""
    return emit.elementwise("atan2", x, _cathetus(emit, x))


def acos(emit: HloEmitter, x: Lowered) -> Lowered:
    """Arc cosine."""
    return emit.elementwise("atan2", _cathetus(emit, x), x)


# --- hyperbolic -------------------------------------------------------------------------------------


def _halves(emit: HloEmitter, x: Lowered) -> tuple[Lowered, Lowered]:
    """`exp(|x|)/2` and `exp(-|x|)/2`. The first is computed from its root, to avoid premature overflow."""
    root = emit.elementwise("exponential", emit.mul(emit.elementwise("abs", x), 0.5))
    return emit.mul(emit.mul(root, 0.5), root), emit.div(emit.div(emit.like(x, 0.5), root), root)


def sinh(emit: HloEmitter, x: Lowered) -> Lowered:
    """Hyperbolic sine."""
    rise = emit.elementwise("exponential_minus_one", x)
    near = emit.mul(emit.add(rise, emit.div(rise, emit.add(rise, 1))), 0.5)
    far = _signed(emit, emit.sub(*_halves(emit, x)), x)
    return emit.select(emit.compare("lt", emit.elementwise("abs", x), 1), near, far)


def cosh(emit: HloEmitter, x: Lowered) -> Lowered:
    """Hyperbolic cosine."""
    return emit.add(*_halves(emit, x))


def _far(x: Lowered) -> float:
    """The limit from which `sqrt(x² ± 1)` rounds to x."""
    return 2.0**14 if x.dtype.itemsize == 4 else 2.0**28


def _log_of_double(emit: HloEmitter, x: Lowered) -> Lowered:
    return emit.add(_log(emit, x), math.log(2))


def asinh(emit: HloEmitter, x: Lowered) -> Lowered:
    """Inverse of `sinh`."""
    size = emit.elementwise("abs", x)
    bounded = emit.min(size, _far(x))
    square = emit.mul(bounded, bounded)
    rise = emit.div(square, emit.add(_root(emit, emit.add(square, 1)), 1))
    near = log1p(emit, emit.add(bounded, rise))
    return _signed(emit, emit.select(emit.compare("gt", size, _far(x)), _log_of_double(emit, size), near), x)


def acosh(emit: HloEmitter, x: Lowered) -> Lowered:
    """Inverse of `cosh`."""
    excess = emit.sub(emit.min(x, _far(x)), emit.like(x, 1))
    near = log1p(emit, emit.add(excess, _root(emit, emit.mul(excess, emit.add(excess, 2)))))
    found = emit.select(emit.compare("gt", x, _far(x)), _log_of_double(emit, x), near)
    return emit.select(emit.compare("lt", x, 1), math.nan, found)


def atanh(emit: HloEmitter, x: Lowered) -> Lowered:
    """Inverse of `tanh`."""
    size = emit.elementwise("abs", x)
    ratio = emit.div(emit.add(size, size), emit.sub(emit.like(x, 1), size))
    found = emit.mul(log1p(emit, ratio), 0.5)
    beyond = emit.select(emit.compare("gt", size, 1), math.nan, found)
    return _signed(emit, beyond, x)


# --- exponentials -----------------------------------------------------------------------------------


def exp2(emit: HloEmitter, x: Lowered) -> Lowered:
    """`2^x`."""
    return emit.elementwise("power", emit.like(x, 2), x)


def _to_base(base: float) -> Callable[[HloEmitter, Lowered], Lowered]:
    return lambda emit, x: emit.mul(_log(emit, x), 1 / math.log(base))


FUNCTIONS: dict[str, Callable[[HloEmitter, Lowered], Lowered]] = {
    "exp2": exp2,
    "log1p": log1p,
    "log2": _to_base(2),
    "log10": _to_base(10),
    "erf": erf,
    "erfc": erfc,
    "asin": asin,
    "acos": acos,
    "sinh": sinh,
    "cosh": cosh,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
