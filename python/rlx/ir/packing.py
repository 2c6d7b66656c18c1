"""Packing of dtypes of less than 8 bits in files and parameters: several elements per byte, the first in the low bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from rlx.ir.dtype import DType, dtype


def pack(array: np.ndarray) -> np.ndarray:
    """Return the packed bytes of an array, `DType.nbytes` of them. Dtypes of at least 8 bits are not changed.

    The last byte is padded with zero bits.
    """
    kind, content = dtype(array.dtype), np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not kind.packed:
        return content
    shifts = _shifts(kind)
    codes = np.zeros(kind.nbytes(content.size) * len(shifts), np.uint8)
    codes[: content.size] = content & _mask(kind)
    return np.bitwise_or.reduce(codes.reshape(-1, len(shifts)) << shifts, axis=1)


def unpack(content: Any, kind: DType, shape: Sequence[int]) -> np.ndarray:
    """Return the array of packed bytes. For dtypes of at least 8 bits, it is a view.

    Args:
        content: An array of u8 with `kind.nbytes(prod(shape))` elements.
        kind: The dtype of the array.
        shape: The sizes of the array.
    """
    if kind.packed:
        codes = content[:, None] >> _shifts(kind) & _mask(kind)
        content = codes.reshape(-1)[: prod(shape)]
    return content.view(kind.numpy).reshape(shape)


def _shifts(kind: DType) -> np.ndarray:
    return np.arange(0, 8, kind.bits, dtype=np.uint8)


def _mask(kind: DType) -> np.uint8:
    return np.uint8((1 << kind.bits) - 1)
