"""`rlx-conv-products`: convolutions with long strides as products of matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

from rlx import mlir
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.op import views
from rlx.ir.shape import Shape, shape_of
from rlx.passes.base import Pass
from rlx.passes.pattern import Rewriter, pattern, rewrite

_LEAST_STRIDE = 5
_MOST_PARTS = 4  # of a window: the operand of the product is this much larger than that of the convolution


@dataclass(frozen=True)
class ConvProducts(Pass, name="rlx-conv-products", idempotent=True):
    """Compute convolutions with long strides as products: each window is a row of a matrix.

    Examples are the patches of a vision transformer, and a short-time Fourier transform in the form of a convolution. Their
    windows start far from each other, so that code for vectors of windows is slow. A window must consist of whole strides.
    """

    def run(self, module: mlir.Module) -> None:
        rewrite(module, (convolution, convolution_with_bias), self.name)


@pattern
def convolution(op: views.Conv, rewriter: Rewriter) -> Any:
    """`conv(x, w)`."""
    windows, b = _windows(op), rewriter.builder
    return None if windows is None else windows.channels_first(b, windows.rows(b) @ windows.matrix(b))


@pattern
def convolution_with_bias(op: views.FusedConvBiasAct, rewriter: Rewriter) -> Any:
    """`act(conv(x, w) + bias)`."""
    windows, b = _windows(op), rewriter.builder
    if windows is None:
        return None
    operands = (windows.rows(b), windows.matrix(b), b.tensor(op.bias))
    return windows.channels_first(b, b.emit("fused_matmul_bias_act", operands, activation=op.activation))


def _windows(op: views.Conv | views.FusedConvBiasAct) -> _StridedWindows | None:
    """Return the windows of a convolution that becomes a product; None for others."""
    x, w, y = (shape_of(v) for v in (op.x, op.w, op.result))
    if (
        not x.dtype.is_float
        or op.groups != 1
        or any(type(d) is not int or d < 1 for d in (*x.dims[1:], *w.dims, *y.dims[1:]))
    ):
        return None
    taps, stride, counts = w.static[2:], tuple(op.stride), Shape(y.dims[2:], y.dtype).static
    is_whole = all(t % s == 0 for t, s in zip(taps, stride, strict=True))
    if any(d != 1 for d in op.dilation) or max(stride, default=0) < _LEAST_STRIDE or not is_whole:
        return None
    parts = tuple(t // s for t, s in zip(taps, stride, strict=True))
    return (
        _StridedWindows(op.x, op.w, stride, tuple(op.padding), parts, counts)
        if math.prod(parts) <= _MOST_PARTS
        else None
    )


@dataclass(frozen=True)
class _StridedWindows:
    """The windows of a convolution.

    Attributes:
        x: The elements `[N, C, spatial…]`.
        w: The weights `[O, C, taps…]`.
        stride: The distance of windows on each spatial axis.
        padding: The padding before and after each axis.
        parts: The strides in a window on each axis.
        counts: The number of windows on each axis.
    """

    x: mlir.Value
    w: mlir.Value
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    parts: tuple[int, ...]
    counts: tuple[int, ...]

    def rows(self, b: Builder) -> Tensor:
        """The elements of the windows, `[N, counts…, elements]`: in order of parts, channels, and places in a part."""
        x, rank = b.tensor(self.x), len(self.stride)
        before, after = self.padding[::2], self.padding[1::2]
        if any(self.padding):
            x = b.pad(x, ((0, 0), (0, 0), *zip(before, after, strict=True)))
        blocks = tuple(c + p - 1 for c, p in zip(self.counts, self.parts, strict=True))
        for axis, (count, stride) in enumerate(zip(blocks, self.stride, strict=True), 2):
            if x.shape.dims[axis] != count * stride:
                x = b.narrow(x, axis, 0, count * stride)
        batch, channels = x.shape.dims[:2]
        split = [size for pair in zip(blocks, self.stride, strict=True) for size in pair]
        places, inside = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
        x = b.transpose(b.reshape(x, (batch, channels, *split)), (0, *places, 1, *inside))
        x = b.reshape(x, (batch, *blocks, channels * math.prod(self.stride)))
        pieces: list[Tensor] = []
        for starts in product(*map(range, self.parts)):
            piece = x
            for axis, (start, count) in enumerate(zip(starts, self.counts, strict=True), 1):
                piece = b.narrow(piece, axis, start, count) if piece.shape.dims[axis] != count else piece
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b.concat(pieces, axis=1 + rank)

    def matrix(self, b: Builder) -> Tensor:
        """The weights as a matrix, with a row for each element of a window and a column for each channel of the result."""
        w, rank = b.tensor(self.w), len(self.stride)
        outputs, channels = w.shape.dims[:2]
        split = [size for pair in zip(self.parts, self.stride, strict=True) for size in pair]
        parts, inside = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
        w = b.transpose(b.reshape(w, (outputs, channels, *split)), (*parts, 1, *inside, 0))
        return b.reshape(w, (math.prod((*self.parts, channels, *self.stride)), outputs))

    def channels_first(self, b: Builder, rows: Tensor) -> Tensor:
        """The result of the convolution, from that of the product."""
        rank = len(self.stride)
        return b.transpose(rows, (0, rank + 1, *range(1, rank + 1)))
