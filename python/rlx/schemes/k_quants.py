"""Superblocks of 256 elements, whose sub-blocks have quantised scales: Q2_K to Q8_K.

Sources: the structures of ggml/src/ggml-common.h, and ggml/src/ggml-quants.c.
"""

from __future__ import annotations

from rlx.schemes import k_encoders
from rlx.schemes.blocks import Blocks, V
from rlx.schemes.scheme import Scheme


def _scales_and_minima(blocks: Blocks[V], start: int) -> tuple[V, V]:
    """Return the 6-bit scales and minima of 8 sub-blocks, `[…, 8]` each, from 12 bytes.

    Those of the first four sub-blocks are in bytes 0 to 3 and 4 to 7. Those of the others have their low bits in bytes
    8 to 11, and their high bits in the two upper bits of the bytes before.
    """
    first, second, low = (blocks.integers(start + i, 4) for i in (0, 4, 8))
    scales = blocks.join([first & 63, (low & 15) | (first >> 2 & 48)])
    minima = blocks.join([second & 63, (low >> 4) | (second >> 2 & 48)])
    return scales, minima


def _scaled(blocks: Blocks[V], steps: V, d: V, scales: V) -> V:
    """Return `d·scale·step`, with a scale for 16 steps."""
    factors = blocks.split(d * blocks.floats(scales), 16, 1)
    return blocks.flat(factors * blocks.split(blocks.floats(steps), 16, 16), 16, 16)


def _scaled_with_minima(blocks: Blocks[V], steps: V, start: int, scales: V, minima: V, count: int) -> V:
    """Return `d·scale·step - dmin·minimum` of `count` sub-blocks, where d and dmin are f16 numbers from `start` on."""
    factors = blocks.split(blocks.half(start) * blocks.floats(scales), count, 1)
    offsets = blocks.split(blocks.half(start + 2) * blocks.floats(minima), count, 1)
    parts = blocks.split(blocks.floats(steps), count, 256 // count)
    return blocks.flat(factors * parts - offsets, count, 256 // count)


def _q2_k(blocks: Blocks[V]) -> V:
    scales = blocks.integers(0, 16)
    return _scaled_with_minima(blocks, blocks.bit_pairs(16, 64, 32), 80, scales & 15, scales >> 4, 16)


def _q3_k(blocks: Blocks[V]) -> V:
    steps = (blocks.bit_pairs(32, 64, 32) | blocks.bits(0, 32, 32) << 2) - 4
    scales = (blocks.nibbles(96, 8, 8) | blocks.bit_pairs(104, 4, 4) << 4) - 32
    return _scaled(blocks, steps, blocks.half(108), scales)


def _q4_k(blocks: Blocks[V]) -> V:
    return _scaled_with_minima(blocks, blocks.nibbles(16, 128, 32), 0, *_scales_and_minima(blocks, 4), 8)


def _q5_k(blocks: Blocks[V]) -> V:
    steps = blocks.nibbles(48, 128, 32) | blocks.bits(16, 32, 32) << 4
    return _scaled_with_minima(blocks, steps, 0, *_scales_and_minima(blocks, 4), 8)


def _q6_k(blocks: Blocks[V]) -> V:
    # Of 64 bytes, the low halves are the first 64 elements and the high halves the next 64.
    steps = (blocks.nibbles(0, 128, 64) | blocks.bit_pairs(128, 64, 32) << 4) - 32
    return _scaled(blocks, steps, blocks.half(208), blocks.signed(192, 16))


def _q8_k(blocks: Blocks[V]) -> V:
    # The sums of 16 elements each, after the elements, are for products with other blocks.
    return blocks.from_bits(blocks.quads(0, 1)) * blocks.floats(blocks.signed(4, 256))


SCHEMES = (
    Scheme("q2_k", 256, 84, 10, _q2_k, k_encoders.encode_q2_k),
    Scheme("q3_k", 256, 110, 11, _q3_k, k_encoders.encode_q3_k),
    Scheme("q4_k", 256, 144, 12, _q4_k, k_encoders.encode_q4_k),
    Scheme("q5_k", 256, 176, 13, _q5_k, k_encoders.encode_q5_k),
    Scheme("q6_k", 256, 210, 14, _q6_k, k_encoders.encode_q6_k),
    Scheme("q8_k", 256, 292, 15, _q8_k, k_encoders.encode_q8_k),
)
