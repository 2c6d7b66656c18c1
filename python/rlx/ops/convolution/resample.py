"""Resampling by weighted neighbours: cubic, area, antialiased and exact nearest modes."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from rlx.ir.dims.dim import Dim, dim, maximum
from rlx.ir.dtype import i32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.lift import cast, size_of
from rlx.ops.norm import statistics_input
from rlx.support.errors import ShapeError

# The slope of the cubic at its first zero: -0.75 in PyTorch and OpenCV, -0.5 in Keys' paper, Pillow and JAX.
_CUBIC, _KEYS = -0.75, -0.5

# Up to this number of neighbours, each is gathered separately. XLA's CPU client computes this ten times as fast as a
# sum over an axis.
_UNROLLED = 4

# The modes of `resize` that are compositions of other ops.
COMPOSED_MODES = ("nearest_exact", "bicubic", "area")
_ALIASES = {"nearest-exact": "nearest_exact", "linear": "bilinear", "trilinear": "bilinear", "cubic": "bicubic"}


def mode_of(mode: str) -> str:
    """Return RLX's name of a mode.

    Raises:
        ShapeError: The mode is unknown.
    """
    mode = _ALIASES.get(mode, mode) if isinstance(mode, str) else mode
    if isinstance(mode, str) and mode not in ("nearest", "bilinear", *COMPOSED_MODES):
        raise ShapeError(f"mode is 'nearest', 'nearest_exact', 'bilinear', 'bicubic' or 'area', not {mode!r:.60}")
    return mode


def cubic(distance: np.ndarray, slope: float) -> np.ndarray:
    """Return the weight of a neighbour at a distance (R. Keys, "Cubic convolution interpolation", 1981, equation 4)."""
    d = np.abs(distance)
    near = ((slope + 2) * d - (slope + 3)) * d * d + 1
    far = ((slope * d - 5 * slope) * d + 8 * slope) * d - 4 * slope
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(distance), 0)


# The extent that a pixel covers, and its weight as a function of the distance.
_KERNELS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1, _triangle),
    "bicubic": (2, partial(cubic, slope=_KEYS)),
}


def _known(old: Dim, new: Dim, mode: str) -> tuple[int, int]:
    if type(old) is not int or type(new) is not int:
        raise ShapeError(
            f"{mode} needs known sizes, not {old} to {new}", hint="nearest and bilinear take symbolic ones"
        )
    return old, new


def _cubic_taps(old: int, new: int, align_corners: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return four neighbours of each position, clamped to the image, and their weights."""
    index = np.arange(new)
    at = index * ((old - 1) / max(new - 1, 1)) if align_corners else (index + 0.5) * (old / new) - 0.5
    places = np.floor(at)[:, None] + np.arange(-1, 3)
    return np.clip(places, 0, old - 1), cubic(at[:, None] - places, _CUBIC)


def _antialiased_taps(old: int, new: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all neighbours that a result pixel covers, and their weights. Positions beyond the edges have weight 0."""
    reach, kernel = _KERNELS[mode]
    step = old / new
    width = max(step, 1.0)
    centre = (np.arange(new) + 0.5) * step - 0.5
    places = np.floor(centre - reach * width)[:, None] + np.arange(int(2 * reach * width) + 3)
    weights = np.where((places >= 0) & (places < old), kernel((places - centre[:, None]) / width), 0.0)
    return np.clip(places, 0, old - 1), weights / weights.sum(1, keepdims=True)


def weighted(b: Builder, x: Tensor, axis: int, places: np.ndarray, weights: np.ndarray) -> Tensor:
    """Return one axis as weighted sums of neighbours. `places` and `weights` are `[new, taps]`.

    A neighbour of weight 0 is ignored.
    """
    tail = (1,) * (x.rank - 1 - axis)
    share = weights.astype(x.dtype.numpy)
    if share.shape[1] <= _UNROLLED:
        total = None
        for place, weight in zip(places.astype(np.int32).T, share.T, strict=True):
            term = _unless_zero(
                b, b.gather(x, b.constant(np.ascontiguousarray(place)), axis), weight.reshape(-1, *tail)
            )
            total = term if total is None else total + term
        assert total is not None
        return total
    elements = b.gather(x, b.constant(places.astype(np.int32)), axis)
    return b.sum(_unless_zero(b, elements, share.reshape(*share.shape, *tail)), axis + 1)


def _unless_zero(b: Builder, elements: Tensor, share: np.ndarray) -> Tensor:
    """Return elements times their weights, and 0 where the weight is 0, even if the element is NaN."""
    terms = elements * b.constant(np.ascontiguousarray(share))
    return b.where(b.constant(share != 0), terms, 0.0) if (share == 0).any() else terms


def resample(
    b: Builder, x: Tensor, size: Sequence[Dim], mode: str, *, align_corners: bool = False, antialias: bool = False
) -> Tensor:
    """Compute the modes of `resize` that its record lacks, one axis after the other.

    Args:
        b: The builder that emits the ops.
        x: `[N, C, spatial…]` floats.
        size: The new spatial sizes.
        mode: One of `COMPOSED_MODES`, or with `antialias` `bilinear`.
        align_corners: As in `resize`.
        antialias: When shrinking, whether to weight all pixels that a result pixel covers.

    Raises:
        ShapeError: The mode does not support the options, or needs a static size where the size is symbolic.
    """
    if align_corners and (antialias or mode not in ("bilinear", "bicubic")):
        raise ShapeError(f"align_corners does not go with {'antialias' if antialias else mode}")
    if antialias and mode not in _KERNELS:
        raise ShapeError(f"antialias is for bilinear and bicubic, not for {mode}")
    sizes = [dim(new) for new in size]
    if x.rank not in (3, 4, 5) or len(sizes) != x.rank - 2:
        raise ShapeError(f"x must be [N, C, spatial…] with {len(sizes)} spatial axes for size {sizes}, got {x.shape}")
    if not x.dtype.is_inexact and mode != "nearest_exact":
        raise ShapeError(f"{mode} takes floats, got {x.shape}", hint="cast x to f32 first, and round what comes")
    if mode == "area":
        return b.adaptive_avg_pool(x, sizes)
    wide = x if mode == "nearest_exact" else statistics_input(b, x)
    for axis, new in enumerate(sizes, 2):
        old = x.shape.dims[axis]
        if old == new:
            continue
        if old == 0:
            raise ShapeError(f"spatial axis {axis - 2} of {x.shape} is empty: there is nothing to resize")
        if mode == "nearest_exact":
            wide = b.gather(wide, _nearest_places(b, old, new), axis)
        elif antialias:
            wide = weighted(b, wide, axis, *_antialiased_taps(*_known(old, new, "antialias"), mode))
        else:
            wide = weighted(b, wide, axis, *_cubic_taps(*_known(old, new, mode), align_corners))
    return cast(b, wide, x.dtype)


def _nearest_places(b: Builder, old: Dim, new: Dim) -> Tensor:
    """Return `floor((i + 1/2)·old/new)` in integer arithmetic."""
    if type(old) is int and type(new) is int:
        return b.constant(((2 * np.arange(new) + 1) * old // (2 * new)).astype(np.int32))
    positions = b.iota((new,), dtype="i64") * 2 + 1
    quotient = b.floor_divide(positions * _size(b, old), _size(b, maximum(new, 1)) * 2)
    return cast(b, quotient, i32)


def _size(b: Builder, d: Dim) -> float | Tensor:
    """Return a dimension for arithmetic with i64."""
    return d if type(d) is int else b.cast(size_of(b, d), "i64")
