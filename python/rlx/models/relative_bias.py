"""Relative attention biases: a bias of the scores for each distance of two tokens (Raffel et al., T5, 2020, §2.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.graph.builder import Tensor


def distance_buckets(count: int, farthest: int, *, is_causal: bool = False) -> np.ndarray:
    """Return the bucket of each distance (key minus query position) from `-farthest` to `farthest`, i32.

    Short distances have buckets of their own. Longer ones share buckets that grow by a constant factor, up to `farthest`.

    Args:
        count: The number of buckets.
        farthest: The distance from which on all are in one bucket.
        is_causal: Whether tokens attend only to earlier ones. Otherwise half of the buckets are for later tokens.
    """
    distance = np.arange(-farthest, farthest + 1)
    half = count if is_causal else count // 2
    exact, far = half // 2, np.maximum(-distance, 0) if is_causal else np.abs(distance)
    steps = np.log(np.maximum(far, 1) / exact) / np.log(farthest / exact) * (half - exact)
    # Bucket limits are powers. Their computed logarithms may be slightly too small.
    coarse = np.minimum(exact + np.floor(steps + 1e-9).astype(np.int64), half - 1)
    later = 0 if is_causal else half * (distance > 0)
    return (np.where(far < exact, far, coarse) + later).astype(np.int32)


def distances(g: Any, start: Any, length: Any, total: Any) -> Tensor:
    """Return the positions of `total` keys minus those of `length` queries from `start` on, i32 `[length, total]`."""
    square = (length, total)
    own = g.reshape(g.arange(start, start + length), (length, 1))
    return g.iota(square, axis=1, dtype="i32") - own


def biases(g: Any, table: Tensor, buckets: np.ndarray, distance: Tensor) -> Tensor:
    """Return the biases `[H, length, total]` for a table `[buckets, H]`, the buckets of distances, and distances."""
    farthest = len(buckets) // 2
    place = g.minimum(g.maximum(distance, -farthest), farthest) + farthest
    return g.transpose(g.embedding(table, g.gather(g.constant(buckets), place)), (2, 0, 1))
