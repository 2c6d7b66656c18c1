"""Blocks that mix along the sequence without attention."""

from __future__ import annotations

from typing import Any

from rlx.ir.dtype import FLOATS
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op.card import Card, sample
from rlx.ir.shape import Shape
from rlx.ops.lift import same_dtype
from rlx.support.errors import ShapeError


class DepthwiseConv1dCausal(Card, op="depthwise_conv1d_causal"):
    def infer(self, x: Shape, w: Shape, left_pad: Shape, *, kernel_size: int) -> Shape:
        same_dtype(x, w, left_pad)
        if x.rank != 3:
            raise ShapeError(f"x must be [B, S, C], got {x}")
        batch, _, channels = x.dims
        if kernel_size < 1 or w.dims != (channels, 1, 1, kernel_size):
            raise ShapeError(f"w must be [{channels}, 1, 1, {kernel_size}], got {w}")
        if left_pad.dims != (batch, kernel_size - 1, channels):
            raise ShapeError(f"left_pad must be [{batch}, {kernel_size - 1}, {channels}], got {left_pad}")
        return x

    def decompose(self, b: Builder, x: Tensor, w: Tensor, left_pad: Tensor, *, kernel_size: int) -> Tensor:
        channels: Any = x.shape.dims[2]
        padded = b.concat([left_pad, x], 1) if kernel_size > 1 else x
        rows = b.transpose(padded, (0, 2, 1))
        kernel = b.reshape(w, (channels, 1, kernel_size))
        return b.transpose(b.conv(rows, kernel, groups=channels), (0, 2, 1))

    def samples(self) -> Any:
        yield sample((2, 5, 3), (3, 1, 1, 4), (2, 3, 3), kernel_size=4, dtypes=FLOATS)
        yield sample((2, 5, 3), (3, 1, 1, 1), (2, 0, 3), kernel_size=1, dtypes=("f32",))
        yield sample(("b", "s", 3), (3, 1, 1, 2), ("b", 1, 3), kernel_size=2, dtypes=("f32",))
