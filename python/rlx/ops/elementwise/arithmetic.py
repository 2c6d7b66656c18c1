"""Functions of two numbers, as the evaluator computes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def _pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu":
        return _integer_pow(a, b)
    if a.dtype.kind == "c":
        return _complex_pow(a.astype(np.clongdouble), b.astype(np.clongdouble)).astype(a.dtype)
    # Not `power`, which takes a root for the exponent 0.5: a root gives NaN for -inf, and -0 for -0.
    return np.float_power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _complex_pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy's power, but 0 where `|a**b|` is 0: for whole exponents NumPy multiplies, which makes NaN of infinities."""
    size = np.real(b) * np.log(np.abs(a)) - np.imag(b) * np.angle(a)
    return np.where(np.isneginf(size), 0, np.power(a, b))


def _integer_pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = np.broadcast_arrays(a, b)
    negative = b < 0
    positive = np.power(a, np.where(negative, 0, b).astype(b.dtype))
    odd = np.where(b % 2 == 0, 1, -1)
    quotient = np.where(a == 1, 1, np.where(a == -1, odd, 0))
    return np.where(negative, quotient.astype(a.dtype), positive)


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return np.divide(a.astype(wide), b.astype(wide)).astype(a.dtype)


def _rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.fmod(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)  # exact, so rounded nowhere
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


def _trunc_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, ~b.dtype.type(0), quotient)


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = 8 * a.itemsize
    inside = (b >= 0) & (b < bits)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0).astype(a.dtype)), a.dtype.type(0))


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    last = 8 * a.itemsize - 1
    shifted = np.right_shift(a, np.where((b >= 0) & (b <= last), b, last).astype(a.dtype))
    # The last bit of an unsigned number is left at most; beyond, nothing is.
    return shifted if a.dtype.kind == "i" else np.where(b <= last, shifted, a.dtype.type(0))


BINARIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "max": np.maximum,
    "min": np.minimum,
    "pow": _pow,
    "rem": _rem,
    "trunc_div": _trunc_div,
    "atan2": lambda a, b: np.arctan2(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
}
# Kinds of floats alone, and of integers alone.
OF_FLOATS = ("atan2",)
OF_INTEGERS = ("trunc_div", "and", "or", "xor", "shift_left", "shift_right")
OF_BOOLS = {"add": np.logical_or, "max": np.logical_or, "mul": np.logical_and, "min": np.logical_and}
