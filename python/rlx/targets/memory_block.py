"""NumPy arrays over memory of a run-time library."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def array_at(address: int, dtype: np.dtype, shape: tuple[int, ...], *owners: object) -> np.ndarray:
    """Return a writable array over the memory at an address. This array and all its views keep ``owners`` alive."""
    block = np.asarray(_MemoryBlock(address, math.prod(shape) * dtype.itemsize, owners))
    return block.view(dtype).reshape(shape)


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
