"""Quantised values with scales per channel, and with real scales."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.dtype import i8
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import DTypeLike, TensorLike
from rlx.ops.quantization.requantize import BITS, fixed_point
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError


@helper
def quantize_per_channel(
    b: Builder, x: Tensor, scales: TensorLike, axis: int, zero_points: TensorLike | None = None, dtype: DTypeLike = i8
) -> Tensor:
    """`quantize` with a scale for each position of an axis.

    Args:
        b: The graph.
        x: Floats.
        scales: One for each position of `axis`: a tensor or a list.
        axis: The axis.
        zero_points: One integer for each position of `axis`; by default 0.
        dtype: i8 or u8.
    """
    return b.quantize(x, scales, 0 if zero_points is None else zero_points, axis=axis, dtype=dtype)


@helper
def dequant_moe_weights(b: Builder, w: Tensor, scheme: str) -> Tensor:
    """`dequantize_packed` of the matrices of experts: u8 `[E, N, bytes]` to f32 `[E, N, K]`.

    Args:
        b: The graph.
        w: The packed matrices. `dequant_grouped_matmul` multiplies with the chosen ones only.
        scheme: Their format.
    """
    return b.dequantize_packed(w, scheme=scheme)


@helper
def rescale(
    b: Builder,
    x: Tensor,
    scale: TensorLike | Sequence[float],
    zero_point: int = 0,
    mode: str = "double",
    dtype: DTypeLike = i8,
) -> Tensor:
    """`requantize` with real scales: `saturate(round(x·scale) + zero_point)`, with the scale in fixed point.

    Args:
        b: The graph.
        x: i32.
        scale: A positive number, or an array of them that broadcasts against `x`; see `fixed_point`.
        zero_point: In the range of `dtype`.
        mode: The fixed-point format of the scale and the rounding: `double`, `single` or `short`.
        dtype: i8, u8, i16 or i32.

    Raises:
        ShapeError: A scale is negative, not finite or too large.
    """
    mode = getattr(mode, "value", mode)
    if mode not in BITS:
        raise ShapeError(f"mode must be one of {', '.join(BITS)}, got {mode!r:.60}")
    multiplier, shift = fixed_point(scale, mode)
    return b.requantize(x, multiplier, shift, zero_point=zero_point, mode=mode, dtype=dtype)
