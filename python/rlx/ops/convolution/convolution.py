"""Convolution in one, two or three dimensions."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product as cartesian
from typing import Any

import numpy as np

from rlx.ir.dims.dim import Dim, product
from rlx.ir.dtype import FLOATS, REAL
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Flags, Padding, TensorLike, Tensors, Window
from rlx.ir.op.card import Attributes, Card, Cost, OpSample, Shapes, moved_bytes, sample
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.convolution.convolution_gradient import apart, input_gradient, one_by_one, weight_gradient, weight_product
from rlx.ops.convolution.geometry import ConvGeometry
from rlx.ops.lift import cast, common, same_dtype, tensor_like
from rlx.support.errors import ShapeError
from rlx.support.guards import INTEGERS, is_iterable
from rlx.support.short import short_repr


def out_size(size: Dim, kernel: int, stride: int, before: int, after: int, dilation: int) -> Dim:
    """Return the number of positions of a window along one axis."""
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


class Conv(Card, op="conv"):
    def infer(self, x: Shape, w: Shape, *, geometry: ConvGeometry) -> Shape:
        stride, padding, dilation, groups = geometry.stride, geometry.padding, geometry.dilation, geometry.groups
        shared = same_dtype(x, w)
        if x.rank != w.rank or x.rank not in (3, 4, 5):
            raise ShapeError(f"x [N, C, spatial…] and w [O, C/groups, kernel…] have rank 3, 4 or 5; got {x} and {w}")
        count = x.rank - 2
        check_window(count, padding=padding, stride=stride, dilation=dilation)
        if not w.is_static:
            raise ShapeError(f"the kernel must have static sizes, got {w}")
        out_channels, in_channels = w.static[:2]
        if x.dims[1] != in_channels * groups or out_channels % groups:
            raise ShapeError(f"{x} with {groups} groups needs w [k·{groups}, {x.dims[1]}/{groups}, …], got {w}")
        spatial: list[Dim] = []
        for i in range(count):
            before, after = padding[2 * i : 2 * i + 2]
            size = out_size(x.dims[2 + i], w.static[2 + i], stride[i], before, after, dilation[i])
            if type(size) is int and size < 0:
                raise ShapeError(f"the kernel of {w} does not fit spatial axis {i} of {x}")
            spatial.append(size)
        return Shape((x.dims[0], out_channels, *spatial), shared)

    def evaluate(self, x: np.ndarray, w: np.ndarray, *, geometry: ConvGeometry) -> np.ndarray:
        count = x.ndim - 2
        stride, dilation, groups = geometry.stride, geometry.dilation, geometry.groups
        pads = [(0, 0), (0, 0), *geometry.edges]
        kind = np.int64 if x.dtype.kind in "iu" else np.float64
        wide = np.pad(x.astype(kind), pads)
        kernel = w.astype(kind)
        n, out_channels, per_group = x.shape[0], w.shape[0], w.shape[1]
        spatial: list[Any] = [
            out_size(x.shape[2 + i], w.shape[2 + i], stride[i], *pads[2 + i], dilation[i]) for i in range(count)
        ]
        result = np.zeros((n, groups, out_channels // groups, *spatial), kind)
        grouped = wide.reshape(n, groups, per_group, *wide.shape[2:])
        weights = kernel.reshape(groups, out_channels // groups, per_group, *w.shape[2:])
        for offsets in cartesian(*map(range, w.shape[2:])):
            window = tuple(
                slice(o * d, o * d + (size - 1) * s + 1, s) if size else slice(0, 0)
                for o, d, s, size in zip(offsets, dilation, stride, spatial, strict=True)
            )
            result += np.einsum("ngc...,goc->ngo...", grouped[(..., *window)], weights[(..., *offsets)])
        return result.reshape(n, out_channels, *spatial).astype(x.dtype)

    def build(
        self,
        b: Builder,
        x: TensorLike,
        w: TensorLike,
        stride: Window = 1,
        padding: Padding = 0,
        dilation: Window = 1,
        groups: int = 1,
        bias: TensorLike | None = None,
    ) -> Tensor:
        """`bias` is `[O]`.

        Own arguments:
            padding: One number, one for each spatial axis, (before, after) pairs, 'same' or 'valid'.
        """
        x, w = common(b, x, w)
        count = max(x.rank - 2, 0)
        strides, dilations = per_axis(stride, count, "stride"), per_axis(dilation, count, "dilation")
        pads = pads_of(padding, x.shape, w.shape, strides, dilations)
        result = b.emit("conv", (x, w), stride=strides, padding=pads, dilation=dilations, groups=groups)
        return with_bias(b, result, bias)

    linear = ("x", "w")

    def vjp(
        self, b: Builder, operands: Tensors, results: Tensors, cotangents: Tensors, *, geometry: ConvGeometry
    ) -> rules.Cotangents:
        (x, w), (dy,) = operands, cotangents
        of_weight = weight_product if x.rank == 4 else weight_gradient  # for images, this product has its own op
        return (
            lambda: input_gradient(b, dy, w, x.shape.dims[2:], geometry),
            lambda: of_weight(b, x, dy, w.shape.static[2:], geometry),
        )

    def vmap(self, b: Builder, operands: Tensors, batched: Flags, *, size: Dim, groups: int, **window: Any) -> Tensor:
        """Join batched images along N, and batched kernels along the output channels of each group.

        If every kernel has its own images, the batch becomes additional groups.
        """
        (x, w), (x_batched, w_batched) = operands, batched
        if not w_batched:
            y = b.emit("conv", (rules.folded(b, x, 0), w), groups=groups, **window)
            return rules.unfolded(b, y, 0, size, x.shape.dims[1])
        if type(size) is not int or size == 0:
            return one_by_one(b, lambda *pair: b.emit("conv", pair, groups=groups, **window), operands, batched)
        out_channels, *kernel_dims = w.shape.static[1:]
        if x_batched:
            y = b.emit("conv", (rules.folded(b, x, 1), rules.folded(b, w, 0)), groups=size * groups, **window)
            return rules.unfolded(b, y, 1, size, out_channels)
        together = rules.folded(b, b.reshape(w, (size, groups, out_channels // groups, *kernel_dims)), 1)
        kernels = b.reshape(together, (size * out_channels, *kernel_dims))
        return apart(b, b.emit("conv", (x, kernels), groups=groups, **window), groups, size)

    def cost(self, operands: Shapes, results: Shapes, attributes: Attributes) -> Cost:
        return Cost(2 * results[0].num_elements * product(operands[1].dims[1:]), moved_bytes(operands, results))

    def samples(self) -> Iterable[OpSample]:
        plain: Attributes = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}
        twice: Attributes = plain | {"stride": (2, 2)}
        mixed: Attributes = plain | {"stride": (3, 2)}
        yield sample((2, 3, 6, 5), (4, 3, 3, 2), **plain, dtypes=REAL)
        yield sample((2, 4, 6), (6, 2, 3), stride=(2,), padding=(1, 2), dilation=(1,), groups=2, dtypes=FLOATS)
        yield sample(
            (1, 2, 5, 4, 3),
            (3, 2, 2, 2, 2),
            stride=(1, 2, 1),
            padding=(1, 0, 0, 1, 1, 1),
            dilation=(2, 1, 1),
            dtypes=("f32",),
        )
        yield sample(
            (2, 4, 7, 7),
            (4, 1, 3, 3),
            stride=(1, 1),
            padding=(1, 1, 1, 1),
            dilation=(1, 1),
            groups=4,
            dtypes=("f32", "f16", "i32"),
        )
        yield sample((1, 1, 1, 3), (1, 1, 1, 3), **plain, dtypes=("f32",))
        # A single window along an axis, and a position that no window covers.
        yield sample((2, 2, 3, 5), (3, 2, 2, 2), **twice, dtypes=("f32",))
        yield sample((2, 2, 4, 5), (2, 1, 2, 2), **mixed, groups=2, dtypes=("f32",))
        edges = (1, 0, 2, 1)
        for batch in ("h", "n"):  # for gradients first: from their operands, h can only be inferred as the batch
            strided: Attributes = {"stride": (2, 1), "padding": edges, "dilation": (1, 2), "groups": 2}
            yield sample((batch, 4, "h", 5), (6, 2, 3, 2), **strided, dtypes=("f32",))
        yield sample(
            ("n", 2, "d", 3, 4),
            (4, 1, 2, 2, 3),
            stride=(1, 2, 1),
            padding=(*edges, 0, 1),
            dilation=(2, 1, 1),
            groups=2,
            dtypes=("f32",),
        )
        yield sample(("n", 2, "l"), (3, 2, 2), stride=(2,), padding=(1, 0), dilation=(1,), dtypes=("f32",))


def with_bias(b: Builder, y: Tensor, bias: TensorLike | None) -> Tensor:
    """Return `[N, O, spatial…]` with a bias `[O]` added, if there is one.

    Raises:
        ShapeError: The bias does not have one entry per channel.
    """
    if bias is None:
        return y
    bias = cast(b, tensor_like(b, bias, y.dtype), y.dtype)
    if bias.shape.dims != y.shape.dims[1:2]:
        raise ShapeError(f"bias must be [{y.shape.dims[1]}], one for each channel of {y.shape}, got {bias.shape}")
    return b.add(y, b.reshape(bias, (*bias.shape.dims, *(1,) * (y.rank - 2))))


def check_window(count: int, *, padding: Sequence[int], **per_axis: Sequence[int]) -> None:
    """Check the attributes of a window over some spatial axes.

    Args:
        count: The number of spatial axes.
        padding: Must have two entries per axis.
        per_axis: Each must have one entry per axis.

    Raises:
        ShapeError: An attribute has the wrong length.
    """
    for name, values, expected in (("padding", padding, 2 * count), *((n, v, count) for n, v in per_axis.items())):
        if len(values) != expected:
            raise ShapeError(f"{name} needs {expected} entries for {count} spatial axes, got {list(values)}")


def per_axis(value: Window | Padding, count: int, name: str) -> tuple[int, ...]:
    """Return an integer for every spatial axis, from one integer or a list."""
    if not isinstance(value, (int, np.integer, list, tuple, np.ndarray)):
        raise ShapeError(f"{name} must be an integer or a list of {count}, got {value!r}")
    given: Any = value
    values = (given,) * count if isinstance(value, INTEGERS) else tuple(given)
    if len(values) != count:
        raise ShapeError(f"{name} needs {count} entries, got {short_repr(list(values))}")
    return values


def pads_of(padding: Padding, x: Shape, w: Shape, stride: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Return the padding before and after each axis, from an integer, one per axis, pairs, `"same"` or `"valid"`."""
    count = len(stride)
    padding = padding.lower() if isinstance(padding, str) else padding
    if padding == "valid":
        return (0,) * (2 * count)
    if padding == "same":
        if x.rank != w.rank or min(stride, default=1) < 1:
            return (0,) * (2 * count)  # `infer` reports the error
        result: list[int] = []
        for size, kernel, s, d in zip(x.dims[2:], w.static[2:], stride, dilation, strict=True):
            if type(size) is not int and s != 1:
                raise ShapeError("padding 'same' with a stride needs static spatial sizes")
            total = (
                max((-(-size // s) - 1) * s + d * (kernel - 1) + 1 - size, 0) if type(size) is int else d * (kernel - 1)
            )
            result += [total // 2, total - total // 2]
        return tuple(result)
    if isinstance(padding, str):
        raise ShapeError(f"padding {padding!r} is not 'same' or 'valid'")
    return per_edge(padding, count)


def per_edge(padding: Padding, count: int) -> tuple[int, ...]:
    """Return values before and after every spatial axis, from one integer, one per axis, or (before, after) pairs."""
    if isinstance(padding, str):
        raise ShapeError(f"padding {padding!r} is not a number, a list of them or a list of pairs")
    entries: tuple[Any, ...] = per_axis(padding, count, "padding")
    return tuple(p for e in entries for p in (e if is_iterable(e) else (e, e)))
