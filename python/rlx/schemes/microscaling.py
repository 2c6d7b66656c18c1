"""Blocks of 4-bit floats (E2M1) with 8-bit floats as scales: MXFP4 and NVFP4.

Sources: the OCP specification of microscaling formats, and ggml/src/ggml-quants.c. As in ggml, the elements are twice
those of E2M1, which makes them integers, and the scales are half of those stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from rlx.schemes.blocks import Blocks, V
from rlx.schemes.packing import pack, peaks
from rlx.schemes.scheme import Scheme
from rlx.schemes.search import normalised, weighted
from rlx.support.errors import Error

_MAGNITUDES = (0, 1, 2, 3, 4, 6, 8, 12)
_ELEMENTS = np.array([*_MAGNITUDES, *(-m for m in _MAGNITUDES)], np.float32) + np.float32(0)


def _e8m0_scales() -> np.ndarray:
    """Return half of the powers of two that a byte represents. 255, NaN by the specification, is 2**127 as in ggml."""
    return np.ldexp(np.float32(1), np.arange(256) - 128)


def _e4m3_scales() -> np.ndarray:
    """Return half of the E4M3 floats of a byte without its sign. NaN without a sign is 0, and with it 240, as in gguf."""
    codes = np.arange(256)
    exponents, fractions = codes >> 3 & 15, (codes & 7).astype(np.float32)
    normal = np.ldexp(1 + fractions / 8, exponents - 8)
    scales = np.where(exponents == 0, np.ldexp(fractions, -10), normal)
    scales[127] = 0
    return scales.astype(np.float32)


_E8M0, _E4M3 = _e8m0_scales(), _e4m3_scales()
# The numbers halfway between adjacent magnitudes, and between adjacent scales.
_MIDDLES = [np.float32((a + b) / 2) for a, b in pairwise(_MAGNITUDES)]
_E4M3_MIDDLES = (_E4M3[:126] + _E4M3[1:127]) / 2
_LARGEST_NVFP4 = float(12 * _E4M3[126])


def _mxfp4(blocks: Blocks[V]) -> V:
    return blocks.lookup(_E8M0, blocks.integers(0, 1)) * blocks.lookup(_ELEMENTS, blocks.nibbles(1, 16, 16))


def _nvfp4(blocks: Blocks[V]) -> V:
    scales = blocks.lookup(_E4M3, blocks.split(blocks.integers(0, 4), 4, 1))
    elements = blocks.lookup(_ELEMENTS, blocks.split(blocks.nibbles(4, 32, 8), 4, 16))
    return blocks.flat(scales * elements, 4, 16)


def _nearest_elements(x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the codes of the nearest elements, u8. Of two that are equally near, the one with the smaller magnitude."""
    size = np.abs(x)
    codes = np.zeros(x.shape, np.uint8)
    for middle in _MIDDLES:
        codes += size > middle * scales
    codes *= scales > 0
    return codes | ((x < 0) & (codes > 0)) * np.uint8(8)


def _searched(
    x: np.ndarray, importance: np.ndarray, codes: np.ndarray, offsets: Iterable[int], table: np.ndarray
) -> np.ndarray:
    """Return the codes of scales, near those given, with the smallest weighted error.

    Args:
        x: `[n, m]`.
        importance: `[n, m]`.
        codes: The codes for which the largest element is nearest, `[n, 1]`.
        offsets: The distances of the candidates, as codes.
        table: The scales by code. The last code is not a scale.
    """
    weights = weighted(normalised(x)[0], importance)
    best, least = codes, np.full(codes.shape, np.inf, np.float32)
    for offset in offsets:
        tried = np.clip(codes.astype(np.int32) + offset, 0, len(table) - 2)
        scales = table[tried]
        wrong = _ELEMENTS[_nearest_elements(x, scales)] * scales - x
        error = np.einsum("ij,ij,ij->i", weights, wrong, wrong)[:, None]
        best = np.where(error < least, tried.astype(np.uint8), best)
        least = np.minimum(least, error)
    return best


def _encode_mxfp4(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    size = peaks(x)
    # The largest elements are from 4 to 8 times the scale. Those above 6 become 6.
    exponents = np.floor(np.log2(np.where(size > 0, size, np.float32(1)))) + np.float32(125)
    codes = np.where(size > 0, np.clip(exponents, 0, 254), 0).astype(np.uint8)
    if importance is not None:
        codes = _searched(x, importance, codes, (0, 1, -1), _E8M0)
    return np.concatenate([codes, pack(_nearest_elements(x, _E8M0[codes]), 4, 16)], axis=-1)


def _encode_nvfp4(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    parts = x.reshape(-1, 16)
    size = peaks(parts)
    if size.max(initial=0) > _LARGEST_NVFP4:
        raise Error(
            f"nvfp4 stores numbers up to {_LARGEST_NVFP4:g}, got {size.max():g}; divide the tensor by a scale of its own"
        )
    codes = np.searchsorted(_E4M3_MIDDLES, size / np.float32(12), side="right").astype(np.uint8)
    if importance is not None:
        codes = _searched(parts, importance.reshape(-1, 16), codes, (0, 1, -1, 2, -2, 3, -3, 4), _E4M3[:128])
    elements = _nearest_elements(parts, _E4M3[codes]).reshape(-1, 64)
    return np.concatenate([codes.reshape(-1, 4), pack(elements, 4, 8)], axis=-1)


SCHEMES = (
    Scheme("mxfp4", 32, 17, 39, _mxfp4, _encode_mxfp4),
    Scheme("nvfp4", 64, 36, 40, _nvfp4, _encode_nvfp4),
)
