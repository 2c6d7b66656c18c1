"""What kind of thing a value is, where its type says less: `isinstance` for classes with parameters.

Type checkers take the parameters of a class that an `Any` is found to be for unknown, which no strict file may pass on;
what these functions find has `Any` there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_list(value: object) -> TypeIs[list[Any]]:
    return isinstance(value, list)


def is_tuple(value: object) -> TypeIs[tuple[Any, ...]]:
    return isinstance(value, tuple)


def is_sequence(value: object) -> TypeIs[list[Any] | tuple[Any, ...]]:
    """Whether this is a list or a tuple."""
    return isinstance(value, (list, tuple))


def is_array(value: object) -> TypeIs[np.ndarray]:
    return isinstance(value, np.ndarray)


def is_iterable(value: object) -> TypeIs[Iterable[Any]]:
    return isinstance(value, Iterable)


def is_mapping(value: object) -> TypeIs[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def is_truth_value(value: object) -> bool:
    return isinstance(value, (bool, np.bool_))


def is_integer(value: object) -> bool:
    """Whether this is an integer of Python's or of NumPy's, and no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether this is a real number of Python's or of NumPy's, and no truth value."""
    return is_integer(value) or isinstance(value, (float, np.floating))
