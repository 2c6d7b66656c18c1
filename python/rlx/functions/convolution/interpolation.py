"""Resized images with the names and arguments of other libraries."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import ShapeLike, TensorLike
from rlx.ops.lift import inexact, tensor_like
from rlx.ops.surface import helper


@helper
def interpolate(
    b: Builder,
    x: TensorLike,
    size: ShapeLike | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *,
    antialias: bool = False,
) -> Tensor:
    """PyTorch's `interpolate`: `resize` with PyTorch's argument names.

    Args:
        b: The graph.
        x: `[N, C, spatial…]` with one to three spatial axes.
        size: The new spatial sizes: one, or one for each axis.
        scale_factor: A factor for the sizes, in place of `size`; the result is rounded down.
        mode: `nearest`, `nearest-exact`, `linear`, `bilinear`, `trilinear`, `bicubic` or `area`.
        align_corners: Whether the centres of the outermost pixels of both images coincide.
        antialias: For bilinear and bicubic, when shrinking: whether to weight all pixels that a result pixel covers.

    Raises:
        ShapeError: Not exactly one of `size` and `scale_factor` is given, or the mode does not support the other
            arguments.
    """
    x = inexact(b, tensor_like(b, x, f32))
    return b.resize(x, size, scale_factor, mode=mode, align_corners=bool(align_corners), antialias=antialias)


@helper
def resize_nearest2x(b: Builder, x: Tensor) -> Tensor:
    """`resize` to twice the size on every spatial axis. Each pixel is repeated.

    Args:
        b: The graph.
        x: `[N, C, spatial…]`.
    """
    return b.resize(x, scale=2)
