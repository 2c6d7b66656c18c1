"""Searches for the scales of blocks: weighted least squares over a range of candidates.

A candidate is a scale before rounding. The elements are rounded with it, and the scale that then has the smallest error
has a closed form. The candidate with the smallest error wins, as in ggml (`make_qx_quants`, `make_qkx3_quants`).

The functions take values `[m, n]`: one column for each of n blocks, so that sums over a block are sums of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rlx.schemes.packing import reciprocals

_F32 = np.float32
# Candidates for the scale of a superblock, relative to the one for which the largest scale is the largest integer.
_AROUND = tuple(1 + 0.01 * i for i in range(-6, 7))
Round = Callable[[np.ndarray, float, np.ndarray], None]


def columns(x: np.ndarray, count: int) -> np.ndarray:
    """Return blocks `[n, count·m]`, each of `count` sub-blocks, as columns: `[m, n·count]`."""
    return np.ascontiguousarray(x.reshape(x.shape[0] * count, -1).T)


def normalised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return blocks divided by their largest magnitudes, and these, `[n, 1]`. Squares then do not overflow."""
    largest = np.maximum(x.max(-1, keepdims=True), -x.min(-1, keepdims=True))
    return x / np.where(largest == 0, _F32(1), largest), largest


def weighted(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """Return the weights of the errors of blocks, `[n, block]`: larger for larger elements, as in ggml.

    Args:
        x: `[n, block]`.
        importance: Factors of the weights, `[n, block]`; None if all elements are equally important. A block of zeros
            has equal factors.
    """
    energy = 2 * np.einsum("ij,ij->i", x, x)[:, None] / _F32(x.shape[-1])
    weights = np.sqrt(energy + x * x)
    if importance is not None:
        factors, largest = normalised(importance)
        weights *= np.where(largest == 0, _F32(1), factors)
    return weights


def rounding(low: int, high: int) -> Round:
    """Return the function that rounds `x·factor` to the integers from `low` to `high`."""

    def into(x: np.ndarray, factor: float, steps: np.ndarray) -> None:
        np.multiply(x, _F32(factor), out=steps)
        np.rint(steps, out=steps)
        np.clip(steps, _F32(low), _F32(high), out=steps)

    return into


def fit_scales(x: np.ndarray, weights: np.ndarray, factors: Iterable[float], rounded: Round) -> np.ndarray:
    """Return scales `[n]` for which `scale·step` is close to `x`.

    Args:
        x: `[m, n]`.
        weights: `[m, n]`.
        factors: Steps that the number of the largest magnitude in a column may have, before it is rounded.
        rounded: The steps of a format.
    """
    low, high = x.min(0), x.max(0)
    peak = np.where(high >= -low, high, low)
    u = x / np.where(peak == 0, _F32(1), peak)
    wu, steps = weights * u, np.empty_like(u)
    best, scale = np.zeros_like(peak), np.zeros_like(peak)
    for factor in factors:
        rounded(u, factor, steps)
        product = np.einsum("ij,ij->j", wu, steps)
        square = np.einsum("ij,ij,ij->j", weights, steps, steps)
        fitted = product / np.where(square > 0, square, _F32(1))
        gain = fitted * product
        better = gain > best
        np.copyto(best, gain, where=better)
        np.copyto(scale, fitted, where=better)
    return scale * peak


def fit_scales_and_minima(
    x: np.ndarray, weights: np.ndarray, largest: int, factors: Iterable[float], non_positive: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return scales `[n]` and minima `[n]` for which `minimum + scale·step` is close to `x`.

    Args:
        x: `[m, n]`.
        weights: `[m, n]`.
        largest: The largest step; the smallest is 0.
        factors: Steps that the largest number of a column may have, before it is rounded.
        non_positive: Whether a minimum has to be zero or negative.
    """
    low, high = x.min(0), x.max(0)
    if non_positive:
        low = np.minimum(low, _F32(0))
    extent = high - low
    divisor = np.where(extent == 0, _F32(1), extent)
    y = (x - low) / divisor
    most = -low / divisor if non_positive else np.full_like(low, np.inf)
    wy, steps = weights * y, np.empty_like(y)
    rounded = rounding(0, largest)
    s_w, s_y, s_yy = weights.sum(0), wy.sum(0), np.einsum("ij,ij->j", wy, y)
    best = np.full_like(low, np.inf)
    scale, offset = np.full_like(low, 1 / largest), np.zeros_like(low)
    for factor in factors:
        rounded(y, factor, steps)
        s_l = np.einsum("ij,ij->j", weights, steps)
        s_yl = np.einsum("ij,ij->j", wy, steps)
        s_ll = np.einsum("ij,ij,ij->j", weights, steps, steps)
        determinant = s_w * s_ll - s_l * s_l
        # Where all steps are equal, the error is NaN and not smaller.
        c = np.minimum((s_ll * s_y - s_l * s_yl) / determinant, most)
        s = np.maximum((s_yl - c * s_l) / s_ll, _F32(0))
        error = s_yy + s * (s * s_ll - 2 * s_yl) + c * (c * s_w - 2 * s_y + 2 * s * s_l)
        better = error < best
        np.copyto(best, error, where=better)
        np.copyto(scale, s, where=better)
        np.copyto(offset, c, where=better)
    return scale * extent, low + offset * extent


def split_scales(
    scales: np.ndarray, weights: np.ndarray, count: int, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return scales of sub-blocks as products of an f32 number and integers.

    Args:
        scales: `[n·count]`.
        weights: The sums of the weights in each sub-block, `[n·count]`.
        count: The number of sub-blocks in a superblock.
        low: The smallest integer, which the largest scale becomes; 0 if all scales are positive.
        high: The largest integer.

    Returns:
        The number of each superblock, `[n, 1]`, and the integers as f32, `[n, count]`.
    """
    scales, weights = (np.ascontiguousarray(v.reshape(-1, count).T) for v in (scales, weights))
    around = [(low or high) * factor for factor in _AROUND]
    unit = fit_scales(scales, weights, around, rounding(low, high))
    steps = np.clip(np.rint(scales * reciprocals(unit)), _F32(low), _F32(high))
    return unit[:, None], np.ascontiguousarray(steps.T)
