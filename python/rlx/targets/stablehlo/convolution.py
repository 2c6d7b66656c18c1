"""Lowering rule for convolutions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as cartesian
from math import prod

from rlx import mlir
from rlx.ir.dtype import f64
from rlx.ir.shape import Shape
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.targets.stablehlo.attributes import attribute, full_precision, integer, sizes
from rlx.targets.stablehlo.contraction import accumulator
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers

# The greatest number of positions of a kernel that become a product each. More would make large fusions.
_MOST_TAPS = 64


@lowers("conv")
def conv(
    emit: HloEmitter,
    results: list[Shape],
    x: Lowered,
    w: Lowered,
    *,
    geometry: ConvGeometry,
) -> Lowered:
    dims, kind = results[0].static, results[0].dtype
    if 0 in dims or 0 in w.dims:
        return emit.full(dims, kind, 0)
    wide = accumulator(kind)
    # The zeros of padding count: times NaN they are NaN. Convolutions of XLA's may leave them out.
    low, high = zip((0, 0), (0, 0), *geometry.edges, strict=True)
    x, w = emit.pad(emit.convert(x, wide), 0, low, high), emit.convert(w, wide)
    if emit.cpu and w.dims[1] == 1 and geometry.groups > 1 and prod(w.dims[2:]) <= _MOST_TAPS:
        return emit.convert(_by_taps(emit, x, w, dims, geometry, _multiplied), kind)
    if wide is f64 and geometry.groups > 1:
        return _by_taps(emit, x, w, dims, geometry, _contracted)
    count = len(geometry.stride)
    axes = ", ".join(str(i) for i in range(count))
    attributes = {
        "window_strides": sizes(geometry.stride),
        "lhs_dilation": sizes([1] * count),
        "rhs_dilation": sizes(geometry.dilation),
        "window_reversal": mlir.ir.DenseBoolArrayAttr.get([False] * count, context=mlir.context()),
        "dimension_numbers": attribute(f"#stablehlo.conv<[b, f, {axes}]x[o, i, {axes}]->[b, f, {axes}]>"),
        "feature_group_count": integer(geometry.groups),
        "batch_group_count": integer(1),
        "precision_config": full_precision(),
    }
    return emit.convert(emit.one("convolution", [x, w], dims, wide, attributes), kind)


def _by_taps(
    emit: HloEmitter,
    x: Lowered,
    w: Lowered,
    dims: tuple[int, ...],
    geometry: ConvGeometry,
    product: Callable[[HloEmitter, Lowered, Lowered], Lowered],
) -> Lowered:
    """The sum of a product for each position of the kernel, over shifted parts of x.

    XLA's CPU back end computes a depthwise convolution in a hundred times the time of these products, which it fuses. It
    converts a grouped f64 convolution to a dense one with zeros between groups, so that a NaN in one group spreads to others.

    Args:
        emit: The emitter.
        x: The padded input.
        w: The weights.
        dims: The sizes of the result.
        geometry: The strides, dilations and groups.
        product: The product of `[batch, groups, inner, points]` and `[groups, outer, inner]`: `[batch, groups, outer, points]`.
    """
    stride, groups = geometry.stride, geometry.groups
    batch, outer, target = dims[0], dims[1] // groups, dims[2:]
    inner, points = w.dims[1], prod(target)
    total = None
    for tap in cartesian(*map(range, w.dims[2:])):
        starts = [t * d for t, d in zip(tap, geometry.dilation, strict=True)]
        limits = [first + (size - 1) * step + 1 for first, size, step in zip(starts, target, stride, strict=True)]
        part = emit.slice(x, (0, 0, *starts), (*x.dims[:2], *limits), (1, 1, *stride))
        part = emit.reshape(part, (batch, groups, inner, points))
        weights = emit.slice(w, (0, 0, *tap), (*w.dims[:2], *(t + 1 for t in tap)))
        weights = emit.reshape(weights, (groups, outer, inner))
        term = product(emit, part, weights)
        total = term if total is None else emit.add(total, term)
    assert total is not None
    return emit.reshape(total, dims)


def _contracted(emit: HloEmitter, part: Lowered, weights: Lowered) -> Lowered:
    product = emit.dot_general(part, weights, ((2,), (2,)), ((1,), (0,)))  # [groups, batch, points, outer]
    return emit.transpose(product, (1, 0, 3, 2))


def _multiplied(emit: HloEmitter, part: Lowered, weights: Lowered) -> Lowered:
    """The product for one input channel in each group."""
    batch, groups, _, points = part.dims
    dims = (batch, groups, weights.dims[1], points)
    factors = emit.broadcast_in_dim(emit.reshape(weights, weights.dims[:2]), dims, (1, 2))
    return emit.mul(emit.broadcast(part, dims), factors)
