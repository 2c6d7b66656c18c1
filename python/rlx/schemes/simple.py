"""Blocks of integers with one scale, or a scale and an offset: Q4_0, Q8_0 and their relatives.

Sources: the structures of ggml/src/ggml-common.h, and ggml/src/ggml-quants.c.
"""

from __future__ import annotations

import numpy as np

from rlx.schemes.blocks import Blocks, V
from rlx.schemes.packing import as_halves, half_bytes, pack, peaks, reciprocals, round_away, signed_peaks
from rlx.schemes.scheme import Scheme
from rlx.schemes.search import columns, fit_scales, fit_scales_and_minima, normalised, rounding, weighted


def _q1_0(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.bits(2, 16, 1) * 2 - 1) * blocks.half(0)


def _q2_0(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.bit_pairs(2, 16, 1) - 1) * blocks.half(0)


def _q4_0(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.nibbles(2, 16, 16) - 8) * blocks.half(0)


def _q4_1(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.nibbles(4, 16, 16)) * blocks.half(0) + blocks.half(2)


def _q5_0(blocks: Blocks[V]) -> V:
    steps = blocks.nibbles(6, 16, 16) | blocks.bits(2, 4, 1) << 4
    return blocks.floats(steps - 16) * blocks.half(0)


def _q5_1(blocks: Blocks[V]) -> V:
    steps = blocks.nibbles(8, 16, 16) | blocks.bits(4, 4, 1) << 4
    return blocks.floats(steps) * blocks.half(0) + blocks.half(2)


def _q8_0(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.signed(2, 32)) * blocks.half(0)


def _q8_1(blocks: Blocks[V]) -> V:
    return blocks.floats(blocks.signed(4, 32)) * blocks.half(0)


def _encode_q1_0(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    weights = np.ones_like(x) if importance is None else normalised(importance)[0]
    total = weights.sum(-1, keepdims=True)
    weights = np.where(total == 0, np.float32(1), weights)
    scales = (weights * np.abs(x)).sum(-1, keepdims=True) / weights.sum(-1, keepdims=True)
    return np.concatenate([half_bytes(scales), pack((x >= 0).view(np.uint8), 1, 1)], axis=-1)


def _searched(
    x: np.ndarray, importance: np.ndarray, low: int, high: int, factors: list[float]
) -> tuple[np.ndarray, ...]:
    """Return scales with the smallest weighted error as bytes, and steps counted from `low`, u8."""
    u, size = normalised(x)
    weights = columns(weighted(u, importance), 1)
    scales = as_halves(fit_scales(columns(u, 1), weights, factors, rounding(low, high))[:, None] * size)
    steps = np.clip(np.rint(x * reciprocals(scales.astype(np.float32))), low, high) - low
    return scales.view(np.uint8), steps.astype(np.uint8)


def _searched_with_minima(x: np.ndarray, importance: np.ndarray, largest: int) -> tuple[np.ndarray, ...]:
    """Return scales and minima with the smallest weighted error as bytes, and steps, u8."""
    u, size = normalised(x)
    factors = [largest - 0.9 + 0.05 * i for i in range(37)]
    weights = columns(weighted(u, importance), 1)
    found = fit_scales_and_minima(columns(u, 1), weights, largest, factors, non_positive=False)
    units = as_halves(np.stack(found, axis=-1) * size)
    scales, minima = units[:, :1].astype(np.float32), units[:, 1:].astype(np.float32)
    steps = np.clip(np.rint((x - minima) * reciprocals(scales)), 0, largest)
    return units.view(np.uint8), steps.astype(np.uint8)


def _symmetric(x: np.ndarray, importance: np.ndarray | None, largest: int) -> tuple[np.ndarray, ...]:
    """Return scales as bytes and steps from 0 to `2·largest - 1`, u8. The step of the number 0 is `largest`."""
    if importance is not None:
        return _searched(x, importance, -largest, largest - 1, [-largest - 0.1 * i for i in range(-9, 10)])
    scales = signed_peaks(x) / np.float32(-largest)
    steps = np.trunc(x * reciprocals(scales) + np.float32(largest + 0.5))
    return half_bytes(scales), np.clip(steps, 0, 2 * largest - 1).astype(np.uint8)


def _from_minimum(x: np.ndarray, importance: np.ndarray | None, largest: int) -> tuple[np.ndarray, ...]:
    """Return scales and minima as bytes, and steps from 0 to `largest`, u8."""
    if importance is not None:
        return _searched_with_minima(x, importance, largest)
    minima = x.min(-1, keepdims=True)
    scales = (x.max(-1, keepdims=True) - minima) / np.float32(largest)
    steps = np.trunc((x - minima) * reciprocals(scales) + np.float32(0.5))
    return half_bytes(np.concatenate([scales, minima], axis=-1)), np.clip(steps, 0, largest).astype(np.uint8)


def _encode_q2_0(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    if importance is not None:
        scales, steps = _searched(x, importance, -1, 2, [sign * (0.4 + 0.1 * i) for i in range(22) for sign in (1, -1)])
    else:
        size = peaks(x)
        scales, steps = half_bytes(size), (round_away(x * reciprocals(size)) + 1).astype(np.uint8)
    return np.concatenate([scales, pack(steps, 2, 1)], axis=-1)


def _encode_q4_0(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    scales, steps = _symmetric(x, importance, 8)
    return np.concatenate([scales, pack(steps, 4, 16)], axis=-1)


def _encode_q4_1(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    units, steps = _from_minimum(x, importance, 15)
    return np.concatenate([units, pack(steps, 4, 16)], axis=-1)


def _encode_q5_0(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    scales, steps = _symmetric(x, importance, 16)
    return np.concatenate([scales, pack(steps >> 4, 1, 1), pack(steps & 15, 4, 16)], axis=-1)


def _encode_q5_1(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    units, steps = _from_minimum(x, importance, 31)
    return np.concatenate([units, pack(steps >> 4, 1, 1), pack(steps & 15, 4, 16)], axis=-1)


def _eight_bits(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scales, f32, and steps, i8."""
    scales = peaks(x) / np.float32(127)
    return scales, round_away(x * reciprocals(scales)).astype(np.int8)


def _encode_q8_0(x: np.ndarray, _: np.ndarray | None) -> np.ndarray:
    scales, steps = _eight_bits(x)
    return np.concatenate([half_bytes(scales), steps.view(np.uint8)], axis=-1)


def _encode_q8_1(x: np.ndarray, _: np.ndarray | None) -> np.ndarray:
    scales, steps = _eight_bits(x)
    sums = steps.sum(-1, keepdims=True, dtype=np.float32)
    return np.concatenate([half_bytes(scales), half_bytes(sums * scales), steps.view(np.uint8)], axis=-1)


SCHEMES = (
    Scheme("q1_0", 128, 18, 41, _q1_0, _encode_q1_0),
    Scheme("q2_0", 64, 18, 42, _q2_0, _encode_q2_0),
    Scheme("q4_0", 32, 18, 2, _q4_0, _encode_q4_0),
    Scheme("q4_1", 32, 20, 3, _q4_1, _encode_q4_1),
    Scheme("q5_0", 32, 22, 6, _q5_0, _encode_q5_0),
    Scheme("q5_1", 32, 24, 7, _q5_1, _encode_q5_1),
    Scheme("q8_0", 32, 34, 8, _q8_0, _encode_q8_0),
    Scheme("q8_1", 32, 36, 9, _q8_1, _encode_q8_1),
)
