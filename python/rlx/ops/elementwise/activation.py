"""Activations (functions of one number), and the propagation of tangents and cotangents through them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops import rules
from rlx.ops.elementwise.slopes import slope
from rlx.ops.lift import cast
from rlx.ops.norm import statistics_input

# The flops of a transcendental function per element: the cost of a polynomial of that accuracy.
TRANSCENDENTAL = 10


def _of_each(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the elementwise version of a function of Python's standard library."""
    # Faster than `np.vectorize`.
    return lambda x: np.fromiter(map(function, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


_erf = _of_each(math.erf)


def _in_wide(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Evaluate in f64 and round once, so that the evaluator's own rounding is negligible."""

    def evaluate(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "c":
            return function(x.astype(np.complex128)).astype(x.dtype)
        return function(x.astype(np.float64)).astype(x.dtype)

    return evaluate


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _silu(x: np.ndarray) -> np.ndarray:
    # -inf·0 would be NaN; the limit is -0.
    return np.where(np.isneginf(x), -0.0, x * _sigmoid(x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return np.where(np.isneginf(x), -0.0, 0.5 * x * (1 + _erf(x / np.sqrt(2.0))))


def _gelu_approx(x: np.ndarray) -> np.ndarray:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return np.where(np.isneginf(x), -0.0, 0.5 * x * (1 + np.tanh(inner)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": _in_wide(_gelu),
    "gelu_approx": _in_wide(_gelu_approx),
    "silu": _in_wide(_silu),
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "sigmoid": _in_wide(_sigmoid),
    "tanh": _in_wide(np.tanh),
    "exp": _in_wide(np.exp),
    "log": _in_wide(np.log),
    "sqrt": _in_wide(np.sqrt),
    "rsqrt": _in_wide(lambda x: 1 / np.sqrt(x)),
    "neg": np.negative,
    "abs": np.abs,
    "sin": _in_wide(np.sin),
    "cos": _in_wide(np.cos),
    "tan": _in_wide(np.tan),
    "atan": _in_wide(np.arctan),
    "round": _in_wide(np.rint),
    "floor": _in_wide(np.floor),
    "ceil": _in_wide(np.ceil),
    "exp2": _in_wide(np.exp2),
    "expm1": _in_wide(np.expm1),
    "log2": _in_wide(np.log2),
    "log10": _in_wide(np.log10),
    "log1p": _in_wide(np.log1p),
    "cbrt": _in_wide(np.cbrt),
    "erf": _in_wide(_erf),
    "erfc": _in_wide(_of_each(math.erfc)),
    "asin": _in_wide(np.arcsin),
    "acos": _in_wide(np.arccos),
    "sinh": _in_wide(np.sinh),
    "cosh": _in_wide(np.cosh),
    "asinh": _in_wide(np.arcsinh),
    "acosh": _in_wide(np.arccosh),
    "atanh": _in_wide(np.arctanh),
}
INTEGER = ("neg", "abs", "relu")
# Piecewise constant activations. Derivatives do not propagate through them.
STEPS = ("floor", "ceil")
# Activations that leave integers unchanged.
WHOLE = ("round", "floor", "ceil")
COMPLEX = ("neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh")
# Activations of c64 that are `complex_function` ops.
COMPOSED = (
    *("tan", "atan", "expm1", "log2", "log10", "log1p", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"),
    *("exp2", "rsqrt", "sigmoid"),
)
# Activations through which a tangent or cotangent passes unchanged or negated.
UNIT = ("neg", "round")


def through(b: Builder, kind: str, x: Tensor, y: Tensor, d: Tensor, *, adjoint: bool) -> Tensor:
    """Propagate a tangent or cotangent through an activation, rounded once.

    The gradient of relu at 0 is 0. The gradient of `round` is the identity; that of `floor` and `ceil` is 0.
    """
    if kind == "neg":
        return -d
    if kind == "round":
        return d
    if kind in STEPS:
        return rules.zeros(b, x.shape)
    if kind == "relu":
        return b.where(x > 0.0, d, 0.0)
    if x.dtype.is_complex:
        factor = slope(b, kind, x, y)
        return d * (b.conjugate(factor) if adjoint else factor)
    wide = statistics_input(b, x)
    # If x is already f32 or f64, this op equals the forward op, and `cse` merges the two.
    return cast(b, statistics_input(b, d) * slope(b, kind, wide, b.activation(kind, wide)), x.dtype)


def direction(b: Builder, x: Tensor, size: Tensor) -> Tensor:
    """Return x/|x|, and 0 at 0: the gradient of the modulus of a complex number."""
    safe = b.where(size == 0.0, 1.0, size)
    return b.complex(b.real(x) / safe, b.imag(x) / safe)
