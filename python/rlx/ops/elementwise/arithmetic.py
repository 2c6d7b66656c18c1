"""Functions of two numbers, as the evaluator computes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlx.numerics.arithmetic import NumpyArithmetic
from rlx.numerics.division import with_infinite_quotients


def _pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu":
        return _integer_pow(a, b)
    if a.dtype.kind == "c":
        return _complex_pow(a.astype(np.clongdouble), b.astype(np.clongdouble)).astype(a.dtype)
    # `power` is not used: it takes a square root for exponent 0.5, which gives NaN for -inf and -0 for -0.
    return np.float_power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _complex_pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return NumPy's power with corrected special values.

    The result is 0 where `|a**b|` is 0: NumPy multiplies for integer exponents, which makes NaN of infinities. A real
    power of an infinite number is infinite in the direction of the power. The result is NaN if the direction is
    undefined: for other powers of an infinite number, for NaN as base or exponent, and for powers of 0 whose exponent
    has a real part that is not positive. However, `1**b` and `a**0` are 1, and `a**1` is a.
    """
    angle = np.angle(a)
    size, phase = np.real(b) * np.log(np.abs(a)) - np.imag(b) * angle, np.real(b) * angle
    result = np.array(np.where(np.isneginf(size), 0, np.power(a, b)))
    explodes = np.isposinf(size) & (np.imag(b) == 0) & np.isfinite(phase) & (a != 0)
    result.real = np.where(explodes, np.inf * np.cos(phase), np.real(result))
    result.imag = np.where(explodes, np.where(phase == 0, phase, np.inf * np.sin(phase)), np.imag(result))
    unknown = (np.isnan(a) | np.isnan(b)) | (np.isposinf(size) & (np.imag(b) != 0)) | ((a == 0) & ~(np.real(b) > 0))
    result = np.where(b == 1, a, np.where(unknown, complex(np.nan, np.nan), result))
    return np.where((a == 1) | (b == 0), 1, result)


def _integer_pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = np.broadcast_arrays(a, b)
    negative = b < 0
    positive = np.power(a, np.where(negative, 0, b).astype(b.dtype))
    odd = np.where(b % 2 == 0, 1, -1)
    quotient = np.where(a == 1, 1, np.where(a == -1, odd, 0))
    return np.where(negative, quotient.astype(a.dtype), positive)


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "c":
        return _complex_div(a.astype(np.clongdouble), b.astype(np.clongdouble)).astype(a.dtype)
    return np.divide(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _complex_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return NumPy's quotient. For one infinite and one finite number it is an infinity or a zero, as in C99 (G.5.1)."""
    result = np.array(np.divide(a, b))
    numerator, divisor, usual = ((np.real(z), np.imag(z)) for z in (a, b, result))
    result.real, result.imag = with_infinite_quotients(NumpyArithmetic(), numerator, divisor, usual)
    return result


def _rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.fmod(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)  # exact, so nothing is rounded
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
    # For unsigned numbers, shifting by `last` leaves at most one bit; larger shifts give 0.
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
# Kinds for floats only, and kinds for integers only.
OF_FLOATS = ("atan2",)
OF_INTEGERS = ("trunc_div", "and", "or", "xor", "shift_left", "shift_right")
OF_BOOLS = {"add": np.logical_or, "max": np.logical_or, "mul": np.logical_and, "min": np.logical_and}
