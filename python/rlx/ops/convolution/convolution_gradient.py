"""Gradients of convolutions, for any number of spatial axes.

No scatter is used: the cotangent of an image position is gathered from the windows that cover it. The sums therefore
have a fixed order and run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from rlx.ir.dims.dim import Dim, product
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ops.contraction.contraction import DotDims, dots
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.lift import size_of
from rlx.ops.rules import move_axis


def places(b: Builder, axes: Sequence[Tensor], sizes: Sequence[Dim]) -> Tensor:
    """Return row-major image positions, from positions along each axis.

    Args:
        b: The builder that emits the ops.
        axes: For each spatial axis, integers `[counts, taps]`.
        sizes: The sizes of the image.

    Returns:
        `[counts…, taps·…]`.
    """
    result = axes[0]
    for axis, size in zip(axes[1:], sizes[1:], strict=True):
        (*counts, taps), (count, axis_taps) = result.shape.dims, axis.shape.dims
        row_starts = b.reshape(result, (*counts, 1, taps, 1)) * size_of(b, size)
        result = b.reshape(row_starts + b.reshape(axis, (count, 1, axis_taps)), (*counts, count, taps * axis_taps))
    return result


def input_gradient(b: Builder, dy: Tensor, w: Tensor, size: Sequence[Dim], geometry: ConvGeometry) -> Tensor:
    """The cotangent of the image of a `conv`.

    Args:
        b: The builder that emits the ops.
        dy: The cotangent of the result.
        w: The kernel.
        size: The spatial sizes of the image.
        geometry: That of the `conv`.
    """
    stride = geometry.stride
    # The number of positions at the end that no window reads; if it depends on a symbol, the largest possible number.
    spans = [d * (k - 1) + 1 for d, k in zip(geometry.dilation, w.shape.static[2:], strict=True)]
    remainders = [(d + sum(e) - span) % s for d, e, span, s in zip(size, geometry.edges, spans, stride, strict=True)]
    unread = [remainder if type(remainder) is int else s - 1 for remainder, s in zip(remainders, stride, strict=True)]
    result = b.emit("conv_transpose", (dy, w), output_padding=unread, **geometry.named)
    for i, remainder in enumerate(remainders):
        if type(remainder) is not int:
            result = b.narrow(result, 2 + i, 0, size[i])
    return result


def weight_gradient(b: Builder, x: Tensor, dy: Tensor, kernel: Sequence[int], geometry: ConvGeometry) -> Tensor:
    """The cotangent of the kernel of a `conv`.

    With one or two spatial axes this is the op `conv2d_backward_weight`, whose own gradients are convolutions.

    Args:
        b: The builder that emits the ops.
        x: The image.
        dy: The cotangent of the result.
        kernel: The spatial sizes of the kernel.
        geometry: That of the `conv`.
    """
    if x.rank == 5:
        return weight_product(b, x, dy, kernel, geometry)
    if x.rank == 4:
        return b.emit("conv2d_backward_weight", (x, dy), kernel=tuple(kernel), **geometry.named)
    result = weight_gradient(b, with_row(b, x), with_row(b, dy), (1, *kernel), geometry.with_row())
    return without_row(b, result)


def with_row(b: Builder, x: Tensor) -> Tensor:
    """Return `[N, C, W]` as an image of one row."""
    n, channels, width = x.shape.dims
    return b.reshape(x, (n, channels, 1, width))


def without_row(b: Builder, x: Tensor) -> Tensor:
    """Return an image of one row as `[N, C, W]`, the inverse of `with_row`."""
    n, channels, _, width = x.shape.dims
    return b.reshape(x, (n, channels, width))


def weight_product(b: Builder, x: Tensor, dy: Tensor, kernel: Sequence[int], geometry: ConvGeometry) -> Tensor:
    """`weight_gradient` as one product of `dy` with the elements that each tap reads at each position of the result.

    A convolution with batch and channels swapped would read the same elements. But `conv` needs a kernel of static
    sizes, and here the kernel would be `dy`, batch included.
    """
    (n, channels, *size), (_, out_channels, *counts) = x.shape.dims, dy.shape.dims
    stride, edges, groups = geometry.stride, geometry.edges, geometry.groups
    padded = b.pad(x, [(0, 0), (0, 0), *edges])
    elements = move_axis(b, padded, 1, 0)  # [C, N, spatial…]
    if prod(kernel) != 1 or prod(stride) != 1:  # otherwise the only tap reads all elements, in order
        axes = [
            b.iota((k, count), axis=0) * d + b.iota((k, count), axis=1) * s
            for k, count, d, s in zip(kernel, counts, geometry.dilation, stride, strict=True)
        ]
        sizes = [d + before + after for d, (before, after) in zip(size, edges, strict=True)]
        rows = b.reshape(elements, (channels, n, product(sizes)))
        elements = b.gather(rows, places(b, axes, sizes), axis=2)
        elements = b.transpose(elements, (0, *range(2, 2 + len(size)), 1, elements.rank - 1))
    points = n * product(counts)
    elements = b.reshape(elements, (groups, channels // groups * prod(kernel), points))
    by_group = b.reshape(dy, (n, groups, out_channels // groups, product(counts)))
    cotangent = b.reshape(b.transpose(by_group, (1, 2, 0, 3)), (groups, out_channels // groups, points))
    result = dots(b, cotangent, elements, DotDims((2,), (2,), (0,), (0,)))
    return b.reshape(result, (out_channels, channels // groups, *kernel))


def one_by_one(
    b: Builder, function: Callable[..., Tensor], operands: Sequence[Tensor], batched: Sequence[bool]
) -> Tensor:
    """Apply a function to the batch entries one by one, for ops that need a static size where the batch size is symbolic."""

    def step(_: None, entries: tuple[Tensor, ...]) -> tuple[None, Tensor]:
        remaining = iter(entries)
        return None, function(
            *(next(remaining) if is_batched else x for x, is_batched in zip(operands, batched, strict=True))
        )

    return b.scan(step, None, tuple(x for x, is_batched in zip(operands, batched, strict=True) if is_batched))[1]


def apart(b: Builder, y: Tensor, groups: int, size: Dim) -> Tensor:
    """Separate the results of a batch of kernels whose channels are adjacent within each group.

    `[N, groups·size·O, …]` becomes `[size, N, groups·O, …]`.
    """
    n, channels, *spatial = y.shape.dims
    out_channels = channels // (groups * size)
    split = b.reshape(y, (n, groups, size, out_channels, *spatial))
    return b.reshape(
        b.transpose(split, (2, 0, 1, 3, *range(4, split.rank))), (size, n, groups * out_channels, *spatial)
    )
