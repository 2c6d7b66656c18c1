"""Ops of ONNX Runtime (`com.microsoft`) on quantised tensors: 8-bit integers with scales, and weights of a few bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.importers.onnx.contrib_attention import JoinedAttentionAttributes, JoinedAttentionOperands
from rlx.importers.onnx.elementwise import leaky_relu
from rlx.importers.onnx.network import ProductAttributes, spatial_axes
from rlx.importers.onnx.pools import AveragePoolAttributes
from rlx.importers.onnx.quantized import (
    QuantizationParameters,
    QuantizedTensor,
    centred,
    dynamic_quantize_linear,
    for_axis,
)
from rlx.importers.onnx.rules import imports, static_dims
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.support.errors import UnsupportedError


def _pair(name: str, combine: str) -> None:
    @imports(f"com.microsoft.{name}")
    def rule(g: Graph, a: QuantizedTensor, b: QuantizedTensor, y: QuantizationParameters) -> Tensor:
        return y.quantized(g, getattr(g, combine)(a.dequantized(g), b.dequantized(g)))


_pair("QLinearAdd", "add")
_pair("QLinearMul", "mul")


@imports("com.microsoft.QLinearSigmoid")
def qlinear_sigmoid(g: Graph, x: QuantizedTensor, y: QuantizationParameters) -> Tensor:
    return y.quantized(g, g.sigmoid(x.dequantized(g)))


@imports("com.microsoft.QLinearLeakyRelu")
def qlinear_leaky_relu(g: Graph, x: QuantizedTensor, y: QuantizationParameters, *, alpha: float = 0.01) -> Tensor:
    return y.quantized(g, leaky_relu(g, x.dequantized(g), alpha=alpha))


@imports("com.microsoft.QLinearSoftmax")
def qlinear_softmax(g: Graph, x: QuantizedTensor, y: QuantizationParameters, *, opset: int, axis: int = -1) -> Tensor:
    rank = x.integers.shape.rank
    if opset < 13 and axis % rank != rank - 1:
        raise UnsupportedError("of several axes cannot be imported")
    return y.quantized(g, g.softmax(x.dequantized(g), axis))


@imports("com.microsoft.QLinearReduceMean")
def qlinear_reduce_mean(
    g: Graph, x: QuantizedTensor, y: QuantizationParameters, *, axes: Sequence[int] | None = None, keepdims: int = 1
) -> Tensor:
    reduced = tuple(axes) if axes else tuple(range(x.integers.shape.rank))
    return y.quantized(g, g.mean(x.dequantized(g), reduced, bool(keepdims)))


@imports("com.microsoft.QLinearGlobalAveragePool")
def qlinear_global_average_pool(
    g: Graph, x: QuantizedTensor, y: QuantizationParameters, *, channels_last: int = 0
) -> Tensor:
    axes = tuple(range(1, x.integers.shape.rank - 1)) if channels_last else spatial_axes(x.integers)
    return y.quantized(g, g.mean(x.dequantized(g), axes, True))


@imports("com.microsoft.QLinearAveragePool")
def qlinear_average_pool(
    g: Graph, x: QuantizedTensor, y: QuantizationParameters, *, pool: AveragePoolAttributes, channels_last: int = 0
) -> Tensor:
    if channels_last:
        raise UnsupportedError("with channels last cannot be imported")
    return y.quantized(g, pool.averaged(g, x.dequantized(g)))


@imports("com.microsoft.QLinearConcat")
def qlinear_concat(g: Graph, y: QuantizationParameters, *parts: Tensor, axis: int = 0) -> Tensor:
    operands = [QuantizedTensor(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    return y.quantized(g, g.concat([x.dequantized(g) for x in operands], axis))


@imports("com.microsoft.QLinearWhere")
def qlinear_where(
    g: Graph, condition: Tensor, x: QuantizedTensor, y: QuantizedTensor, result: QuantizationParameters
) -> Tensor:
    return result.quantized(g, g.where(condition, x.dequantized(g), y.dequantized(g)))


def _scaled(g: Graph, sums: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Tensor | None) -> Tensor:
    """Return sums of products of integers as scaled floats."""
    columns = sums.shape.rank - 1
    factor = g.mul(for_axis(g, sums, a_scale, max(columns - 1, 0), 0), for_axis(g, sums, b_scale, columns, 0))
    result = g.mul(g.cast(sums, "f32"), factor)
    return result if bias is None else g.add(result, bias)


@dataclass(frozen=True)
class QuantizedPair(ArgumentGroup):
    """Two quantised tensors, in the order of `MatMulIntegerToFloat`."""

    a: Tensor
    b: Tensor
    a_scale: Tensor
    b_scale: Tensor
    a_zero: Tensor | None = None
    b_zero: Tensor | None = None


@imports("com.microsoft.MatMulIntegerToFloat")
def matmul_integer_to_float(g: Graph, factors: QuantizedPair, bias: Tensor | None = None) -> Tensor:
    rows, columns = factors.a.shape.rank - 2, factors.b.shape.rank - 1
    sums = g.matmul(centred(g, factors.a, factors.a_zero, rows), centred(g, factors.b, factors.b_zero, columns))
    return _scaled(g, sums, factors.a_scale, factors.b_scale, bias)


@imports("com.microsoft.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    g: Graph, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Return the product with a tensor that is quantised to 8 bits by its own range."""
    rounded, a_scale, a_zero = dynamic_quantize_linear(g, a)
    return matmul_integer_to_float(g, QuantizedPair(rounded, b, a_scale, b_scale, a_zero, b_zero), bias)


@imports("com.microsoft.QGemm")
def qgemm(
    g: Graph,
    a: QuantizedTensor,
    b: QuantizedTensor,
    c: Tensor | None = None,
    y: QuantizationParameters | None = None,
    *,
    factors: ProductAttributes,
) -> Tensor:
    sums = factors.product(g, a.centred(g, 0), b.centred(g, 0 if factors.transB else 1))
    value = factors.scaled(g, _scaled(g, sums if c is None else g.add(sums, c), a.scale, b.scale, None))
    return value if y is None else y.quantized(g, value)


@dataclass(frozen=True)
class QuantizedAttentionOperands(ArgumentGroup):
    """The operands of `QAttention`, in its order."""

    x: Tensor
    weights: Tensor
    bias: Tensor
    x_scale: Tensor
    w_scale: Tensor
    mask: Tensor | None = None
    x_zero: Tensor | None = None
    w_zero: Tensor | None = None
    past: Tensor | None = None

    def dequantized(self, g: Graph) -> JoinedAttentionOperands:
        """The operands of `Attention`, dequantised."""
        x = QuantizedTensor(self.x, self.x_scale, self.x_zero).dequantized(g)
        weights = QuantizedTensor(self.weights, self.w_scale, self.w_zero).dequantized(g, axis=1)
        return JoinedAttentionOperands(x, weights, self.bias, self.mask, self.past)


@imports("com.microsoft.QAttention")
def qattention(
    g: Graph, operands: QuantizedAttentionOperands, *, outputs: int, heads: JoinedAttentionAttributes
) -> list[Tensor]:
    """Return the result of `Attention`. The product with the weights is computed on integers."""
    return heads.attention(g, operands.dequantized(g), outputs)


def _unpacked(packed: Tensor, g: Graph, bits: int) -> Tensor:
    """Unpack bytes `[…, n]` to integers of a few bits, i32 `[…, n · 8 / bits]`. The low bits come first."""
    wide = g.cast(packed, "i32")
    parts = [g.bitwise_and(g.right_shift(wide, bits * i), (1 << bits) - 1) for i in range(8 // bits)]
    if len(parts) == 1:
        return wide
    return g.reshape(g.stack(parts, -1), (*packed.shape.dims[:-1], static_dims(packed, -1)[0] * len(parts)))


@dataclass(frozen=True)
class PackedWeights(ArgumentGroup):
    """Weights `[N, K]` of a few bits, with a scale for each block."""

    packed: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    order: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class PackedAttributes(ArgumentGroup):
    """The attributes of `MatMulNBits`, with ONNX Runtime's names."""

    K: int
    N: int
    block_size: int
    accuracy_level: int = 0
    bits: int = 4
    weight_prepacked: int = 0

    def unpacked(self, g: Graph, weights: PackedWeights) -> Tensor:
        """The weights as numbers of the dtype of their scales, `[N, K]`."""
        rows, block, blocks = self.N, self.block_size, -(-self.K // self.block_size)
        numbers = g.reshape(
            _unpacked(g.reshape(weights.packed, (rows, blocks, -1)), g, self.bits), (rows, blocks * block)
        )
        zeros, factor = weights.zeros, g.reshape(weights.scales, (rows, blocks, 1))
        centre: Tensor | int = 1 << (self.bits - 1)
        if zeros is not None:
            row = zeros if zeros.dtype.is_float else _unpacked(g.reshape(zeros, (rows, -1)), g, self.bits)
            row = row if zeros.dtype.is_float else g.narrow(row, 1, 0, blocks)
            centre = g.cast(g.reshape(row, (rows, blocks, 1)), factor.dtype)
        if weights.order is None:
            grouped = g.cast(g.reshape(numbers, (rows, blocks, block)), factor.dtype)
            values = g.reshape(g.mul(g.sub(grouped, centre), factor), (rows, blocks * block))
        else:  # each column has the number of its block
            columns = g.cast(weights.order, "i32")
            less = g.cast(g.narrow(numbers, 1, 0, self.K), factor.dtype)
            if isinstance(centre, Tensor):
                centre = g.gather(g.reshape(centre, (rows, blocks)), columns, axis=1)
            values = g.mul(g.sub(less, centre), g.gather(g.reshape(factor, (rows, blocks)), columns, axis=1))
        return g.narrow(values, 1, 0, self.K)


@imports("com.microsoft.MatMulNBits")
def matmul_n_bits(
    g: Graph, a: Tensor, weights: PackedWeights, bias: Tensor | None = None, *, packing: PackedAttributes
) -> Tensor:
    """A product with the transpose of packed weights."""
    if packing.bits not in (2, 4, 8) or packing.weight_prepacked:
        raise UnsupportedError(f"of {packing.bits} bits, or with prepacked weights, cannot be imported")
    product = g.matmul(a, g.transpose(g.cast(packing.unpacked(g, weights), a.dtype), (1, 0)))
    return product if bias is None else g.add(product, bias)
