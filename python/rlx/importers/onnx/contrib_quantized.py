"""Ops of ONNX Runtime (`com.microsoft`) on quantised tensors: 8-bit integers with scales, and weights of a few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.importers.onnx.contrib_attention import attention
from rlx.importers.onnx.elementwise import leaky_relu
from rlx.importers.onnx.network import spatial_axes
from rlx.importers.onnx.pools import average_pool
from rlx.importers.onnx.quantized import centred, dequantize_linear, dynamic_quantize_linear, for_axis, quantize_linear
from rlx.importers.onnx.rules import described, imports, keywords_of, static_dims
from rlx.ir.graph.builder import Tensor
from rlx.support.errors import UnsupportedError


def _pair(name: str, combine: str) -> None:
    @imports(f"com.microsoft.{name}")
    def rule(
        g: Any,
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor | None,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor | None,
        scale: Tensor,
        zero_point: Tensor | None = None,
    ) -> Tensor:
        left, right = dequantize_linear(g, a, a_scale, a_zero), dequantize_linear(g, b, b_scale, b_zero)
        return quantize_linear(g, getattr(g, combine)(left, right), scale, zero_point)


_pair("QLinearAdd", "add")
_pair("QLinearMul", "mul")


def _softmax(g: Any, x: Tensor, *, opset: int, axis: int = -1) -> Tensor:
    if opset < 13 and axis % x.shape.rank != x.shape.rank - 1:
        raise UnsupportedError("of several axes cannot be imported")
    return g.softmax(x, axis)


def _mean(g: Any, x: Tensor, *, axes: Any = None, keepdims: int = 1) -> Tensor:
    return g.mean(x, tuple(axes) if axes else tuple(range(x.shape.rank)), bool(keepdims))


def _global_pool(g: Any, x: Tensor, *, channels_last: int = 0) -> Tensor:
    return g.mean(x, tuple(range(1, x.shape.rank - 1)) if channels_last else spatial_axes(x), True)


def _pool(g: Any, x: Tensor, *, channels_last: int = 0, **window: Any) -> Tensor:
    if channels_last:
        raise UnsupportedError("with channels last cannot be imported")
    return average_pool(g, x, **window)


_POOL_KEYWORDS = [p for p in keywords_of(average_pool) if p.name != "dilations"] + keywords_of(_global_pool)
# Each op with the function applied to the dequantised tensor. A listed op has the attributes of that function unless it
# names its own.
_UNARY: dict[str, tuple[Callable[..., Tensor], list[Any]]] = {
    "QLinearSigmoid": (lambda g, x: g.sigmoid(x), []),
    "QLinearLeakyRelu": (leaky_relu, keywords_of(leaky_relu)),
    "QLinearSoftmax": (_softmax, keywords_of(_softmax)),
    "QLinearReduceMean": (_mean, keywords_of(_mean)),
    "QLinearGlobalAveragePool": (_global_pool, keywords_of(_global_pool)),
    "QLinearAveragePool": (_pool, _POOL_KEYWORDS),
}


def _unary(name: str, function: Callable[..., Tensor], keywords: list[Any]) -> None:
    def rule(
        g: Any,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        scale: Tensor,
        zero: Tensor | None = None,
        **attributes: Any,
    ) -> Tensor:
        return quantize_linear(g, function(g, dequantize_linear(g, x, x_scale, x_zero), **attributes), scale, zero)

    imports(f"com.microsoft.{name}")(described(rule, rule, keywords))


for _name, (_function, _keywords) in _UNARY.items():
    _unary(_name, _function, _keywords)


@imports("com.microsoft.QLinearConcat")
def qlinear_concat(g: Any, scale: Tensor, zero: Tensor, *parts: Tensor, axis: int = 0) -> Tensor:
    triples = [parts[i : i + 3] for i in range(0, len(parts), 3)]
    return quantize_linear(g, g.concat([dequantize_linear(g, *t) for t in triples], axis), scale, zero)


@imports("com.microsoft.QLinearWhere")
def qlinear_where(
    g: Any,
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    scale: Tensor,
    zero: Tensor,
) -> Tensor:
    chosen = g.where(condition, dequantize_linear(g, x, x_scale, x_zero), dequantize_linear(g, y, y_scale, y_zero))
    return quantize_linear(g, chosen, scale, zero)


def _scaled(g: Any, sums: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Tensor | None) -> Tensor:
    """Return sums of products of integers as scaled floats."""
    columns = sums.shape.rank - 1
    factor = g.mul(for_axis(g, sums, a_scale, max(columns - 1, 0), 0), for_axis(g, sums, b_scale, columns, 0))
    result = g.mul(g.cast(sums, "f32"), factor)
    return result if bias is None else g.add(result, bias)


@imports("com.microsoft.MatMulIntegerToFloat")
def matmul_integer_to_float(
    g: Any,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    sums = g.matmul(centred(g, a, a_zero, a.shape.rank - 2), centred(g, b, b_zero, b.shape.rank - 1))
    return _scaled(g, sums, a_scale, b_scale, bias)


@imports("com.microsoft.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    g: Any, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Return the product with a tensor that is quantised to 8 bits by its own range."""
    rounded, a_scale, a_zero = dynamic_quantize_linear(g, a)
    return matmul_integer_to_float(g, rounded, b, a_scale, b_scale, a_zero, b_zero, bias)


@imports("com.microsoft.QGemm")
def qgemm(
    g: Any,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    scale: Tensor | None = None,
    zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    left, right = centred(g, a, a_zero, 0), centred(g, b, b_zero, 0 if transB else 1)
    sums = g.matmul(g.transpose(left, (1, 0)) if transA else left, g.transpose(right, (1, 0)) if transB else right)
    value = _scaled(g, sums if c is None else g.add(sums, c), a_scale, b_scale, None)
    value = value if alpha == 1 else g.mul(value, alpha)
    return value if scale is None else quantize_linear(g, value, scale, zero)


@imports("com.microsoft.QAttention")
def qattention(
    g: Any,
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    past: Tensor | None = None,
    *,
    outputs: int,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> list[Tensor]:
    """Return the result of `Attention`. The product with the weights is computed on integers."""
    return attention(
        g, dequantize_linear(g, x, x_scale, x_zero), dequantize_linear(g, weights, w_scale, w_zero, axis=1), bias, mask,
        past, outputs=outputs, num_heads=num_heads, do_rotary=do_rotary, mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer, scale=scale, unidirectional=unidirectional,
    )  # fmt: skip


def _unpacked(packed: Tensor, g: Any, bits: int) -> Tensor:
    """Unpack bytes `[…, n]` to integers of a few bits, i32 `[…, n · 8 / bits]`. The low bits come first."""
    wide = g.cast(packed, "i32")
    parts = [g.bitwise_and(g.right_shift(wide, bits * i), (1 << bits) - 1) for i in range(8 // bits)]
    if len(parts) == 1:
        return wide
    return g.reshape(g.stack(parts, -1), (*packed.shape.dims[:-1], static_dims(packed, -1)[0] * len(parts)))


@imports("com.microsoft.MatMulNBits")
def matmul_n_bits(
    g: Any,
    a: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    order: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    weight_prepacked: int = 0,
) -> Tensor:
    """Return the product with the transpose of weights `[N, K]` of a few bits. Each block of the weights has a scale."""
    if bits not in (2, 4, 8) or weight_prepacked:
        raise UnsupportedError(f"of {bits} bits, or with prepacked weights, cannot be imported")
    blocks = -(-K // block_size)
    numbers = g.reshape(_unpacked(g.reshape(packed, (N, blocks, -1)), g, bits), (N, blocks * block_size))
    if zeros is None:
        centre: Any = 1 << (bits - 1)
    elif zeros.dtype.is_float:
        centre = g.reshape(zeros, (N, blocks, 1))
    else:
        row = _unpacked(g.reshape(zeros, (N, -1)), g, bits)
        centre = g.reshape(g.narrow(row, 1, 0, blocks), (N, blocks, 1))
    factor = g.reshape(scales, (N, blocks, 1))
    if order is None:
        grouped = g.cast(g.reshape(numbers, (N, blocks, block_size)), factor.dtype)
        less = g.sub(grouped, centre if not isinstance(centre, Tensor) else g.cast(centre, factor.dtype))
        values = g.reshape(g.mul(less, factor), (N, blocks * block_size))
    else:  # `order` has the block of each column
        columns = g.cast(order, "i32")
        less = g.cast(g.narrow(numbers, 1, 0, K), factor.dtype)
        shift = (
            centre
            if not isinstance(centre, Tensor)
            else g.gather(g.reshape(g.cast(centre, factor.dtype), (N, blocks)), columns, axis=1)
        )
        values = g.mul(g.sub(less, shift), g.gather(g.reshape(factor, (N, blocks)), columns, axis=1))
    weights = g.narrow(values, 1, 0, K)
    product = g.matmul(a, g.transpose(g.cast(weights, a.dtype), (1, 0)))
    return product if bias is None else g.add(product, bias)
