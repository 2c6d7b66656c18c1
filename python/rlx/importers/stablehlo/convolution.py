"""Convolutions with any dimension numbers, batch groups, dilated operands and reversed windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.values import known_integers
from rlx.importers.stablehlo.windows import edges, pad_with_interior
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.promotion import promote
from rlx.ir.shape import Shape

_MOST_SPATIAL = 3


@dataclass(frozen=True, kw_only=True)
class ConvolutionAttributes(ArgumentGroup):
    """The attributes of a convolution, with StableHLO's names."""

    dimension_numbers: Any
    feature_group_count: int
    batch_group_count: int
    window_strides: tuple[int, ...] | None = None
    padding: np.ndarray | None = None
    lhs_dilation: tuple[int, ...] | None = None
    rhs_dilation: tuple[int, ...] | None = None
    window_reversal: tuple[bool, ...] | None = None

    def padded(self, g: Graph, x: Tensor, padding: np.ndarray | None) -> Tensor:
        """The operand, its spatial axes last, with padding around it and holes between its elements."""
        count = x.rank - 2
        low, high = edges(padding, count)
        holes = [d - 1 for d in self.lhs_dilation or (1,) * count]
        return pad_with_interior(
            g, x, g.constant(np.zeros((), x.dtype.numpy)), (0, 0, *low), (0, 0, *high), (0, 0, *holes)
        )


@imports("convolution", "dynamic_conv")
def convolution(
    g: Graph,
    x: Tensor,
    w: Tensor,
    dynamic_padding: Tensor | None = None,
    *,
    results: list[Shape],
    window: ConvolutionAttributes,
) -> Tensor:
    padding = window.padding
    if dynamic_padding is not None:
        padding = np.reshape(known_integers(dynamic_padding, "padding"), dynamic_padding.shape.static)
    numbers = mlir.stablehlo().ConvDimensionNumbers(window.dimension_numbers)
    spatial = list(numbers.input_spatial_dimensions)
    count = len(spatial)
    result = results[0]
    wide = promote(promote(x.dtype, w.dtype), result.dtype)
    x, w = g.cast(x, wide), g.cast(w, wide)
    x = g.transpose(x, [numbers.input_batch_dimension, numbers.input_feature_dimension, *spatial])
    w = g.transpose(
        w,
        [
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            *numbers.kernel_spatial_dimensions,
        ],
    )
    turned = [axis + 2 for axis, reversed_ in enumerate(window.window_reversal or ()) if reversed_]
    w = g.reverse(w, turned) if turned else w
    x = window.padded(g, x, padding)
    groups, batch_group_count = window.feature_group_count, window.batch_group_count
    if batch_group_count > 1:
        # Each batch group has its own output features. Express batch groups as groups of input features.
        n, c = x.shape.dims[:2]
        parts = g.reshape(x, (batch_group_count, n // batch_group_count, c, *x.shape.dims[2:]))
        x = g.reshape(g.swapaxes(parts, 0, 1), (n // batch_group_count, batch_group_count * c, *x.shape.dims[2:]))
        groups = batch_group_count
    strides, dilation = tuple(window.window_strides or (1,) * count), tuple(window.rhs_dilation or (1,) * count)
    y = _convolved(g, x, w, strides, dilation, groups)
    order = [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions]
    return g.cast(g.transpose(y, [order.index(axis) for axis in range(len(order))]), result.dtype)


def _convolved(
    g: Graph, x: Tensor, w: Tensor, strides: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> Tensor:
    """Return a convolution of any dtype and number of spatial axes. `conv` supports one to three, and no complex numbers."""
    count = x.rank - 2
    sizes = [
        max(0, (n - (k - 1) * d - 1) // s + 1) if k and n > (k - 1) * d else 0
        for n, k, d, s in zip(x.shape.static[2:], w.shape.static[2:], dilation, strides, strict=True)
    ]
    if 0 in (*sizes, *x.shape.static, *w.shape.static):
        return g.zeros((x.shape.dims[0], w.shape.dims[0], *sizes), x.dtype)
    if x.dtype.is_complex:
        (a, b), (c, d) = ((g.real(v), g.imag(v)) for v in (x, w))
        parts = [_convolved(g, p, q, strides, dilation, groups) for p, q in ((a, c), (b, d), (a, d), (b, c))]
        return g.complex(parts[0] - parts[1], parts[2] + parts[3])
    if x.dtype.is_bool:
        bytes_ = _convolved(g, g.cast(x, "i32"), g.cast(w, "i32"), strides, dilation, groups)
        return bytes_ != 0
    if count == 0:
        y = _convolved(g, g.expand_dims(x, -1), g.expand_dims(w, -1), (1,), (1,), groups)
        return g.squeeze(y, -1)
    if count <= _MOST_SPATIAL:
        return g.conv(x, w, strides, 0, dilation, groups)
    # Compute the first spatial axis as a sum over the window.
    total: Any = None
    for k in range(w.shape.static[2]):
        first = k * dilation[0]
        rows = x[:, :, first : first + (sizes[0] - 1) * strides[0] + 1 : strides[0]]
        n = math.prod(rows.shape.static[:1])
        flat = g.reshape(g.moveaxis(rows, 2, 1), (n * sizes[0], rows.shape.dims[1], *rows.shape.dims[3:]))
        y = _convolved(g, flat, w[:, :, k], strides[1:], dilation[1:], groups)
        y = g.moveaxis(g.reshape(y, (n, sizes[0], *y.shape.dims[1:])), 1, 2)
        total = y if total is None else total + y
    return total
