"""Values without a dtype of their own for arguments that have one: Python numbers, nested lists, scalars of NumPy.

An array has a dtype, which must be the declared one. What is written in Python has none: it takes that of the argument, if
nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array, as_numbers, is_written
from rlx.ir.dtype import DType, family
from rlx.ir.fitting import fitted
from rlx.support.errors import Error
from rlx.support.guards import is_sequence

# Families in an order in which a value of rank 0 may be given for an argument of a later one, if that has the value.
_ORDER = {"bool": 0, "signed": 1, "unsigned": 1, "float": 2, "complex": 3}


def given_array(value: object, kind: DType, what: str) -> np.ndarray:
    """What a user gives for an argument, as an array: see `as_array` for objects that are arrays, which keep their dtype.

    Python numbers and nested lists of them get the dtype of the argument. Floats are rounded to nearest; all else must be
    exact: an integer may be given for a float that holds it. A scalar of NumPy, or an array of rank 0, of another dtype is
    taken where the argument's dtype has its value; a float is no integer.

    Args:
        value: The value.
        kind: The dtype of the argument.
        what: What the value is for, such as `input 'x'`: messages start with this.

    Raises:
        Error: It is no array and no number, a number does not fit the dtype, or lists are ragged.
    """
    if is_written(value):
        return _written(value, kind, what)
    array = as_array(with_dtype(value, kind), what)
    if array.ndim == 0 and array.dtype != kind.numpy and _ORDER.get(family(array.dtype), 4) <= _ORDER[kind.kind]:
        return _exact(array, kind)
    return array


def with_dtype(value: object, kind: DType) -> object:
    """A tensor whose file does not name its dtype with that of an argument (`rlx.weights.Weight.of_dtype`); others as given."""
    of_dtype: Any = getattr(type(value), "of_dtype", None)
    return value if of_dtype is None else of_dtype(value, kind)


def cast_array(array: np.ndarray, kind: DType, what: str) -> np.ndarray:
    """An array of numbers in another dtype: floats are rounded to nearest, all else must be exact.

    Raises:
        Error: A value does not fit, such as 1e300 in f32 or 1.5 in i32; it says which.
    """
    if array.dtype == kind.numpy:
        return array
    try:
        return fitted(array, kind)
    except Error as problem:
        raise Error(f"{what}, {array.dtype}{list(array.shape)}: {problem.message}", hint=problem.hint) from None


def _exact(array: np.ndarray, kind: DType) -> np.ndarray:
    """A value of rank 0 in another dtype if that has it, else as it is, which the check of dtypes then refuses."""
    try:
        converted = fitted(array, kind)
    except Error:
        return array
    number = _number(array)
    return converted if number != number or _number(converted) == number else array


def _number(array: np.ndarray) -> int | float | complex:
    """A value of rank 0 in Python, which compares numbers of all kinds exactly."""
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
        array = fitted(numbers, kind)
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
    """What to do about a number that does not fit an argument, whose dtype is declared in the graph."""
    return hint and hint.replace("give a float dtype", "declare the argument with a float dtype")


_DEEPEST = 64  # the most axes that NumPy has


def _leaves(value: object, what: str, depth: int = 0) -> Iterator[Any]:
    if depth > _DEEPEST:
        raise Error(f"{what}: lists are nested more than {_DEEPEST} deep")
    if is_sequence(value):
        for entry in value:
            yield from _leaves(entry, what, depth + 1)
    else:
        yield value


def described(value: object) -> str:
    """The type of a value that is no tensor, for a message."""
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if is_sequence(value) else kind


def tensor_hint(value: object) -> str | None:
    """What to do with a list where one tensor is expected."""
    if not is_sequence(value):
        return None
    if all(is_written(entry) for entry in value):
        return "g.constant(numbers) makes a tensor of numbers"
    return "g.stack(tensors) and g.concat(tensors, axis) make one tensor of several"
