"""Activations: functions of one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Operand, sample
from rlx.ir.dtype import f32, f64, i64
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops.lift import cast, tensor_like
from rlx.ops.slopes import slope

# Flops of one element, counting a transcendental function as ten: what a polynomial of that accuracy costs.
_TRANSCENDENTAL = 10


def _erf(x: np.ndarray) -> np.ndarray:
    """Error function to double accuracy, from the standard library."""
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x.astype(np.float64))


def _in_wide(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Evaluate in f64, so that the evaluator's own rounding does not count, and round once."""

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
}
_INTEGER_ACTIVATIONS = ("neg", "abs", "relu")
_COMPLEX_ACTIVATIONS = ("neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh")
_CHEAP = ("relu", "neg", "abs", "round", "sqrt")


class Activation(Card, op="activation"):
    kinds = tuple(ACTIVATIONS)

    def infer(self, x: Shape, *, kind: str) -> Shape:
        if x.dtype.is_integer and kind not in _INTEGER_ACTIVATIONS:
            raise ShapeError(f"{kind} takes floats, not {x.dtype.name}", hint="cast to a float dtype first")
        if x.dtype.is_complex:
            if kind not in _COMPLEX_ACTIVATIONS:
                raise ShapeError(f"{kind} is not defined for c64")
            return x.with_dtype(f32) if kind == "abs" else x
        return x

    def evaluate(self, x: np.ndarray, *, kind: str) -> np.ndarray:
        return ACTIVATIONS[kind](x)

    def build(self, b: Builder, kind: Any, x: Any) -> Tensor:
        x = tensor_like(b, x, f32)
        name = getattr(kind, "value", kind)
        if (x.dtype.is_integer and name not in _INTEGER_ACTIVATIONS) or x.dtype.is_bool:
            x = cast(b, x, f64 if x.dtype is i64 else f32)
        return b.emit("activation", (x,), kind=name)

    def jvp(self, b: Builder, operands: Any, tangents: Any, results: Sequence[Tensor], *, kind: str) -> Tensor:
        (x,), (dx,), (y,) = operands, tangents, results
        if kind == "abs" and x.dtype.is_complex:
            return b.real(dx * b.conjugate(_direction(b, x, y)))
        return _along(b, kind, x, y, dx, adjoint=False)

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, kind: str) -> tuple[Tensor]:
        (x,), (dy,), (y,) = operands, cotangents, results
        if kind == "abs" and x.dtype.is_complex:
            return (_direction(b, x, y) * b.cast(dy, "c64"),)
        return (_along(b, kind, x, y, dy, adjoint=True),)

    elementwise = True

    def cost(self, operands: Any, results: Any, attributes: Any) -> Any:
        base = super().cost(operands, results, attributes)
        factor = 1 if attributes["kind"] in _CHEAP else _TRANSCENDENTAL
        return type(base)(base.flops * factor, base.bytes)

    def samples(self) -> Any:
        low = {"log": 0.01, "sqrt": 0.0, "rsqrt": 0.05}
        for kind in self.kinds:
            high = 1.4 if kind == "tan" else 4.0
            dtypes = ["f32", "f16", "bf16", "f64"]
            dtypes += ["i8", "i16", "i32", "i64", "u8", "u32"] if kind in _INTEGER_ACTIVATIONS else []
            dtypes += ["c64"] if kind in _COMPLEX_ACTIVATIONS else []
            bounds: Any = {"low": low.get(kind, -high), "high": high}
            # IREE's f32 tanh is off by up to 4 units in the last place; everything else by 2 at most.
            loose = 2.0 if kind == "tanh" else 1.0
            yield sample(Operand((3, 5), **bounds), kind=kind, dtypes=dtypes, tolerance=loose)
            yield sample(Operand(("n", 4), **bounds), kind=kind, dtypes=("f32",), tolerance=loose)
        yield sample((0, 4), kind="gelu", dtypes=("f32",))
        yield sample((), kind="silu", dtypes=("f32",))


def _along(b: Builder, kind: str, x: Tensor, y: Tensor, d: Tensor, *, adjoint: bool) -> Tensor:
    """A tangent or cotangent through an activation. The gradient of relu at 0 is 0, that of rounding the identity's."""
    if kind == "neg":
        return -d
    if kind == "round":
        return d
    if not x.dtype.is_complex:
        return b.emit("activation_backward", (x, d), kind=kind)
    found = slope(b, kind, x, y)
    return d * (b.conjugate(found) if adjoint else found)


def _direction(b: Builder, x: Tensor, size: Tensor) -> Tensor:
    """x/|x|, and 0 at 0: the gradient of the size of a complex number."""
    safe = b.where(size == 0.0, 1.0, size)
    return b.complex(b.real(x) / safe, b.imag(x) / safe)
