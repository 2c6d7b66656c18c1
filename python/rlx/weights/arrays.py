"""Arrays as programs keep them."""

from __future__ import annotations

import mmap

import numpy as np

from rlx.support.errors import Error


def keep(array: np.ndarray, copy: bool = True) -> np.ndarray:
    """A C-contiguous array that nobody else changes: the array itself if it is known not to change, else a copy.

    Args:
        array: A caller's array.
        copy: False where the caller promises not to change it.
    """
    if copy and not _is_constant(array):
        return np.array(array, order="C")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def constant_bytes(array: np.ndarray) -> memoryview:
    """The elements in the order of C as memory that nobody can write: the array's own if it cannot be written, else a copy."""
    if _is_constant(array) and array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8).data
    return memoryview(array.tobytes())


def _is_constant(array: np.ndarray) -> bool:
    """Whether the memory of an array cannot be written: it belongs to `bytes`, or to a file that is mapped read-only."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    while isinstance(owner, memoryview):
        owner = owner.obj
    return type(owner) is bytes or (type(owner) is mmap.mmap and memoryview(owner).readonly)


def check_no_nan(array: np.ndarray, what: str) -> None:
    """Check that an array holds no NaN, which would make every result NaN.

    Raises:
        Error: It holds NaN; the message says how many.
    """
    if array.dtype.kind in "fcV" and bool(np.isnan(array).any()):
        raise Error(
            f"{what} holds {int(np.isnan(array).sum())} NaN values",
            hint="if they are meant, give the array itself: {name: weights[name].numpy()}",
        )
