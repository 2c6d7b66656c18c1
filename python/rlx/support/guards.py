"""`isinstance` tests for generic classes, for values of unknown type.

After `isinstance(value, list)`, a strict type checker treats the element type as unknown and reports an error. After
`is_list(value)`, the type is `list[Any]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# The second argument of `isinstance`. As `(int, np.integer)`, the type of NumPy's integers would be unknown.
INTEGERS: tuple[type[int], type[np.integer[Any]]] = (int, np.integer)


def is_list(value: object) -> TypeIs[list[Any]]:
    return isinstance(value, list)


def is_tuple(value: object) -> TypeIs[tuple[Any, ...]]:
    """Whether the value is a tuple of several values. A shape counts as one value."""
    kind: Any = type(value)
    return isinstance(value, tuple) and not hasattr(kind, "with_dims")


def is_sequence(value: object) -> TypeIs[list[Any] | tuple[Any, ...]]:
    """Whether the value is a list or a tuple."""
    return isinstance(value, (list, tuple))


def is_array(value: object) -> TypeIs[np.ndarray]:
    return isinstance(value, np.ndarray)


def is_iterable(value: object) -> TypeIs[Iterable[Any]]:
    return isinstance(value, Iterable) and not (isinstance(value, np.ndarray) and value.ndim == 0)


def is_dict(value: object) -> TypeIs[dict[Any, Any]]:
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeIs[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def is_truth_value(value: object) -> bool:
    return isinstance(value, (bool, np.bool_))


def is_integer(value: object) -> TypeGuard[int]:
    """Whether the value is an integer of Python or NumPy, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_real(value: object) -> TypeGuard[float]:
    """Whether the value is a real number of Python or NumPy, and not a bool."""
    return is_integer(value) or isinstance(value, (float, np.floating))
