"""Elementary functions of f32 and f64 scalars that code generators lack or compute inexactly.

The compilers' expansions of `math.exp`, `log` and `sqrt` are accurate to 1 ulp in both formats, and those of f32 `tanh` and
`erf` to 4 ulp. These are used. `tanh` and `erf` of f64 are library calls, and freestanding code does not have the library.

The functions do not compensate for a CPU that flushes subnormals (in both formats, operands and results): on this CPU,
sin 1e-40 is 0 and log 1e-40 is minus infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from rlx import mlir
from rlx.numerics import error_function, hyperbolic, logarithms, trigonometry
from rlx.numerics.coefficients import ERF_P, ERF_Q, ERFC_P, ERFC_Q
from rlx.numerics.powers import exp_pair, power
from rlx.numerics.scalars import Scalars
from rlx.numerics.series import horner
from rlx.numerics.words import with_sign_of

# W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980, chapter 13.
_TANH_P = (-0.16134119023996228053e4, -0.99225929672236083313e2, -0.96437492777225469787e0)
_TANH_Q = (0.48402357071988688686e4, 0.22337720718962312926e4, 0.11274474380534949335e3, 1.0)


def exp(s: Scalars, x: mlir.Value) -> mlir.Value:
    """The exponential function. Compilers for CPUs expand `math.exp` as well, in less time."""
    return exp_pair(s, x, s.constant(0.0))


def tanh(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Hyperbolic tangent of a scalar."""
    return s.math.tanh(x) if s.dtype.name != "f64" else _accurate_tanh(s, x)


def _accurate_tanh(s: Scalars, x: mlir.Value) -> mlir.Value:
    size = s.math.absf(x)
    square = s.mul(x, x)
    near = s.div(s.mul(square, horner(s, square, _TANH_P)), horner(s, square, _TANH_Q))
    near = s.math.fma(size, near, size)
    one, two = s.constant(1.0), s.constant(2.0)
    far = s.sub(
        one, s.div(two, s.add((s.math.exp if s.dtype.name == "f64" else partial(exp, s))(s.add(size, size)), one))
    )
    # log(3)/2: from here on 2/(exp(2x) + 1) is at most 1/2, so its rounding error is less than that of the result.
    is_near = s.compare("lt", size, s.constant(math.log(3) / 2))
    return with_sign_of(s, s.select(is_near, near, far), x)


def erf(s: Scalars, x: mlir.Value) -> mlir.Value:
    """Error function of a scalar, for `gelu`. The compilers' expansion is faster than that of `error_function.py`."""
    if s.dtype.name != "f64":
        return s.math.erf(x)
    size = s.math.absf(x)
    # At 6 the complement is below half an ulp of 1.
    bounded = s.select(s.compare("gt", size, s.constant(6.0)), s.constant(6.0), size)
    square = s.mul(bounded, bounded)
    is_near = s.compare("lt", size, s.constant(0.46875))
    over = s.select(is_near, horner(s, square, ERF_P), horner(s, bounded, ERFC_P))
    under = s.select(is_near, horner(s, square, ERF_Q), horner(s, bounded, ERFC_Q))
    quotient = s.div(over, under)
    far = s.sub(s.constant(1.0), s.mul(s.math.exp(s.neg(square)), quotient))
    return with_sign_of(s, s.select(is_near, s.mul(size, quotient), far), x)


FUNCTIONS: dict[str, Callable[[Scalars, mlir.Value], mlir.Value]] = {
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "atan": trigonometry.atan,
    "tanh": tanh,
    "exp2": logarithms.exp2,
    "expm1": logarithms.expm1,
    "log": logarithms.log,
    "log2": logarithms.log2,
    "log10": logarithms.log10,
    "log1p": logarithms.log1p,
    "cbrt": logarithms.cbrt,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "asin": trigonometry.asin,
    "acos": trigonometry.acos,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
}

# Functions of f32 for compilers whose own ones are inexact, by the names of ops of the dialect `math`.
ACCURATE_FUNCTIONS: dict[str, Callable[[Scalars, mlir.Value], mlir.Value]] = {
    "exp": exp,
    "log": logarithms.accurate_log,
    "tanh": _accurate_tanh,
}

__all__ = ["ACCURATE_FUNCTIONS", "FUNCTIONS", "erf", "power", "tanh"]
