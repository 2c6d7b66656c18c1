"""The `copy=` option of creation functions: tensors that share the memory of arrays, and copies."""

from __future__ import annotations

import numpy as np

from rlx.array_api.arrays import builder
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.eager import EAGER, EagerTensor
from rlx.support.caller import caller_place
from rlx.support.errors import Error


class CopyNeeded(Error, BufferError, ValueError):
    """The error if `copy=False` cannot be satisfied. The standard requires a `BufferError` or a `ValueError`."""

    __str__ = Exception.__str__


def check_copy(what: str, copy: object) -> None:
    """Check that `copy=` is None, True or False.

    Raises:
        TypeError: It is something else.
    """
    if copy is not None and not isinstance(copy, (bool, np.bool_)):
        raise TypeError(f"{what}: copy is None, True or False, got {copy!r:.60}")


def refuse(what: str, reason: str) -> CopyNeeded:
    """Return the error for a tensor that cannot be created without a copy."""
    return CopyNeeded(
        f"{what}: {reason} is a copy, and copy=False was given",
        location=caller_place(),
        hint="leave copy= out: a copy is made where one is needed",
    )


def shared(what: str, array: np.ndarray) -> Tensor:
    """Return a tensor that shares the memory of an array. The array must not change while the tensor is used.

    Raises:
        CopyNeeded: Tensors belong to a graph, whose constants have their own memory.
    """
    if builder() is not EAGER:
        raise refuse(what, "a constant of a graph")
    return EAGER.of(array.view())  # pass a view, because a tensor makes its array read-only


def copied(tensor: Tensor) -> Tensor:
    """Return a tensor with the same value and its own memory. A tensor of a graph has no memory and is returned itself."""
    return EAGER.of(tensor.numpy().copy()) if isinstance(tensor, EagerTensor) else tensor
