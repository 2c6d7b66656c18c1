"""Superblocks whose elements are entries of codebooks: IQ1_S to IQ4_XS, and IQ4_NL in blocks of 32.

Sources: the structures of ggml/src/ggml-common.h, and ggml/src/ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from rlx.schemes import codebooks, grids, i_encoders
from rlx.schemes.blocks import Blocks, V
from rlx.schemes.scheme import Scheme

# The bits at which the four sets of signs begin in a group of four bytes, below a scale of 4 bits.
_SIGNS_AT = np.array([0, 7, 14, 21], np.int32)
# The bits at which integers of 3 bits begin in two bytes.
_TRIPLES_AT = np.array([0, 3, 6, 9], np.int32)


def _scaled(blocks: Blocks[V], factors: V, elements: V, count: int) -> V:
    """Return the elements, `[…, 32, 8]`, times one factor for each of `count` sub-blocks."""
    parts = blocks.reshape(elements, 2, count, 256 // count)
    return blocks.flat(blocks.split(factors, count, 1) * parts, count, 256 // count)


def _signs(blocks: Blocks[V], start: int) -> V:
    """Return one sign per bit of 32 bytes, f32 `[…, 32, 8]`."""
    return blocks.split(blocks.floats(blocks.bits(start, 32, 1) * -2 + 1), 32, 8)


def _even_signs(blocks: Blocks[V], seven: V) -> V:
    """Return 8 signs, f32 `[…, 32, 8]`, for each integer of 7 bits: the last one makes the number of minus signs even."""
    return blocks.lookup(grids.EVEN_SIGNS, seven)


def _signs_and_scales(blocks: Blocks[V], groups: V) -> tuple[V, V]:
    """Return signs `[…, 32, 8]` and scales `[…, 8]` of groups with four sets of 7 signs and a scale of 4 bits each."""
    seven = blocks.flat(blocks.split(groups, 8, 1) >> _SIGNS_AT & 127, 8, 4)
    return _even_signs(blocks, seven), blocks.floats(groups >> 28 & 15) + 0.5


def _half_scales(blocks: Blocks[V], start: int) -> V:
    """Return 16 scales of 4 bits, plus a half each."""
    return blocks.floats(blocks.nibbles(start, 8, 1)) + 0.5


def _iq2_xxs(blocks: Blocks[V]) -> V:
    # 8 groups of four indices and of a quad with signs and scale.
    indices = blocks.split(blocks.integers(2, 64), 8, 8)[..., :4]
    signs, scales = _signs_and_scales(blocks, blocks.split(blocks.quads(2, 16), 8, 2)[..., 1])
    elements = blocks.lookup(grids.IQ2_XXS, blocks.flat(indices, 8, 4)) * signs
    return _scaled(blocks, blocks.half(0) * scales * 0.25, elements, 8)


def _iq2_xs(blocks: Blocks[V]) -> V:
    words = blocks.words(2, 32)
    elements = blocks.lookup(grids.IQ2_XS, words & 511) * _even_signs(blocks, words >> 9)
    return _scaled(blocks, blocks.half(0) * _half_scales(blocks, 66) * 0.25, elements, 16)


def _iq2_s(blocks: Blocks[V]) -> V:
    indices = blocks.integers(2, 32) | blocks.bit_pairs(66, 8, 1) << 8
    elements = blocks.lookup(grids.IQ2_S, indices) * _signs(blocks, 34)
    return _scaled(blocks, blocks.half(0) * _half_scales(blocks, 74) * 0.25, elements, 16)


def _iq3_xxs(blocks: Blocks[V]) -> V:
    signs, scales = _signs_and_scales(blocks, blocks.quads(66, 8))
    elements = blocks.reshape(blocks.lookup(grids.IQ3_XXS, blocks.integers(2, 64)), 2, 32, 8) * signs
    return _scaled(blocks, blocks.half(0) * scales * 0.5, elements, 8)


def _iq3_s(blocks: Blocks[V]) -> V:
    indices = blocks.integers(2, 64) | blocks.bits(66, 8, 1) << 8
    elements = blocks.reshape(blocks.lookup(grids.IQ3_S, indices), 2, 32, 8) * _signs(blocks, 74)
    scales = blocks.floats(blocks.nibbles(106, 4, 1) * 2 + 1)
    return _scaled(blocks, blocks.half(0) * scales, elements, 8)


def _shifts(blocks: Blocks[V], bits: V) -> V:
    """Return 1/8 for a bit that is 0, and -1/8 for 1."""
    return blocks.floats(bits * -2 + 1) * 0.125


def _iq1_s(blocks: Blocks[V]) -> V:
    words = blocks.words(34, 8)
    high = blocks.flat(blocks.split(words, 8, 1) >> _TRIPLES_AT & 7, 8, 4)
    entries = blocks.lookup(grids.IQ1_S, blocks.integers(2, 32) | high << 8)
    shifts = blocks.split(_shifts(blocks, words >> 15), 8, 1)
    elements = blocks.reshape(blocks.reshape(entries, 2, 8, 32) + shifts, 2, 32, 8)
    return _scaled(blocks, blocks.half(0) * blocks.floats((words >> 12 & 7) * 2 + 1), elements, 8)


def _iq1_m(blocks: Blocks[V]) -> V:
    words = blocks.words(48, 4)
    # The scale of the superblock is in the upper 4 bits of four words, its lowest bits in the first one.
    nibbles = words >> 12
    bits = nibbles[..., 0:1] | nibbles[..., 1:2] << 4 | nibbles[..., 2:3] << 8 | nibbles[..., 3:4] << 12
    scales = blocks.flat(blocks.split(words, 4, 1) >> _TRIPLES_AT & 7, 4, 4)
    high = blocks.nibbles(32, 16, 1)
    entries = blocks.lookup(grids.IQ1_S, blocks.integers(0, 32) | (high & 7) << 8)
    elements = entries + blocks.split(_shifts(blocks, high >> 3), 32, 1)
    return _scaled(blocks, blocks.from_half_bits(bits) * blocks.floats(scales * 2 + 1), elements, 16)


def _iq4_nl(blocks: Blocks[V]) -> V:
    return blocks.half(0) * blocks.lookup(i_encoders.LEVELS, blocks.nibbles(2, 16, 16))


def _iq4_xs(blocks: Blocks[V]) -> V:
    high = blocks.bit_pairs(2, 2, 1)
    factors = blocks.half(0) * blocks.floats((blocks.nibbles(4, 4, 1) | high << 4) - 32)
    return _scaled(
        blocks, factors, blocks.split(blocks.lookup(i_encoders.LEVELS, blocks.nibbles(8, 128, 16)), 32, 8), 8
    )


SCHEMES = (
    Scheme("iq1_s", 256, 50, 19, _iq1_s),
    Scheme("iq1_m", 256, 56, 29, _iq1_m),
    Scheme("iq2_xxs", 256, 66, 16, _iq2_xxs, codebooks.encode_iq2_xxs),
    Scheme("iq2_xs", 256, 74, 17, _iq2_xs, codebooks.encode_iq2_xs),
    Scheme("iq2_s", 256, 82, 22, _iq2_s, codebooks.encode_iq2_s),
    Scheme("iq3_xxs", 256, 98, 18, _iq3_xxs, codebooks.encode_iq3_xxs),
    Scheme("iq3_s", 256, 110, 21, _iq3_s, codebooks.encode_iq3_s),
    Scheme("iq4_nl", 32, 18, 20, _iq4_nl, i_encoders.encode_iq4_nl),
    Scheme("iq4_xs", 256, 136, 23, _iq4_xs, i_encoders.encode_iq4_xs),
)
