"""Superblocks of 256 elements that are -1, 0 or 1 times a scale: TQ1_0 and TQ2_0.

Sources: the structures of ggml/src/ggml-common.h, and ggml/src/ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from rlx.schemes.blocks import Blocks, V
from rlx.schemes.packing import half_bytes, pack, peaks, reciprocals, round_away
from rlx.schemes.scheme import Scheme


def _digits(blocks: Blocks[V], start: int, count: int, digits: int) -> V:
    """Return digits of base 3, `[…, digits·count]`: the first ones of all bytes, then the second ones.

    A byte is a fraction of 256. Multiplied by 3, its integer part is the next digit.
    """
    powers = np.array([3**i for i in range(digits)], np.int32).reshape(-1, 1)
    fractions = blocks.split(blocks.integers(start, count), 1, count) * powers & 255
    return blocks.flat(fractions * 3 >> 8, digits, count)


def _tq1_0(blocks: Blocks[V]) -> V:
    digits = blocks.join([_digits(blocks, 0, 32, 5), _digits(blocks, 32, 16, 5), _digits(blocks, 48, 4, 4)])
    return blocks.floats(digits - 1) * blocks.half(52)


def _tq2_0(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.bit_pairs(0, 64, 32) - 1) * blocks.half(64)


def _ternary(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scales as bytes, and steps from 0 to 2, u8."""
    size = peaks(x)
    return half_bytes(size), (round_away(x * reciprocals(size)) + 1).astype(np.uint8)


def _fractions(steps: np.ndarray, digits: int, count: int) -> np.ndarray:
    """Return bytes, `[n, count]`, whose first digits are those of the first `count` steps. The inverse of `_digits`."""
    weights = np.array([3 ** (4 - i) for i in range(digits)], np.int32)
    numbers = np.einsum("ijk,j->ik", steps.reshape(-1, digits, count), weights, dtype=np.int32)
    # Rounded up, so that rounding errors do not change the digits.
    return ((numbers * 256 + 242) // 243).astype(np.uint8)


def _encode_tq1_0(x: np.ndarray, _: np.ndarray | None) -> np.ndarray:
    scales, steps = _ternary(x)
    parts = _fractions(steps[:, :160], 5, 32), _fractions(steps[:, 160:240], 5, 16), _fractions(steps[:, 240:], 4, 4)
    return np.concatenate([*parts, scales], axis=-1)


def _encode_tq2_0(x: np.ndarray, _: np.ndarray | None) -> np.ndarray:
    scales, steps = _ternary(x)
    return np.concatenate([pack(steps, 2, 32), scales], axis=-1)


SCHEMES = (
    Scheme("tq1_0", 256, 54, 34, _tq1_0, _encode_tq1_0),
    Scheme("tq2_0", 256, 66, 35, _tq2_0, _encode_tq2_0),
)
