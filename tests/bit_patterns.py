"""Elements of a dtype by their bits, for tests of what stores and moves them."""

from __future__ import annotations

import numpy as np

from rlx.ir.dtype import DType


def bit_patterns(kind: DType, count: int | None = None) -> np.ndarray:
    """Elements of every bit pattern of a dtype of at most 8 bits, of some drawn ones of a wider one.

    Args:
        kind: The dtype.
        count: How many: a prefix of all patterns, or all of them repeatedly. All of them if None, and 30 of a wider dtype.
    """
    if kind.bits > 8:
        drawn = np.random.default_rng(0).integers(0, 256, (count or 30) * kind.itemsize, dtype=np.uint8)
        return drawn.view(kind.numpy)[:count]
    if kind.packed and kind.is_integer:  # NumPy stores them with their sign in 8 bits
        every = np.arange(int(kind.min), int(kind.max) + 1).astype(kind.numpy)
    else:
        every = np.arange(2 if kind.is_bool else 1 << kind.bits).astype(np.uint8).view(kind.numpy)
    return every if count is None else np.resize(every, count)
