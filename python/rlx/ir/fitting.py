"""Conversion of numbers to arrays of a dtype, if the dtype can represent them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.arrays import as_numbers
from rlx.ir.dtype import BY_NUMPY_NAME, DType, i64, shown_number
from rlx.support.errors import Error
from rlx.support.guards import is_integer, is_truth_value
from rlx.support.short import short_repr


def as_array_of(value: object, kind: DType) -> np.ndarray:
    """Return a number, or numbers in lists or an array, as an array of a dtype.

    Floats are rounded to nearest; infinities and NaN stay. All other values must be exact: an integer may be passed as
    a float and a bool as 0 or 1, but only a complex dtype accepts complex numbers.

    Raises:
        Error: A value does not fit the dtype, or is not a number.
    """
    if _is_plain_number_in_range(value, kind):
        return np.array(value).astype(kind.numpy)
    array = as_numbers(value, "the value")
    if array.dtype.name in BY_NUMPY_NAME and array.dtype.kind not in "biufc":  # a dtype of ml_dtypes
        array = array.astype(np.float32)
    integers = array.dtype.kind == "O" and all(isinstance(v, int) for v in array.flat)  # integers of more than 64 bits
    if array.dtype.kind not in "biufc" and not integers:
        raise Error(f"a constant holds numbers, not {short_repr(value)}")
    with np.errstate(all="ignore"):
        is_fitting = _fit(array, kind)
        if not is_fitting.all():
            wrong = array[~is_fitting].flat[0]
            raise Error(f"{shown_number(wrong)} does not fit {kind.name}", hint=_fitting_hint(wrong, kind))
        return (array.astype(np.float64) if integers and kind.is_inexact else array).astype(kind.numpy)


def holds_number(value: object, kind: DType) -> bool:
    """Whether `as_array_of` accepts a Python number for a dtype."""
    with np.errstate(all="ignore"):
        return _is_plain_number_in_range(value, kind) or bool(_fit(as_numbers(value, "the value"), kind).all())


def _is_plain_number_in_range(value: object, kind: DType) -> bool:
    """Whether a Python number is within the range of the dtype: a quick test that most constants pass."""
    if type(value) is float:
        return kind.kind == "float" and kind.min <= value <= kind.max
    if type(value) is not int or kind.is_bool or kind.is_complex:
        return False
    return kind.min <= value <= kind.max and i64.min <= value <= i64.max  # NumPy has no wider integer


def _fit(array: np.ndarray, kind: DType) -> np.ndarray:
    """Return a mask of the values that the dtype can hold, apart from rounding."""
    if kind.is_inexact:
        if array.dtype.kind == "c" and not kind.is_complex:
            return np.zeros(array.shape, bool)
        parts = (np.real(array), np.imag(array)) if array.dtype.kind == "c" else (array,)
        return np.logical_and.reduce([_fit_float(p, kind.part) for p in parts])
    if array.dtype.kind == "c":
        return np.zeros(array.shape, bool)
    whole = array.astype({"f": np.float64, "b": np.int8}.get(array.dtype.kind, array.dtype))
    if whole.dtype.kind == "f":  # float(i64.max) is i64.max + 1
        return (np.trunc(whole) == whole) & (whole >= float(kind.min)) & (whole < float(kind.max) + 1)
    return np.asarray((whole >= kind.min) & (whole <= kind.max), bool)


def _fit_float(array: np.ndarray, kind: DType) -> np.ndarray:
    if array.dtype.kind == "O":
        return np.array([kind.min <= v <= kind.max for v in array.flat], bool).reshape(array.shape)
    layout = kind.float_format
    assert layout is not None
    if layout.special == "finite":
        return np.abs(array.astype(np.float64)) <= kind.max
    rounded = array.astype(kind.numpy).astype(np.float64)
    fits = np.where(np.isinf(array), np.isinf(rounded), np.isfinite(rounded) | ~np.isfinite(array))
    return fits if layout.signed else fits & ~(array <= 0)


def _fitting_hint(value: Any, kind: DType) -> str:
    whole = is_integer(value) or is_truth_value(value)
    if kind.is_integer and not whole and np.imag(value) == 0 and not np.isfinite(np.float64(np.real(value))):
        return "an integer is finite"
    if kind.is_bool:
        return "a truth value is True, False, 1 or 0"
    if np.imag(value) or isinstance(value, (complex, np.complexfloating)):
        return "give dtype='c64' or 'c128'"
    if kind.is_integer and not whole and np.trunc(np.float64(value)) != np.float64(value):
        return "round it first, or give a float dtype"
    if kind.is_complex:
        return f"its parts are {kind.part.name}"
    return f"it holds {kind.min} to {kind.max}: use a wider dtype{_for_a_mask(value, kind)}"


def _for_a_mask(value: Any, kind: DType) -> str:
    """Suggest a large finite value or infinity of a float dtype, for masks filled with a number that is too large."""
    if kind.float_format is None:
        return ""
    sign = "-" if value < 0 else ""
    infinity = f" or {sign}inf" if kind.float_format.special == "ieee" else ""
    return f", or, to mask, {kind.min if sign else kind.max}{infinity}"
