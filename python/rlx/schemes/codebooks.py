"""Encoders of formats with codebooks: IQ2_XXS to IQ3_S.

An entry of a codebook is a group of magnitudes. The nearest entry is searched among all of them, for some scales of each
sub-block; ggml searches near the rounded group instead (ggml/src/ggml-quants.c). Formats whose groups of 8 have an even
number of minus signs invert, where necessary, the sign with the smallest error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlx.schemes import grids
from rlx.schemes.packing import as_halves, pack, reciprocals
from rlx.schemes.search import fit_scales, normalised, weighted

_GROUPS_AT_ONCE = 1 << 9  # the distances to all entries stay in a cache
# Operations. BLAS uses no threads for products of this size, and all have the same shape: the sums do not depend on the
# number of groups or of threads.
_LARGEST_PRODUCT = 1 << 17
# Candidates for the largest element of a sub-block, relative to the largest one of the entries, and for the integer of
# the largest scale of a superblock.
_PEAKS = (0.7, 0.85, 1.0, 1.15)
_UNITS = tuple(25.0 + 0.5 * i for i in range(17))


@dataclass(frozen=True)
class Codebook:
    """The entries of a format and its scales, which are odd integers times the scale of the superblock.

    Attributes:
        entries: f32 `[count, size]`.
        part: The number of elements in a sub-block.
        divisor: The stored scale of a superblock is this times the factor of the odd integers.
        even: Whether the number of minus signs in each group of 8 is even.
        peaks: Magnitudes that the largest element of a sub-block may have before it is rounded, relative to the largest
            one of the entries.
    """

    entries: np.ndarray
    part: int
    divisor: int
    even: bool
    peaks: Sequence[float]
    _scores: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The squared distance of an entry g to x is, apart from a constant, the sum of w·g² - 2·w·x·g.
        scores = np.concatenate([self.entries**2, -2 * self.entries], axis=-1).T
        object.__setattr__(self, "_scores", np.ascontiguousarray(scores))

    def nearest(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the numbers of the nearest entries to groups, `[n]`.

        Args:
            x: `[n, size]`.
            weights: `[n, size]`.
        """
        features = np.concatenate([weights, weights * x], axis=-1)
        tile = max(_LARGEST_PRODUCT // self._scores.size, 1)
        tiles = np.pad(features, ((0, -len(features) % tile), (0, 0))).reshape(-1, tile, features.shape[-1])
        result = np.empty(tiles.shape[:2], np.intp)
        step = max(_GROUPS_AT_ONCE // tile, 1)
        for start in range(0, len(tiles), step):
            np.matmul(tiles[start : start + step], self._scores).argmin(-1, out=result[start : start + step])
        return result.reshape(-1)[: len(features)]

    def levels(self, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the nearest entries to sub-blocks, `[n·groups]`, and the entries, as `x`."""
        size = self.entries.shape[-1]
        numbers = self.nearest(x.reshape(-1, size), weights.reshape(-1, size))
        return numbers, self.entries[numbers].reshape(x.shape)


def _odd(x: np.ndarray, factor: float, steps: np.ndarray) -> None:
    np.multiply(x, np.float32(factor / 2), out=steps)
    steps -= np.float32(0.5)
    np.rint(steps, out=steps)
    np.clip(steps, np.float32(0), np.float32(15), out=steps)
    steps *= np.float32(2)
    steps += np.float32(1)


def _minus_signs(x: np.ndarray, weights: np.ndarray, even: bool) -> np.ndarray:
    """Return 1 for elements with a minus sign and 0 for others, u8 as `x`."""
    minus = (x < 0).astype(np.uint8)
    if even:
        groups = minus.reshape(-1, 8)
        odd = np.bitwise_xor.reduce(groups, axis=-1)
        weakest = (weights * x * x).reshape(-1, 8).argmin(-1)
        groups[np.arange(len(groups)), weakest] ^= odd
    return minus


def _scales(book: Codebook, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the scales of sub-blocks, `[n]`, for magnitudes and weights, `[n, part]`."""
    peak = np.abs(x).max(-1, keepdims=True)
    x = x / np.where(peak == 0, np.float32(1), peak)
    best, scale = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
    for factor in book.peaks:
        _, levels = book.levels(x * np.float32(factor * book.entries.max()), weights)
        product = np.einsum("ij,ij,ij->i", weights, x, levels)
        square = np.einsum("ij,ij,ij->i", weights, levels, levels)
        fitted = product / np.where(square > 0, square, np.float32(1))
        gain = fitted * product
        better = (gain > best) & (fitted > 0)
        np.copyto(best, gain, where=better)
        np.copyto(scale, fitted, where=better)
    return scale * peak[:, 0]


def _encoded(
    book: Codebook, x: np.ndarray, importance: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the bytes of the scale, the scales of sub-blocks from 0 to 15, u8, the numbers of entries, and minus signs."""
    u, size = normalised(x)
    weights = weighted(u, importance)
    minus = _minus_signs(u, weights, book.even)
    parts = np.where(minus, -u, u).reshape(-1, book.part)
    part_weights = weights.reshape(parts.shape)
    scales = _scales(book, parts, part_weights).reshape(len(x), -1)
    sums = part_weights.sum(-1).reshape(scales.shape)
    unit = fit_scales(np.ascontiguousarray(scales.T), np.ascontiguousarray(sums.T), _UNITS, _odd)[:, None]
    steps = np.empty_like(scales)
    _odd(scales * reciprocals(unit), 1, steps)
    inverses = reciprocals(unit * steps).reshape(-1, 1)
    numbers, levels = book.levels(parts * inverses, part_weights)
    # The scale of the superblock that is best for these integers.
    levels = (levels.reshape(*scales.shape, -1) * steps[..., None]).reshape(u.shape)
    product = np.einsum("ij,ij,ij->i", weights, parts.reshape(u.shape), levels)
    square = np.einsum("ij,ij,ij->i", weights, levels, levels)
    fitted = product / np.where(square > 0, square, np.float32(1))
    halves = as_halves(np.maximum(fitted, 0)[:, None] * size * np.float32(book.divisor))
    return halves.view(np.uint8), (steps / 2).astype(np.uint8), numbers.reshape(len(x), -1), minus


def _sevens(minus: np.ndarray) -> np.ndarray:
    """Return the first 7 minus signs of each group of 8 as integers, i32 `[n, 32]`."""
    return (pack(minus, 1, 1) & 127).astype(np.int32)


def _signs_and_scales(minus: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the bytes of groups with four sets of 7 signs, and a scale in the upper 4 bits: `[n, 8, 4]`."""
    sevens = _sevens(minus).astype("<u4").reshape(-1, 8, 4)
    groups = scales.astype("<u4") << 28
    for i in range(4):
        groups |= sevens[..., i] << (7 * i)
    return groups.astype("<u4").view(np.uint8).reshape(-1, 8, 4)


_IQ2_XXS = Codebook(grids.IQ2_XXS, 32, 8, True, (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3))
_IQ2_XS = Codebook(grids.IQ2_XS, 16, 8, True, _PEAKS)
_IQ2_S = Codebook(grids.IQ2_S, 16, 8, False, _PEAKS)
_IQ3_XXS = Codebook(grids.IQ3_XXS, 32, 4, True, _PEAKS)
_IQ3_S = Codebook(grids.IQ3_S, 32, 1, False, _PEAKS)


def encode_iq2_xxs(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, numbers, minus = _encoded(_IQ2_XXS, x, importance)
    indices = numbers.astype(np.uint8).reshape(-1, 8, 4)
    groups = np.concatenate([indices, _signs_and_scales(minus, scales)], axis=-1)
    return np.concatenate([unit, groups.reshape(-1, 64)], axis=-1)


def encode_iq2_xs(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, numbers, minus = _encoded(_IQ2_XS, x, importance)
    words = (numbers | _sevens(minus) << 9).astype("<u2").view(np.uint8)
    return np.concatenate([unit, words, pack(scales, 4, 1)], axis=-1)


def encode_iq2_s(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, numbers, minus = _encoded(_IQ2_S, x, importance)
    low, high = (numbers & 255).astype(np.uint8), (numbers >> 8).astype(np.uint8)
    return np.concatenate([unit, low, pack(minus, 1, 1), pack(high, 2, 1), pack(scales, 4, 1)], axis=-1)


def encode_iq3_xxs(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, numbers, minus = _encoded(_IQ3_XXS, x, importance)
    groups = _signs_and_scales(minus, scales).reshape(-1, 32)
    return np.concatenate([unit, numbers.astype(np.uint8), groups], axis=-1)


def encode_iq3_s(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, numbers, minus = _encoded(_IQ3_S, x, importance)
    low, high = (numbers & 255).astype(np.uint8), (numbers >> 8).astype(np.uint8)
    return np.concatenate([unit, low, pack(high, 1, 1), pack(minus, 1, 1), pack(scales, 4, 1)], axis=-1)
