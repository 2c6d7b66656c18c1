"""Encoders of the superblocks of `k_quants`.

Source of the steps: ggml/src/ggml-quants.c. Scales are searched for each sub-block, then rounded to integers times the
scale of the superblock, and then the elements are rounded again.
"""

from __future__ import annotations

import numpy as np

from rlx.schemes.packing import as_halves, pack, reciprocals, signed_peaks
from rlx.schemes.search import columns, fit_scales, fit_scales_and_minima, normalised, rounding, split_scales, weighted

_SIZE = 256


def _factors(largest: int, first: float, step: float, count: int) -> list[float]:
    """Return `count` candidates, the first one `largest + first`."""
    return [largest + first + step * i for i in range(count)]


def _rounded(x: np.ndarray, scales: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return `x/scale` as integers from `low` to `high`, counted from `low`, u8 `[n, 256]`. Scales are `[n, count]`."""
    steps = x.reshape(*scales.shape, -1) * reciprocals(scales)[..., None]
    np.rint(steps, out=steps)
    np.clip(steps, np.float32(low), np.float32(high), out=steps)
    return (steps - np.float32(low)).astype(np.uint8).reshape(-1, _SIZE)


def _with_minima(
    x: np.ndarray,
    importance: np.ndarray | None,
    count: int,
    largest: int,
    largest_scale: int,
    factors: list[float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return d and dmin as bytes, the scales and minima of sub-blocks, and steps, all u8."""
    u, size = normalised(x)
    weights = columns(weighted(u, importance), count)
    scales, minima = fit_scales_and_minima(columns(u, count), weights, largest, factors, non_positive=True)
    sums = weights.sum(0)
    d, scales = split_scales(scales, sums, count, 0, largest_scale)
    dmin, minima = split_scales(-minima, sums, count, 0, largest_scale)
    units = as_halves(np.concatenate([d, dmin], axis=-1) * size)
    d, dmin = units[:, :1].astype(np.float32), units[:, 1:].astype(np.float32)
    shifted = x.reshape(-1, count, _SIZE // count) + (dmin * minima)[..., None]
    steps = _rounded(shifted, d * scales, 0, largest)
    return units.view(np.uint8), scales.astype(np.uint8), minima.astype(np.uint8), steps


def _without_minima(
    x: np.ndarray,
    importance: np.ndarray | None,
    largest: int,
    largest_scale: int,
    factors: list[float],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return d as bytes, the scales of 16 sub-blocks, i8 counted from the lowest one, and steps, u8."""
    u, size = normalised(x)
    weights = columns(weighted(u, importance), 16)
    scales = fit_scales(columns(u, 16), weights, factors, rounding(-largest, largest - 1))
    d, scales = split_scales(scales, weights.sum(0), 16, -largest_scale, largest_scale - 1)
    unit = as_halves(d * size)
    steps = _rounded(x, unit.astype(np.float32) * scales, -largest, largest - 1)
    return unit.view(np.uint8), scales, steps


def _scales_and_minima(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """Return the 12 bytes of 8 scales and minima of 6 bits each."""
    low = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    first, second = (v[:, :4] | v[:, 4:] >> 4 << 6 for v in (scales, minima))
    return np.concatenate([first, second, low], axis=-1)


def encode_q2_k(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    units, scales, minima, steps = _with_minima(x, importance, 16, 3, 15, _factors(3, -0.9, 0.05, 37))
    return np.concatenate([scales | minima << 4, pack(steps, 2, 32), units], axis=-1)


def encode_q4_k(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    units, scales, minima, steps = _with_minima(x, importance, 8, 15, 63, _factors(15, -0.9, 0.05, 37))
    return np.concatenate([units, _scales_and_minima(scales, minima), pack(steps, 4, 32)], axis=-1)


def encode_q5_k(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    units, scales, minima, steps = _with_minima(x, importance, 8, 31, 63, _factors(31, -0.9, 0.05, 37))
    high, low = pack(steps >> 4, 1, 32), pack(steps & 15, 4, 32)
    return np.concatenate([units, _scales_and_minima(scales, minima), high, low], axis=-1)


def encode_q3_k(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, steps = _without_minima(x, importance, 4, 32, _factors(-4, -0.9, 0.1, 19))
    scales = (scales + 32).astype(np.uint8)
    packed = pack(scales & 15, 4, 8), pack(scales >> 4, 2, 4)
    return np.concatenate([pack(steps >> 2, 1, 32), pack(steps & 3, 2, 32), *packed, unit], axis=-1)


def encode_q6_k(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    unit, scales, steps = _without_minima(x, importance, 32, 128, _factors(-32, -1.2, 0.15, 29))
    parts = pack(steps & 15, 4, 64), pack(steps >> 4, 2, 32), scales.astype(np.int8).view(np.uint8)
    return np.concatenate([*parts, unit], axis=-1)


def encode_q8_k(x: np.ndarray, _: np.ndarray | None) -> np.ndarray:
    scales = signed_peaks(x) / np.float32(-127)
    steps = np.clip(np.rint(x / np.where(scales == 0, np.float32(1), scales)), -127, 127).astype(np.int8)
    sums = steps.reshape(-1, 16, 16).sum(-1, dtype="<i2")
    return np.concatenate([v.view(np.uint8) for v in (scales.astype("<f4"), steps, sums)], axis=-1)
