"""Gradients of convolution and of maximum pooling in two dimensions.

No step of them scatters: what a position of an image gets is collected from the windows that hold it, so that the sums
have an order and run in parallel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir import registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, moved_bytes, sample
from rlx.ir.dim import Dim
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops.backward import check_cotangent
from rlx.ops.convolution import pads_of, per_axis, per_edge
from rlx.ops.lift import same_dtype, size_of
from rlx.ops.reduce import FLOATS


def _check_image(**shapes: Shape) -> None:
    for name, shape in shapes.items():
        if shape.rank != 4:
            raise ShapeError(f"'{name}' must have rank 4, [N, C, H, W] or [O, C/groups, kH, kW], got {shape}")


# --- maximum pooling --------------------------------------------------------------------------------


class MaxPool2dBackward(Card, op="max_pool2d_backward"):
    def infer(self, x: Shape, dy: Shape, *, kernel: Any, stride: Any, padding: Any) -> Shape:
        _check_image(x=x)
        window = {"kernel": kernel, "stride": stride, "padding": padding}
        check_cotangent(dy, registry.card("pool").infer(x, kind="max", count_include_pad=True, **window))
        return x

    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, kernel: Any, stride: Any, padding: Any) -> Tensor:
        if x.shape.num_elements == 0 or dy.shape.num_elements == 0:
            return b.expand(b.constant(0, dtype=x.dtype), x.shape.dims)
        rows, columns = (
            _Windows(b, x.shape.dims[2 + i], dy.shape.dims[2 + i], kernel[i], stride[i], *padding[2 * i : 2 * i + 2])
            for i in range(2)
        )
        return _collected(b, rows, columns, _winners(b, rows, columns, x), dy)

    def build(self, b: Builder, x: Tensor, dy: Tensor, kernel: Any, stride: Any = None, padding: Any = 0) -> Tensor:
        window = per_axis(kernel, 2, "kernel")
        strides = window if stride is None else per_axis(stride, 2, "stride")
        return b.emit("max_pool2d_backward", (x, dy), kernel=window, stride=strides, padding=per_edge(padding, 2))

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        kernel, stride = attributes["kernel"], attributes["stride"]
        reach = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
        searched, collected = operands[1].num_elements * (kernel[0] * kernel[1]), operands[0].num_elements
        return Cost(searched + collected * (2 * reach[0] * reach[1]), moved_bytes(operands, results))

    def samples(self) -> Any:
        plain: Any = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0, 0, 1)}
        yield sample((2, 3, 5, 4), (2, 3, 2, 4), **plain, dtypes=FLOATS)
        yield sample((1, 2, 4, 7), (1, 2, 2, 2), kernel=(2, 3), stride=(2, 3), padding=(0,) * 4, dtypes=("f32",))
        apart: Any = {"kernel": (1, 2), "stride": (3, 2), "padding": (0, 2, 1, 2)}  # gaps, and windows of padding alone
        yield sample((1, 2, 4, 3), (1, 2, 2, 3), **apart, dtypes=("f32",))
        yield sample(("n", 2, "h", 6), ("n", 2, "(h-2)//2+1", 6), **plain, dtypes=("f32",))


class _Windows:
    """One spatial axis of a pooling: `size` positions and `count` windows.

    Attributes:
        positions: `[count, kernel]`, the position that a window reads by each of its taps. Beyond the edges it is the
            edge: that repeats an element of the same window, and keeps the order of its elements.
        holds_some: `[count]`, whether a window holds any position; None if all do.
        windows: `[size, reach]`, the windows that may hold a position, counted from 1: 0 and `count + 1` are none.
    """

    def __init__(self, b: Builder, size: Dim, count: Dim, kernel: int, stride: int, before: int, after: int):
        self.size, self.count, self.kernel, self.reach = size, count, kernel, -(-kernel // stride)
        starts = b.iota((count, 1), axis=0) * stride - before
        last_position = size_of(b, size) - 1
        self.positions = b.minimum(b.maximum(starts + np.arange(kernel, dtype=np.int32), 0), last_position)
        self.holds_some = None
        if before >= kernel or after >= kernel:
            self.holds_some = b.reshape((starts > -kernel) & (starts <= last_position), (count,))
        groups = (size + before + stride - 1) // stride
        last = b.reshape(b.expand(b.iota((groups, 1), axis=0), (groups, stride)), (groups * stride,))
        last = b.reshape(b.narrow(last, 0, before, size), (size, 1))
        windows = last + np.arange(1, 1 - self.reach, -1, dtype=np.int32)
        self.windows = b.minimum(b.maximum(windows, 0), size_of(b, count) + 1)


def _in_rows(b: Builder, rows: Tensor, columns: Tensor, width: Dim) -> Tensor:
    """Places in an image of some width, row by row: `[M, N, i·j]` of `rows [M, i]` and `columns [N, j]`."""
    (m, i), (n, j) = rows.shape.dims, columns.shape.dims
    places = b.reshape(rows, (m, 1, i, 1)) * size_of(b, width) + b.reshape(columns, (n, 1, j))
    return b.reshape(places, (m, n, i * j))


def _winners(b: Builder, rows: _Windows, columns: _Windows, x: Tensor) -> Tensor:
    """For each window the place in the image of its first largest element, -1 where it has none: `[N, C, h, w]`."""
    n, channels, height, width = x.shape.dims
    places = _in_rows(b, rows.positions, columns.positions, width)
    elements = b.gather(b.reshape(x, (n, channels, height * width)), places, axis=2)
    taps = rows.kernel * columns.kernel
    window = b.reshape(b.iota((rows.count * columns.count,)), (rows.count, columns.count))
    winner = b.gather(b.reshape(places, (-1,)), b.argmax(elements, axis=-1) + window * taps)
    if rows.holds_some is not None:
        winner = b.where(b.reshape(rows.holds_some, (rows.count, 1)), winner, -1)
    return winner if columns.holds_some is None else b.where(columns.holds_some, winner, -1)


def _collected(b: Builder, rows: _Windows, columns: _Windows, winner: Tensor, dy: Tensor) -> Tensor:
    """What each place of the image has of the windows that hold it: the cotangents of those that it wins."""
    n, channels, *counts = dy.shape.dims
    framed = (n, channels, (counts[0] + 2) * (counts[1] + 2))
    windows = _in_rows(b, rows.windows, columns.windows, counts[1] + 2)

    def of_windows(values: Tensor, outside: int) -> Tensor:
        frame = b.pad(values, [(0, 0), (0, 0), (1, 1), (1, 1)], value=outside)
        return b.gather(b.reshape(frame, framed), windows, axis=2)

    place = b.reshape(b.iota((rows.size * columns.size,)), (rows.size, columns.size, 1))
    won = of_windows(winner, -1) == place
    return b.sum(b.where(won, of_windows(dy, 0), 0.0), -1)


# --- convolution ------------------------------------------------------------------------------------


class Conv2dBackwardInput(Card, op="conv2d_backward_input"):
    def infer(self, dy: Shape, w: Shape, *, size: tuple[Dim, ...], groups: int, **geometry: Any) -> Shape:
        image = _image(dy, w, size, groups)
        check_cotangent(dy, registry.card("conv").infer(image, w, groups=groups, **geometry))
        return image

    def decompose(
        self, b: Builder, dy: Tensor, w: Tensor, *, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Tensor:
        # As many positions at the end as no window reads; where that hangs on a symbol, as many as there can be.
        edges = zip(padding[::2], padding[1::2], strict=True)
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, w.shape.static[2:], strict=True)]
        rests = [(d + sum(e) - span) % s for d, e, span, s in zip(size, edges, spans, stride, strict=True)]
        unread = [rest if type(rest) is int else s - 1 for rest, s in zip(rests, stride, strict=True)]
        geometry: Any = {"stride": stride, "padding": padding, "output_padding": unread, "dilation": dilation}
        result = b.emit("conv_transpose", (dy, w), **geometry, groups=groups)
        for i in range(2):
            if type(rests[i]) is not int:
                result = b.narrow(result, 2 + i, 0, size[i])
        return result

    def build(
        self,
        b: Builder,
        dy: Tensor,
        w: Tensor,
        size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        strides, dilations = per_axis(stride, 2, "stride"), per_axis(dilation, 2, "dilation")
        pads = pads_of(padding, _image(dy.shape, w.shape, tuple(size), groups), w.shape, strides, dilations)
        geometry: Any = {"stride": strides, "padding": pads, "dilation": dilations}
        return b.emit("conv2d_backward_input", (dy, w), size=tuple(size), **geometry, groups=groups)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        dy, w = operands
        return Cost(2 * dy.num_elements * w.num_elements // w.dims[0], moved_bytes(operands, results))

    def samples(self) -> Any:
        plain: Any = {"stride": (1, 1), "padding": (1, 1, 0, 0), "dilation": (1, 1)}
        yield sample((2, 4, 5, 4), (4, 3, 3, 2), size=(5, 5), **plain, dtypes=FLOATS)
        odd: Any = {"stride": (2, 3), "padding": (2, 0, 0, 1), "dilation": (2, 1), "groups": 2}
        yield sample((1, 4, 4, 2), (4, 1, 2, 3), size=(8, 7), **odd, dtypes=("f32",))
        strided: Any = {"stride": (2, 1), "padding": (0, 1, 0, 0), "dilation": (1, 1)}
        yield sample(("h", 2, "h//2", 3), (2, 3, 3, 2), size=("h", 4), **strided, dtypes=("f32",))


def _image(dy: Shape, w: Shape, size: tuple[Dim, ...], groups: int) -> Shape:
    """The shape of the image from which a result like `dy` was made."""
    same_dtype(dy, w)
    _check_image(dy=dy, w=w)
    if len(size) != 2:
        raise ShapeError(f"size gives height and width, got {list(size)}")
    return dy.with_dims((dy.dims[0], w.dims[1] * groups, *size))


class Conv2dBackwardWeight(Card, op="conv2d_backward_weight"):
    def infer(self, x: Shape, dy: Shape, *, kernel: Any, groups: int, **geometry: Any) -> Shape:
        weight = _weight(x, dy, kernel, groups)
        check_cotangent(dy, registry.card("conv").infer(x, weight, groups=groups, **geometry))
        return weight

    def decompose(
        self, b: Builder, x: Tensor, dy: Tensor, *, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Tensor:
        """One product of `dy` with the elements that each tap reads at each position of the result.

        A convolution with batch and channels swapped would read the same, but `conv` wants static sizes of its kernel,
        which would be that of `dy`, batch included.
        """
        (n, channels, *size), (_, out_channels, *counts) = x.shape.dims, dy.shape.dims
        (top, bottom, left, right), points = padding, n * (counts[0] * counts[1])
        padded = b.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
        width, positions = size[1] + left + right, (size[0] + top + bottom) * (size[1] + left + right)
        rows, columns = (
            b.iota((k, count), axis=0) * d + b.iota((k, count), axis=1) * s
            for k, count, d, s in zip(kernel, counts, dilation, stride, strict=True)
        )
        read = b.reshape(b.transpose(padded, (1, 0, 2, 3)), (channels, n, positions))
        read = b.transpose(b.gather(read, _in_rows(b, rows, columns, width), axis=2), (0, 2, 3, 1, 4))
        read = b.reshape(read, (groups, channels // groups * (kernel[0] * kernel[1]), points))
        cotangent = b.reshape(b.transpose(dy, (1, 0, 2, 3)), (groups, out_channels // groups, points))
        result = b.dot_general(cotangent, read, (2,), (2,), (0,), (0,))
        return b.reshape(result, (out_channels, channels // groups, *kernel))

    def build(
        self,
        b: Builder,
        x: Tensor,
        dy: Tensor,
        kernel: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        strides, dilations = per_axis(stride, 2, "stride"), per_axis(dilation, 2, "dilation")
        window = per_axis(kernel, 2, "kernel")
        pads = pads_of(padding, x.shape, _weight(x.shape, dy.shape, window, groups), strides, dilations)
        geometry: Any = {"stride": strides, "padding": pads, "dilation": dilations}
        return b.emit("conv2d_backward_weight", (x, dy), kernel=window, **geometry, groups=groups)

    def cost(self, operands: Any, results: Any, attributes: Any) -> Cost:
        dy, weight = operands[1], results[0]
        return Cost(2 * dy.num_elements * weight.num_elements // weight.dims[0], moved_bytes(operands, results))

    def samples(self) -> Any:
        plain: Any = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
        yield sample((2, 3, 5, 5), (2, 4, 3, 4), kernel=(3, 2), **plain, dtypes=FLOATS)
        odd: Any = {"stride": (2, 3), "padding": (2, 0, 0, 1), "dilation": (2, 1), "groups": 2}
        yield sample((1, 2, 8, 7), (1, 4, 4, 2), kernel=(2, 3), **odd, dtypes=("f32",))
        strided: Any = {"stride": (2, 1), "padding": (0, 1, 0, 0), "dilation": (1, 1)}
        yield sample(("n", 2, "h", 4), ("n", 3, "h//2", 3), kernel=(3, 2), **strided, dtypes=("f32",))


def _weight(x: Shape, dy: Shape, kernel: tuple[int, ...], groups: int) -> Shape:
    """The shape of the kernel by which a result like `dy` was made from `x`."""
    same_dtype(x, dy)
    _check_image(x=x, dy=dy)
    if len(kernel) != 2 or min(kernel) < 1:
        raise ShapeError(f"kernel gives the height and width of the kernel, both positive; got {list(kernel)}")
    channels = x.dims[1]
    if type(channels) is not int or groups < 1 or channels % groups:
        raise ShapeError(f"the {channels} channels of {x} do not divide into {groups} groups")
    return x.with_dims((dy.dims[1], channels // groups, *kernel))
