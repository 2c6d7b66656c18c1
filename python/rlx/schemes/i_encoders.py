"""Encoders of formats with codebooks: IQ4_NL and IQ4_XS.

Source of the steps: ggml/src/ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from rlx.schemes.packing import as_halves, pack, reciprocals
from rlx.schemes.search import columns, fit_scales, normalised, split_scales, weighted

LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
# All numbers from k/2 to (k + 1)/2 have the same nearest level, since numbers halfway between levels are multiples of 1/2.
# Of two levels that are equally near, the upper one is taken.
_RANGE = 160
_CELLS = np.arange(-2 * _RANGE, 2 * _RANGE) / 2
_NEAREST = np.searchsorted((LEVELS[1:] + LEVELS[:-1]) / 2, _CELLS, side="right").astype(np.uint8)
_NEAREST_LEVEL = LEVELS[_NEAREST]
# The largest number becomes about the smallest level or the largest one.
_FACTORS = tuple(float(f) for f in (*range(-140, -109, 3), *range(101, 126, 3)))


def _cells(x: np.ndarray, factor: np.ndarray | np.float32) -> np.ndarray:
    cells = x * (2 * factor)
    cells += np.float32(2 * _RANGE)
    return np.clip(cells, 0, 4 * _RANGE - 1).astype(np.intp)


def _rounded_to_levels(x: np.ndarray, factor: float, levels: np.ndarray) -> None:
    np.take(_NEAREST_LEVEL, _cells(x, np.float32(factor)), out=levels, mode="clip")


def encode_iq4_nl(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    u, size = normalised(x)
    scales = fit_scales(columns(u, 1), columns(weighted(u, importance), 1), _FACTORS, _rounded_to_levels)
    halves = as_halves(scales[:, None] * size)
    codes = _NEAREST[_cells(x, reciprocals(halves.astype(np.float32)))]
    return np.concatenate([halves.view(np.uint8), pack(codes, 4, 16)], axis=-1)


def encode_iq4_xs(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    u, size = normalised(x)
    weights = columns(weighted(u, importance), 8)
    scales = fit_scales(columns(u, 8), weights, _FACTORS, _rounded_to_levels)
    unit, steps = split_scales(scales, weights.sum(0), 8, -32, 31)
    halves = as_halves(unit * size)
    factors = reciprocals(halves.astype(np.float32) * steps)[..., None]
    codes = _NEAREST[_cells(x.reshape(-1, 8, 32), factors)].reshape(-1, 256)
    stored = (steps + 32).astype(np.uint8)
    parts = pack(stored >> 4, 2, 1), pack(stored & 15, 4, 1), pack(codes, 4, 16)
    return np.concatenate([halves.view(np.uint8), *parts], axis=-1)
