"""Memory of arrays that IREE's runtime uses for longer than a call.

IREE's bindings drop their references to the object of a parameter in the thread that uses its buffer last, without the lock
of the interpreter. If it were the last reference, the object would be deleted there, which corrupts the lists of a garbage
collection that runs at the time. So IREE gets objects with a reference that only `reclaim` drops, and no other code counts
references to them. Quirk: `parameters-released`.
"""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from rlx.support.locks import holding, make_lock
from rlx.targets.iree.memory import ALIGNMENT, IMPORT_ALIGNMENT, address, empty_aligned
from rlx.targets.memory_block import bytes_at
from rlx.weights.mapped import MappedFile, file_of, release_pages

_lock = make_lock()
_arrays: dict[int, np.ndarray] = {}  # by the address of the object that IREE has
# Copies of parts of mapped files, which programs share, with the file: by address and size.
_copies: dict[tuple[int, int], tuple[weakref.ref[MappedFile], weakref.ref[np.ndarray]]] = {}


def lend(array: np.ndarray) -> object:
    """Return an object with the buffer protocol over the memory of a C-contiguous array, for IREE.

    The array is kept until `reclaim` finds that IREE has dropped the object. Weights of a mapped file that are not at a
    multiple of 64 bytes are copied here, once for all programs, and their pages released: IREE would copy all of them for each
    program, before any can be released.
    """
    if address(array) % IMPORT_ALIGNMENT and file_of(array) is not None:
        array = _aligned_copy(array)
    block = bytes_at(address(array), array.nbytes, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
    holding(_lock, _arrays.__setitem__, id(block), array)
    return block


def readable(array: np.ndarray) -> np.ndarray:
    """Return an array that compiled code can read in place: the same, or a copy at a multiple of `memory.ALIGNMENT`."""
    array = np.ascontiguousarray(array)
    return _aligned_copy(array) if address(array) % ALIGNMENT else array


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy that every program can read. Programs share that of a part of a mapped file."""
    file = file_of(array)
    if file is not None and array.nbytes:
        return holding(_lock, _copy_of, array, file)
    copy = empty_aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def _copy_of(array: np.ndarray, file: MappedFile) -> np.ndarray:
    """Return the copy of a part of a file."""
    key = address(array), array.nbytes
    known_file, known = _copies.get(key, (None, None))
    if known_file is not None and known is not None and known_file() is file and (copy := known()) is not None:
        return copy
    for old in [old for old, (_, other) in _copies.items() if other() is None]:
        del _copies[old]
    copy = empty_aligned(array.shape, array.dtype)
    copy[...] = array
    release_pages(array)
    _copies[key] = weakref.ref(file), weakref.ref(copy)
    return copy


def reclaim() -> None:
    """Release the arrays that IREE has dropped."""
    holding(_lock, _reclaim)


def _reclaim() -> None:
    # The count is read in memory: a reference of this thread would change it while another thread does.
    for block in list(_arrays):
        if ctypes.c_ssize_t.from_address(block).value == 1 and _arrays.pop(block, None) is not None:
            ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(block))
