"""Resizing along axes of open size. Positions are computed at run time, in f32 as in ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rlx.importers.onnx.rules import extent
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.support.errors import UnsupportedError

# The largest denominator of a scale that an open size can be multiplied by.
_DENOMINATOR = 1024


def scaled(size: Dim, scale: float) -> Dim:
    """Return the size times a scale, rounded down.

    Raises:
        UnsupportedError: The size is open, and the scale is not a fraction of small integers.
    """
    part = Fraction(scale).limit_denominator(_DENOMINATOR)
    if isinstance(size, int) or float(part) != scale:
        if isinstance(size, int):
            return int(scale * size // 1)
        raise UnsupportedError(f"of an open size by {scale} cannot be imported")
    return size * part.numerator // part.denominator


@dataclass(frozen=True)
class Interpolation:
    """The interpolation of a resize.

    Attributes:
        coordinates: ONNX's `coordinate_transformation_mode`.
        mode: `nearest`, `linear` or `cubic`.
        rounding: Of `nearest`.
        cubic: The coefficient of `cubic`.
    """

    coordinates: str
    mode: str
    rounding: str
    cubic: float


def along_open(g: Graph, x: Tensor, axis: int, count: Dim, scale: float | None, how: Interpolation) -> Tensor:
    """An axis with another number of elements.

    Args:
        g: The graph.
        x: Floats.
        axis: The axis.
        count: How many elements the result has.
        scale: How many for one element; None for the quotient of the sizes.
        how: How they are made.
    """
    size = x.shape.dims[axis]
    places = _places(g, how.coordinates, count, size, scale)
    if how.mode == "nearest":
        return g.gather(x, _within(g, _rounded(g, places, how.rounding), size), axis=axis)
    first = g.floor(places)
    share = g.sub(places, first)
    total: Any = None
    for step, weight in _weights(g, share, how.mode, how.cubic):
        taken = g.gather(x, _within(g, g.add(first, float(step)), size), axis=axis)
        term = g.mul(taken, g.reshape(g.cast(weight, x.dtype), (count, *(1,) * (x.shape.rank - 1 - axis))))
        total = term if total is None else g.add(total, term)
    return total


def _places(g: Graph, mode: str, count: Dim, size: Dim, scale: float | None) -> Tensor:
    """Return the position of each result on the axis, f32."""
    number = g.cast(g.iota((count,), 0), "f32")
    whole = dim.exact_divide(count, size)
    ratio: Any = scale if scale is not None else float(whole) if isinstance(whole, int) else None
    if ratio is None:
        ratio = g.div(extent(g, count, "f32"), extent(g, size, "f32"))
    if mode in ("asymmetric", "tf_half_pixel_for_nn"):
        return g.div(number if mode == "asymmetric" else g.add(number, 0.5), ratio)
    if mode == "align_corners":
        last = extent(g, count - 1, "f32")
        steps = max(last, 1) if isinstance(last, int) else g.maximum(last, 1.0)
        return g.div(g.mul(number, extent(g, size - 1, "f32")), steps)
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise UnsupportedError(f"of an open size with the coordinates '{mode}' cannot be imported")
    half = g.sub(g.div(g.add(number, 0.5), ratio), 0.5)
    if mode == "pytorch_half_pixel":  # a single result is the first element
        return (
            g.where(g.gt(extent(g, count, "i32"), 1), half, 0.0) if not isinstance(count, int) or count == 1 else half
        )
    return half


def _rounded(g: Graph, places: Tensor, rounding: str) -> Tensor:
    if rounding in ("floor", "ceil"):
        return getattr(g, rounding)(places)
    if rounding == "round_prefer_floor":
        return g.ceil(g.sub(places, 0.5))
    if rounding == "round_prefer_ceil":
        return g.floor(g.add(places, 0.5))
    raise UnsupportedError(f"with the rounding '{rounding}' cannot be imported")


def _within(g: Graph, places: Tensor, size: Dim) -> Tensor:
    """Return positions as indices, clamped to the axis."""
    return g.minimum(g.maximum(g.cast(places, "i32"), 0), extent(g, size - 1, "i32"))


def _weights(g: Graph, share: Tensor, mode: str, a: float) -> list[tuple[int, Tensor]]:
    """Return the offsets of the elements of a result, relative to the one before its position, and their weights."""
    if mode == "linear":
        return [(0, g.sub(1.0, share)), (1, share)]

    def near(x: Tensor) -> Tensor:
        return g.add(g.mul(g.mul(g.sub(g.mul(x, a + 2), a + 3), x), x), 1.0)

    def far(x: Tensor) -> Tensor:
        return g.sub(g.mul(g.add(g.mul(g.sub(g.mul(x, a), 5 * a), x), 8 * a), x), 4 * a)

    rest = g.sub(1.0, share)
    return [(-1, far(g.add(share, 1.0))), (0, near(share)), (1, near(rest)), (2, far(g.add(rest, 1.0)))]
