"""Objects over memory of a run-time library, or of an array."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np


def array_at(address: int, dtype: np.dtype, shape: tuple[int, ...], *owners: object) -> np.ndarray:
    """Return a writable array over the memory at an address. This array and all its views keep ``owners`` alive."""
    block = np.asarray(_MemoryBlock(address, math.prod(shape) * dtype.itemsize, owners))
    return block.view(dtype).reshape(shape)


def bytes_at(address: int, size: int, owner: object) -> Any:
    """Return an object with the buffer protocol over bytes at an address. It keeps ``owner`` alive.

    It takes a fifth of the time of `array_at`.
    """
    block: Any = (ctypes.c_ubyte * size).from_address(address)
    block.owner = owner
    return block


class _MemoryBlock:
    """Memory at an address, for NumPy's array interface; the base of the arrays over it."""

    __slots__ = ("__array_interface__", "_owners")

    def __init__(self, start: int, size: int, owners: tuple[object, ...]):
        self._owners = owners
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (start, False),
        }
