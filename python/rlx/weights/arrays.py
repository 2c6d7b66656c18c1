"""Conversion of arrays to the form that programs hold."""

from __future__ import annotations

import mmap

import numpy as np

from rlx.support.errors import Error
from rlx.weights.mapped import MappedFile


class ReadOnlyArray(np.ndarray):
    """An array that its maker does not write any more. Its views, which are read-only, are not copied."""

    @staticmethod
    def of(array: np.ndarray) -> ReadOnlyArray:
        """Return a view of an array. The caller drops all other references to its memory, or does not write to it."""
        result = array.view(ReadOnlyArray)
        result.flags.writeable = False
        return result


def keep(array: np.ndarray, copy: bool = True) -> np.ndarray:
    """Return a C-contiguous array that cannot change: the array itself if it is known to be constant, else a copy.

    Args:
        array: A caller's array.
        copy: False if the caller promises not to change it.
    """
    if copy and not _is_constant(array):
        return np.array(array, order="C")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def constant_bytes(array: np.ndarray) -> memoryview:
    """Return the elements in C order as read-only memory: the array's own memory if nothing can write it, else a copy."""
    if _is_constant(array) and array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8).data
    return memoryview(array.tobytes())


def _is_constant(array: np.ndarray) -> bool:
    """Return whether the memory of an array is not written.

    It belongs to `bytes`, to a read-only mapped file, or to a `ReadOnlyArray`.
    """
    owner: object = array
    while isinstance(owner, (np.ndarray, memoryview)):
        if isinstance(owner, memoryview):
            owner = owner.obj
        elif owner.flags.writeable:
            return False
        elif type(owner) is ReadOnlyArray:
            return True
        else:
            owner = owner.base
    return type(owner) is bytes or (
        isinstance(owner, mmap.mmap) and type(owner) in (mmap.mmap, MappedFile) and memoryview(owner).readonly
    )


def check_no_nan(array: np.ndarray, what: str) -> None:
    """Check that an array does not contain NaN, which would make every result NaN.

    Raises:
        Error: It contains NaN. The message has the number of NaNs.
    """
    if array.dtype.kind in "fcV" and bool(np.isnan(array).any()):
        raise Error(
            f"{what} holds {int(np.isnan(array).sum())} NaN values",
            hint="if they are meant, give the array itself: {name: weights[name].numpy()}",
        )
