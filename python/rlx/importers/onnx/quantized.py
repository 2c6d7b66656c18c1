"""Quantisation, dequantisation, and products of quantised tensors. A value is `(integer - zero point) * scale`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.elementwise import cast
from rlx.importers.onnx.network import ConvAttributes
from rlx.importers.onnx.rules import imports
from rlx.ir.dtype import DType, dtype, f32, f64, u8
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError

_WITH_PRECISION = 23  # the first version whose text specifies the type of the division


def for_axis(g: Graph, x: Tensor, values: Tensor, axis: int, block_size: int) -> Tensor:
    """Reshape scales or zero points to broadcast with a tensor: a single one, one per index of an axis, or one per block."""
    if values.shape.rank == 0 or (values.shape.rank == 1 and values.shape.dims[0] == 1):
        return g.reshape(values, ())
    axis = axis % x.shape.rank
    if block_size:
        repeated = g.repeat(values, block_size, axis)
        return g.narrow(repeated, axis, 0, x.shape.dims[axis])
    if values.shape.rank != 1:
        raise UnsupportedError("with scales for blocks, and no size of these, cannot be imported")
    return g.reshape(values, tuple(-1 if a == axis else 1 for a in range(x.shape.rank)))


@dataclass(frozen=True)
class QuantizationParameters(ArgumentGroup):
    """The scale and the zero point of a quantised tensor."""

    scale: Tensor
    zero_point: Tensor | None = None

    def quantized(self, g: Graph, x: Tensor, axis: int = 1) -> Tensor:
        """The integers for a tensor."""
        return quantize_linear(g, x, self, how=QuantizeAttributes(axis=axis))


@dataclass(frozen=True)
class QuantizedTensor(ArgumentGroup):
    """A quantised tensor: integers, their scale and their zero point."""

    integers: Tensor
    scale: Tensor
    zero_point: Tensor | None

    def dequantized(self, g: Graph, axis: int = 1) -> Tensor:
        """The numbers."""
        return dequantize_linear(g, self.integers, QuantizationParameters(self.scale, self.zero_point), axis=axis)

    def centred(self, g: Graph, axis: int) -> Tensor:
        """The integers less their zero point, as i32."""
        return centred(g, self.integers, self.zero_point, axis)


@imports("DequantizeLinear", "com.microsoft.DequantizeLinear")
def dequantize_linear(
    g: Graph,
    x: Tensor,
    by: QuantizationParameters,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: Any = None,
) -> Tensor:
    scale, zero_point = by.scale, by.zero_point
    kind = scale.dtype if output_dtype is None else dtype(output_dtype)
    if not kind.is_float or kind.storage:
        raise UnsupportedError(
            f"to {kind.name} cannot be imported",
            hint="give 'output_dtype': float, float16 or bfloat16; without it the result has the type of the scale",
        )
    value = g.cast(x, "f32")
    if zero_point is not None:
        value = g.sub(value, g.cast(for_axis(g, x, zero_point, axis, block_size), "f32"))
    result = g.mul(value, g.cast(for_axis(g, x, scale, axis, block_size), "f32"))
    return g.cast(result, kind)


@dataclass(frozen=True, kw_only=True)
class QuantizeAttributes(ArgumentGroup):
    """The attributes of `QuantizeLinear`, with ONNX's names."""

    axis: int = 1
    block_size: int = 0
    output_dtype: Any = None
    precision: Any = None
    saturate: int = 1


@imports("QuantizeLinear")
def quantize_linear(
    g: Graph, x: Tensor, by: QuantizationParameters, *, how: QuantizeAttributes, opset: int = 1
) -> Tensor:
    scale, zero_point = by.scale, by.zero_point
    kind = zero_point.dtype if zero_point is not None else u8
    if how.output_dtype is not None:
        kind = dtype(how.output_dtype)
        if zero_point is not None and zero_point.dtype is not kind:
            raise UnsupportedError(
                f"to {kind.name} with a zero point of {zero_point.dtype.name} cannot be imported",
                hint="ONNX says that 'output_dtype' is the type of the zero point, where both are given",
            )
    if not kind.is_integer and not (kind.is_float and kind.storage):
        raise UnsupportedError(f"to {kind.name} cannot be imported")
    wide = _precision(scale.dtype, how.precision, opset)
    value = g.div(g.cast(x, wide), g.cast(for_axis(g, x, scale, how.axis, how.block_size), wide))
    if wide.bits < 32:
        value = g.cast(value, "f32")  # a 16-bit zero point is added exactly
    value = g.round(value) if kind.is_integer else value
    if zero_point is not None:
        value = g.add(value, g.cast(for_axis(g, x, zero_point, how.axis, how.block_size), value.dtype))
    if kind.is_float:
        return cast(g, value, to=kind, saturate=how.saturate)
    return g.cast(g.clamp(value, float(kind.min), float(kind.max)), kind)


@imports("com.microsoft.QuantizeLinear")
def quantize_linear_of_microsoft(g: Graph, x: Tensor, by: QuantizationParameters, *, axis: int = 1) -> Tensor:
    return by.quantized(g, x, axis)


def _precision(scale: DType, precision: Any, opset: int) -> DType:
    """Return the dtype of the division by the scale: f32 before version 23, as in ONNX Runtime, then that of the scale."""
    if precision is not None:
        wide = dtype(precision)
        if not wide.is_float or wide.storage:
            raise UnsupportedError(
                f"with the precision {wide.name} cannot be imported", hint="it is float, float16 or bfloat16"
            )
        return wide
    if scale.is_integer:
        return f64  # so that quotients of i32 are rounded only once
    if scale.storage or opset < _WITH_PRECISION:
        return f32  # f8e8m0fnu does not support division
    return scale


@imports("DynamicQuantizeLinear")
def dynamic_quantize_linear(g: Graph, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise to u8 by the range of the tensor, extended to include 0. Return the result, its scale and its zero point."""
    low, high = g.minimum(g.min(x), 0.0), g.maximum(g.max(x), 0.0)
    scale = g.div(g.sub(high, low), 255.0)
    scale = g.where(g.eq(scale, 0.0), 1.0, scale)
    zero = g.cast(g.clamp(g.round(g.neg(g.div(low, scale))), 0.0, 255.0), "u8")
    return QuantizationParameters(scale, zero).quantized(g, x), scale, zero


def centred(g: Graph, x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    """Return the integers minus their zero point, as i32."""
    wide = g.cast(x, "i32")
    return wide if zero_point is None else g.sub(wide, g.cast(for_axis(g, x, zero_point, axis, 0), "i32"))


@imports("MatMulInteger")
def matmul_integer(
    g: Graph, a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    rows = a.shape.rank - 2 if a.shape.rank > 1 else 0
    return g.matmul(centred(g, a, a_zero_point, rows), centred(g, b, b_zero_point, b.shape.rank - 1))


@imports("QLinearMatMul")
def qlinear_matmul(g: Graph, a: QuantizedTensor, b: QuantizedTensor, y: QuantizationParameters) -> Tensor:
    rows, columns = max(a.integers.shape.rank - 2, 0), b.integers.shape.rank - 1
    product = g.cast(g.matmul(a.centred(g, rows), b.centred(g, columns)), "f32")
    left = g.cast(for_axis(g, product, a.scale, product.shape.rank - 2, 0), "f32")
    right = g.cast(for_axis(g, product, b.scale, product.shape.rank - 1, 0), "f32")
    factor = g.div(g.mul(left, right), g.cast(y.scale, "f32"))
    return _requantized(g, g.mul(product, factor), y.zero_point)


def _requantized(g: Graph, value: Tensor, zero_point: Tensor | None) -> Tensor:
    if zero_point is None:
        raise UnsupportedError("without a zero point of its result cannot be imported")
    limits = np.iinfo(zero_point.dtype.numpy)
    shifted = g.add(g.round(value), g.cast(g.reshape(zero_point, ()), "f32"))
    return g.cast(g.clamp(shifted, float(limits.min), float(limits.max)), zero_point.dtype)


@imports("ConvInteger")
def conv_integer(
    g: Graph,
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    window: ConvAttributes,
) -> Tensor:
    return window.convolved(g, centred(g, x, x_zero_point, 1), centred(g, w, w_zero_point, 0))


@imports("QLinearConv")
def qlinear_conv(
    g: Graph,
    x: QuantizedTensor,
    w: QuantizedTensor,
    y: QuantizationParameters,
    bias: Tensor | None = None,
    *,
    window: ConvAttributes,
) -> Tensor:
    sums = window.convolved(g, x.centred(g, 1), w.centred(g, 0))
    if bias is not None:
        sums = g.add(sums, for_axis(g, sums, bias, 1, 0))
    scale = g.mul(for_axis(g, sums, x.scale, 1, 0), for_axis(g, sums, w.scale, 1, 0))
    return _requantized(g, g.mul(g.cast(sums, "f32"), g.div(scale, g.reshape(y.scale, ()))), y.zero_point)
