"""What the gradients of convolutions and of pooling are made of, for any number of spatial axes.

No step of them scatters: what a position of an image gets is collected from the windows that hold it, so that the sums
have an order and run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from rlx.ir.builder import Builder, Tensor
from rlx.ir.dim import Dim, product
from rlx.ops.contraction.contraction import dots
from rlx.ops.lift import size_of


def places(b: Builder, axes: Sequence[Tensor], sizes: Sequence[Dim]) -> Tensor:
    """Places in an image row by row, from positions along each axis.

    Args:
        b: Where to emit.
        axes: For each spatial axis integers `[counts, taps]`.
        sizes: The sizes of the image.

    Returns:
        `[counts…, taps·…]`.
    """
    result = axes[0]
    for own, size in zip(axes[1:], sizes[1:], strict=True):
        (*counts, taps), (count, own_taps) = result.shape.dims, own.shape.dims
        row_starts = b.reshape(result, (*counts, 1, taps, 1)) * size_of(b, size)
        result = b.reshape(row_starts + b.reshape(own, (count, 1, own_taps)), (*counts, count, taps * own_taps))
    return result


def input_gradient(
    b: Builder, dy: Tensor, w: Tensor, size: Sequence[Dim], *, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """The cotangent of the image of a `conv`.

    Args:
        b: Where to emit.
        dy: The cotangent of the result.
        w: The kernel.
        size: The spatial sizes of the image.
        stride: As in `conv`.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    # As many positions at the end as no window reads; where that depends on a symbol, as many as there can be.
    edges = zip(padding[::2], padding[1::2], strict=True)
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape.static[2:], strict=True)]
    rests = [(d + sum(e) - span) % s for d, e, span, s in zip(size, edges, spans, stride, strict=True)]
    unread = [rest if type(rest) is int else s - 1 for rest, s in zip(rests, stride, strict=True)]
    geometry: Any = {"stride": stride, "padding": padding, "output_padding": unread, "dilation": dilation}
    result = b.emit("conv_transpose", (dy, w), **geometry, groups=groups)
    for i, rest in enumerate(rests):
        if type(rest) is not int:
            result = b.narrow(result, 2 + i, 0, size[i])
    return result


def weight_gradient(b: Builder, x: Tensor, dy: Tensor, kernel: Sequence[int], **geometry: Any) -> Tensor:
    """The cotangent of the kernel of a `conv`.

    One and two spatial axes are the op `conv2d_backward_weight`, whose own gradients are convolutions again.

    Args:
        b: Where to emit.
        x: The image.
        dy: The cotangent of the result.
        kernel: The spatial sizes of the kernel.
        geometry: `stride`, `padding`, `dilation` and `groups` as in `conv`.
    """
    if x.rank == 5:
        return weight_product(b, x, dy, kernel, **geometry)
    if x.rank == 4:
        return b.emit("conv2d_backward_weight", (x, dy), kernel=tuple(kernel), **geometry)
    window = {name: (1, *geometry[name]) for name in ("stride", "dilation")}
    found = weight_gradient(
        b,
        with_row(b, x),
        with_row(b, dy),
        (1, *kernel),
        **{**geometry, **window, "padding": (0, 0, *geometry["padding"])},
    )
    return without_row(b, found)


def with_row(b: Builder, x: Tensor) -> Tensor:
    """`[N, C, W]` as an image of one row."""
    n, channels, width = x.shape.dims
    return b.reshape(x, (n, channels, 1, width))


def without_row(b: Builder, x: Tensor) -> Tensor:
    """The reverse of `with_row`."""
    n, channels, _, width = x.shape.dims
    return b.reshape(x, (n, channels, width))


def weight_product(
    b: Builder,
    x: Tensor,
    dy: Tensor,
    kernel: Sequence[int],
    *,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    """`weight_gradient` as one product of `dy` with the elements that each tap reads at each position of the result.

    A convolution with batch and channels swapped would read the same, but `conv` wants static sizes of its kernel,
    which would be that of `dy`, batch included.
    """
    (n, channels, *size), (_, out_channels, *counts) = x.shape.dims, dy.shape.dims
    edges = list(zip(padding[::2], padding[1::2], strict=True))
    padded = b.pad(x, [(0, 0), (0, 0), *edges])
    read = _channels_first(b, padded)
    if prod(kernel) != 1 or prod(stride) != 1:  # else it reads everything, in order
        axes = [
            b.iota((k, count), axis=0) * d + b.iota((k, count), axis=1) * s
            for k, count, d, s in zip(kernel, counts, dilation, stride, strict=True)
        ]
        sizes = [d + before + after for d, (before, after) in zip(size, edges, strict=True)]
        rows = b.reshape(read, (channels, n, product(sizes)))
        read = b.gather(rows, places(b, axes, sizes), axis=2)
        read = b.transpose(read, (0, *range(2, 2 + len(size)), 1, read.rank - 1))
    points = n * product(counts)
    read = b.reshape(read, (groups, channels // groups * prod(kernel), points))
    by_group = b.reshape(dy, (n, groups, out_channels // groups, product(counts)))
    cotangent = b.reshape(b.transpose(by_group, (1, 2, 0, 3)), (groups, out_channels // groups, points))
    result = dots(b, cotangent, read, (2,), (2,), (0,), (0,))
    return b.reshape(result, (out_channels, channels // groups, *kernel))


def _channels_first(b: Builder, x: Tensor) -> Tensor:
    """`[C, N, spatial…]`."""
    return b.transpose(x, (1, 0, *range(2, x.rank)))


def one_by_one(
    b: Builder, function: Callable[..., Tensor], operands: Sequence[Tensor], batched: Sequence[bool]
) -> Tensor:
    """A function of each entry of a batch in turn: where the size of the batch is not known, but has to be."""

    def step(_: None, entries: tuple[Tensor, ...]) -> tuple[None, Tensor]:
        own = iter(entries)
        return None, function(*(next(own) if is_own else x for x, is_own in zip(operands, batched, strict=True)))

    return b.scan(step, None, tuple(x for x, is_own in zip(operands, batched, strict=True) if is_own))[1]


def apart(b: Builder, y: Tensor, groups: int, size: Dim) -> Tensor:
    """The results of a batch of kernels whose channels stand together in each group: `[N, groups·size·O, …]` as
    `[size, N, groups·O, …]`.
    """
    n, channels, *spatial = y.shape.dims
    own = channels // (groups * size)
    split = b.reshape(y, (n, groups, size, own, *spatial))
    return b.reshape(b.transpose(split, (2, 0, 1, 3, *range(4, split.rank))), (size, n, groups * own, *spatial))
