"""Conversion of values without a dtype: Python numbers, nested lists, NumPy scalars.

An array has a dtype, which must match the declared one. Python values have none and take the dtype of the argument, if
the conversion is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array, as_numbers, is_written
from rlx.ir.dtype import DType, family
from rlx.ir.fitting import as_array_of
from rlx.support.errors import Error
from rlx.support.guards import is_sequence

# Dtype families in promotion order. A value of rank 0 may be passed for an argument of a later family if its dtype can
# represent the value.
_ORDER = {"bool": 0, "signed": 1, "unsigned": 1, "float": 2, "complex": 3}


def given_array(value: object, kind: DType, what: str) -> np.ndarray:
    """Return the value of an argument as an array. Arrays keep their dtype, see `as_array`.

    Python numbers and nested lists get the dtype of the argument. Floats are rounded to nearest; all other values must
    be exact: an integer may be passed for a float that can hold it. A NumPy scalar, or an array of rank 0, of another
    dtype is accepted if the argument's dtype can hold its value; a float is not accepted for an integer.

    Args:
        value: The value.
        kind: The dtype of the argument.
        what: The purpose of the value, such as `input 'x'`. Messages start with this.

    Raises:
        Error: The value is neither an array nor a number, a number does not fit the dtype, or lists are ragged.
    """
    if is_written(value):
        return _written(value, kind, what)
    array = as_array(with_dtype(value, kind), what)
    if array.ndim == 0 and array.dtype != kind.numpy and _ORDER.get(family(array.dtype), 4) <= _ORDER[kind.kind]:
        return _exact(array, kind)
    return array


def with_dtype(value: object, kind: DType) -> object:
    """If the file of a tensor does not name its dtype, use the dtype of the argument (`rlx.weights.Weight.of_dtype`)."""
    of_dtype: Any = getattr(type(value), "of_dtype", None)
    return value if of_dtype is None else of_dtype(value, kind)


def cast_array(array: np.ndarray, kind: DType, what: str) -> np.ndarray:
    """Cast an array of numbers to another dtype. Floats are rounded to nearest, all other values must be exact.

    Raises:
        Error: A value does not fit, such as 1e300 in f32 or 1.5 in i32; the message quotes it.
    """
    if array.dtype == kind.numpy:
        return array
    try:
        return as_array_of(array, kind)
    except Error as problem:
        raise Error(f"{what}, {array.dtype}{list(array.shape)}: {problem.message}", hint=problem.hint) from None


def _exact(array: np.ndarray, kind: DType) -> np.ndarray:
    """Cast a value of rank 0 if the cast is exact. Otherwise return it unchanged; the dtype check then rejects it."""
    try:
        converted = as_array_of(array, kind)
    except Error:
        return array
    number = _number(array)
    return converted if number != number or _number(converted) == number else array


def _number(array: np.ndarray) -> int | float | complex:
    """Return a value of rank 0 as a Python number, since Python compares numbers of all kinds exactly."""
    number = {"float": float, "complex": complex}.get(family(array.dtype), int)
    return number(array[()])


def _written(value: object, kind: DType, what: str) -> np.ndarray:
    for leaf in _leaves(value, what):
        if not (is_written(leaf) or hasattr(leaf, "__array__") or hasattr(leaf, "__dlpack__")):
            raise Error(f"{what}: expected numbers in the list, got {leaf!r:.60}")
        if hasattr(leaf, "dtype") and (array := as_array(leaf, what)).dtype != kind.numpy and array.ndim:
            raise Error(
                f"{what} is {kind}, and the list has an array of {array.dtype}{list(array.shape)}",
                hint=f"cast it with .astype, or give the numbers as a list: {kind} is what they become then",
            )
    numbers = as_numbers(value, what)
    try:
        array = as_array_of(numbers, kind)
    except Error as problem:
        raise Error(f"{what} is {kind}: {problem.message}", hint=_hint(problem.hint)) from None
    if numbers.dtype.kind in "iu" and kind.is_float:
        with np.errstate(all="ignore"):
            lost = array.astype(np.float64) != numbers
        if lost.any():
            raise Error(
                f"{what} is {kind}, which does not have the integer {numbers[lost].flat[0]}",
                hint="write it as a float to have it rounded, or give an array of that dtype",
            )
    return array


def _hint(hint: str | None) -> str | None:
    """Adapt the hint for a number that does not fit: an argument's dtype is declared in the graph."""
    return hint and hint.replace("give a float dtype", "declare the argument with a float dtype")


_DEEPEST = 64  # maximum number of axes in NumPy


def _leaves(value: object, what: str, depth: int = 0) -> Iterator[Any]:
    if depth > _DEEPEST:
        raise Error(f"{what}: lists are nested more than {_DEEPEST} deep")
    if is_sequence(value):
        for entry in value:
            yield from _leaves(entry, what, depth + 1)
    else:
        yield value


def type_description(value: object) -> str:
    """Return the type of a value that is not a tensor, for a message."""
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if is_sequence(value) else kind


def tensor_hint(value: object) -> str | None:
    """Return a hint for a list that was passed where one tensor is expected."""
    if not is_sequence(value):
        return None
    if all(is_written(entry) for entry in value):
        return "g.constant(numbers) makes a tensor of numbers"
    return "g.stack(tensors) and g.concat(tensors, axis) make one tensor of several"
