"""Bits and precision, batch normalisation, and the functions of CHLO, which are represented as composites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from rlx.importers.stablehlo.elementwise import method
from rlx.importers.stablehlo.rules import imports
from rlx.ir.dtype import DType, dtype, f16
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ir.shape import Shape
from rlx.ops.lift import in_compute


@imports("bitcast_convert")
def bitcast_convert(g: Graph, x: Tensor, *, results: list[Shape]) -> Tensor:
    kind = results[0].dtype
    if kind is x.dtype:
        return x
    if kind.is_complex or x.dtype.is_complex:
        return _complex_bitcast(g, x, kind)
    bits, given = _bits(kind), _bits(x.dtype)
    if bits == given:
        return g.bitcast(x, kind)
    narrow, wide = sorted((bits, given))
    count, word = wide // narrow, dtype(f"u{wide}")
    if bits == narrow:  # the lowest bits first
        value = g.expand(g.expand_dims(g.bitcast(x, word), -1), (*x.shape.dims, count))
        shifts = g.expand(g.constant(np.arange(0, wide, narrow).astype(word.numpy)), value.shape.dims)
        value = g.binary("shift_right", value, shifts)
        if kind.is_bool:
            return g.cast(g.bitwise_and(value, g.full(value.shape.dims, 1, word)), kind)
        return g.bitcast(g.cast(value, dtype(f"u{narrow}")), kind)
    parts = g.cast(x if x.dtype.is_bool else g.bitcast(x, dtype(f"u{narrow}")), word)
    shifted = [
        g.binary("shift_left", parts[..., i], g.full(parts.shape.dims[:-1], i * narrow, word)) for i in range(count)
    ]
    return g.bitcast(reduce(g.bitwise_or, shifted), kind)


def _bits(kind: DType) -> int:
    """Return the number of bits of an element in StableHLO, where a bool has one bit."""
    return 1 if kind.is_bool else kind.bits


def _complex_bitcast(g: Graph, x: Tensor, kind: DType) -> Tensor:
    """Cast the bits of pairs of c64 to c128, or back. One part of a c128 has the bits of one c64."""
    pair = Shape((*x.shape.dims, 2), kind.part)
    if kind.bits < x.dtype.bits:
        halves = [bitcast_convert(g, part, results=[pair]) for part in (g.real(x), g.imag(x))]
        return g.stack([g.complex(half[..., 0], half[..., 1]) for half in halves], axis=-1)
    whole = Shape(x.shape.dims[:-1], kind.part)
    parts = (g.stack([g.real(x[..., i]), g.imag(x[..., i])], axis=-1) for i in range(2))
    return g.complex(*(bitcast_convert(g, part, results=[whole]) for part in parts))


@imports("reduce_precision")
def reduce_precision(g: Graph, x: Tensor, *, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Round to the nearest float with fewer bits. The derivative is rounded in the same way, as in JAX."""
    # XLA computes in f16, which has their small numbers, with f8e5m2 and f8e5m2fnuz, and in f32 with other storage floats.
    layout = x.dtype.float_format
    in_half = x.dtype.storage and layout is not None and layout.exponent == 5

    def reduced(value: Tensor) -> Tensor:
        if in_half:
            return g.cast(_reduced(g, g.cast(value, f16), exponent_bits, mantissa_bits), value.dtype)
        return _reduced(g, value, exponent_bits, mantissa_bits)

    return g.custom_fn(
        reduced,
        x,
        vjp=lambda args, results, cotangents: reduced(cotangents[0]),
        jvp=lambda args, tangents: reduced(tangents[0]),
    )


@in_compute
def _reduced(g: Graph, x: Tensor, exponent_bits: int, mantissa_bits: int) -> Tensor:
    """Round to the nearest float with fewer bits, ties to even. Overflow gives infinity, underflow gives zero."""
    kind, word = x.dtype, x.dtype.signed_word
    layout = kind.float_format
    assert layout is not None
    fraction = layout.mantissa
    width = 8 * kind.itemsize
    bias = 2 ** (width - 2 - fraction) - 1
    bits = g.bitcast(x, word)

    def literal(value: int) -> Tensor:
        return g.constant(np.array(value, bits.dtype.numpy))

    sign = g.bitwise_and(bits, literal(-(2 ** (width - 1))))
    size = g.bitwise_and(bits, literal(2 ** (width - 1) - 1))
    if mantissa_bits < fraction:
        dropped = fraction - mantissa_bits
        last = g.bitwise_and(g.binary("shift_right", size, g.full(x.shape.dims, dropped, word)), literal(1))
        size = size + (last + literal(2 ** (dropped - 1) - 1))
        size = g.bitwise_and(size, literal(~(2**dropped - 1)))
    narrow_bias = 2 ** (exponent_bits - 1) - 1
    if narrow_bias < bias:
        least, most = bias - narrow_bias + 1, bias + narrow_bias
        infinite = 2 ** (width - 1 - fraction) - 1
        size = g.where(size >= literal((most + 1) << fraction), literal(infinite << fraction), size)
        size = g.where(size < literal(least << fraction), literal(0), size)
    rounded = g.bitcast(g.bitwise_or(sign, size), kind)
    # Without fraction bits, NaN cannot be represented: it becomes infinite.
    special = x if mantissa_bits else g.where(bits < 0, -np.inf, np.inf)
    return g.where(g.isnan(x), g.cast(special, kind), rounded)


@imports("count_leading_zeros")
def count_leading_zeros(g: Graph, x: Tensor) -> Tensor:
    """Return the number of leading zeros, as the remaining zero bits after all bits below the first set bit are set."""
    width, kind = x.dtype.bits, x.dtype
    if kind.packed:  # the width 2 does not fit in i2 and wraps
        x = g.cast(x, f"u{width}")
    step = 1
    while step < width:
        x = g.bitwise_or(x, g.shift_right_logical(x, g.full(x.shape.dims, step, x.dtype)))
        step *= 2
    return g.cast(g.full(x.shape.dims, width, x.dtype) - g.popcount(x), kind)


# --- batch normalisation ----------------------------------------------------------------------------


def _along(g: Graph, value: Tensor, rank: int, axis: int) -> Tensor:
    return g.reshape(value, [value.shape.dims[0] if i == axis else 1 for i in range(rank)])


@dataclass(frozen=True)
class BatchNormOperands(ArgumentGroup):
    """A tensor, the weights of its channels, and their statistics, in StableHLO's order."""

    x: Tensor
    scale: Tensor
    offset: Tensor
    mean: Tensor
    variance: Tensor


@imports("batch_norm_inference")
def batch_norm_inference(g: Graph, operands: BatchNormOperands, *, epsilon: float, feature_index: int) -> Tensor:
    x, channels = operands.x, (operands.scale, operands.offset, operands.mean, operands.variance)
    scale, offset, mean, variance = (_along(g, v, x.rank, feature_index) for v in channels)
    return scale * (x - mean) / g.sqrt(variance + epsilon) + offset


@imports("batch_norm_training")
def batch_norm_training(
    g: Graph, x: Tensor, scale: Tensor, offset: Tensor, *, epsilon: float, feature_index: int
) -> list[Tensor]:
    axes = [axis for axis in range(x.rank) if axis != feature_index]
    mean = g.mean(x, axes)
    variance = g.mean((x - _along(g, mean, x.rank, feature_index)) ** 2, axes)
    operands = BatchNormOperands(x, scale, offset, mean, variance)
    return [batch_norm_inference(g, operands, epsilon=epsilon, feature_index=feature_index), mean, variance]


@dataclass(frozen=True)
class BatchNormGradOperands(ArgumentGroup):
    """A tensor, the weights and statistics of its channels, and the cotangent of the result, in StableHLO's order."""

    x: Tensor
    scale: Tensor
    mean: Tensor
    variance: Tensor
    dy: Tensor


@imports("batch_norm_grad")
def batch_norm_grad(g: Graph, operands: BatchNormGradOperands, *, epsilon: float, feature_index: int) -> list[Tensor]:
    x, dy, channels = operands.x, operands.dy, (operands.scale, operands.mean, operands.variance)
    axes = [axis for axis in range(x.rank) if axis != feature_index]
    wide_scale, wide_mean, wide_variance = (_along(g, v, x.rank, feature_index) for v in channels)
    inverse = 1.0 / g.sqrt(wide_variance + epsilon)
    normal = (x - wide_mean) * inverse
    dscale, doffset = g.sum(dy * normal, axes), g.sum(dy, axes)
    means = [g.mean(v, axes, keep_dims=True) for v in (dy, dy * normal)]
    return [wide_scale * inverse * (dy - means[0] - normal * means[1]), dscale, doffset]


# --- CHLO -------------------------------------------------------------------------------------------

_METHODS = {
    **{n: n for n in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "erfc")},
    **{"digamma": "digamma", "erf_inv": "erfinv", "is_inf": "isinf", "lgamma": "lgamma"},
    **{"next_after": "nextafter", "square": "square"},
}

for _op, _name in _METHODS.items():
    imports(f"chlo.{_op}")(method(_name))


@imports("chlo.is_neg_inf")
def is_neg_inf(g: Graph, x: Tensor) -> Tensor:
    return g.isinf(x) & (x < 0)


@imports("chlo.is_pos_inf")
def is_pos_inf(g: Graph, x: Tensor) -> Tensor:
    return g.isinf(x) & (x > 0)


@imports("map")
def map_(g: Graph, *xs: Tensor, dimensions: tuple[int, ...], regions: Sequence[Any], results: list[Shape]) -> Tensor:
    return g.expand(regions[0].lifted(*xs)[0], results[0].dims)
