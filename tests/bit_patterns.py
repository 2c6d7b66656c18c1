"""Elements of a dtype by their bits, for tests of ops that store and move them."""

from __future__ import annotations

import numpy as np

from rlx.ir.dtype import DType


def bit_patterns(kind: DType, count: int | None = None) -> np.ndarray:
    """Return elements with every bit pattern of a dtype of at most 8 bits, or random elements of a wider one.

    Args:
        kind: The dtype.
        count: The number of elements: a prefix of all patterns, or all of them repeatedly. None means all patterns, and
            30 elements of a wider dtype.
    """
    if kind.bits > 8:
        drawn = np.random.default_rng(0).integers(0, 256, (count or 30) * kind.itemsize, dtype=np.uint8)
        return drawn.view(kind.numpy)[:count]
    if kind.packed and kind.is_integer:  # NumPy stores them with their sign in 8 bits
        every = np.arange(int(kind.min), int(kind.max) + 1).astype(kind.numpy)
    else:
        every = np.arange(2 if kind.is_bool else 1 << kind.bits).astype(np.uint8).view(kind.numpy)
    return every if count is None else np.resize(every, count)
