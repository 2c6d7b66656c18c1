"""Packed blocks of big-endian files.

Sources: the structures of ggml/src/ggml-common.h, and gguf-py/gguf/scripts/gguf_convert_endian.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.schemes import Scheme
from rlx.weights.arrays import ReadOnlyArray

# The positions of the f16 numbers in a block. All other fields are bytes. Formats with wider integers are not listed: files
# of other machines have not been seen, and programs copy these integers as bytes in part.
_HALVES = {
    **{"q1_0": (0,), "q2_0": (0,), "q4_0": (0,), "q4_1": (0, 2), "q8_0": (0,), "iq4_nl": (0,)},
    **{"q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)},
    **{"tq1_0": (52,), "tq2_0": (64,), "mxfp4": (), "nvfp4": ()},
}


def can_swap(scheme: Scheme) -> bool:
    """Whether the bytes of the numbers in a block can be swapped."""
    return scheme.name in _HALVES


def swapped_blocks(scheme: Scheme, stored: Any) -> np.ndarray:
    """Return blocks with the bytes of all numbers swapped: u8, rank 1, read-only.

    Args:
        scheme: A format for which `can_swap`.
        stored: The blocks, a buffer.
    """
    result = np.array(np.frombuffer(stored, np.uint8))
    blocks = result.reshape(-1, scheme.nbytes)
    for start in _HALVES[scheme.name]:
        blocks[:, start : start + 2] = blocks[:, [start + 1, start]]
    return ReadOnlyArray.of(result)


def swapping(scheme: Scheme, read: Callable[[], Any]) -> Callable[[], np.ndarray]:
    """Return the function that reads blocks and swaps the bytes of their numbers."""
    return lambda: swapped_blocks(scheme, read())
