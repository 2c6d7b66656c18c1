"""Gradients of convolution and of maximum pooling in two dimensions."""

from __future__ import annotations

from typing import Any

from rlx.ir import registry
from rlx.ir.builder import Builder, Tensor
from rlx.ir.card import Card, Cost, moved_bytes, sample
from rlx.ir.dim import Dim
from rlx.ir.errors import ShapeError
from rlx.ir.shape import Shape
from rlx.ops import rules
from rlx.ops.backward import check_cotangent
from rlx.ops.convolution import pads_of, per_axis, per_edge
from rlx.ops.convolution_gradient import input_gradient, weight_gradient, weight_product
from rlx.ops.lift import same_dtype
from rlx.ops.pool_gradient import collected_by_winners, taken_from_winners
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

    def decompose(self, b: Builder, x: Tensor, dy: Tensor, **window: Any) -> Tensor:
        return collected_by_winners(b, x, dy, **window)

    linear = ("dy",)

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, **window: Any) -> Any:
        (x, dy), (g,) = operands, cotangents
        return None, taken_from_winners(b, x, g, dy.shape, **window)

    def vmap(self, b: Builder, operands: Any, batched: Any, *, size: Dim, **window: Any) -> Tensor:
        x, dy = (rules.batch(b, t, own, size) for t, own in zip(operands, batched, strict=True))
        found = b.emit("max_pool2d_backward", (rules.folded(b, x, 0), rules.folded(b, dy, 0)), **window)
        return rules.unfolded(b, found, 0, size, x.shape.dims[1])

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


# --- convolution ------------------------------------------------------------------------------------


class Conv2dBackwardInput(Card, op="conv2d_backward_input"):
    def infer(self, dy: Shape, w: Shape, *, size: tuple[Dim, ...], groups: int, **geometry: Any) -> Shape:
        image = _image(dy, w, size, groups)
        check_cotangent(dy, registry.card("conv").infer(image, w, groups=groups, **geometry))
        return image

    def decompose(self, b: Builder, dy: Tensor, w: Tensor, *, size: Any, **geometry: Any) -> Tensor:
        return input_gradient(b, dy, w, size, **geometry)

    linear = ("dy", "w")

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, size: Any, **geometry: Any) -> Any:
        (dy, w), (g,) = operands, cotangents
        return (
            lambda: b.emit("conv", (g, w), **geometry),
            lambda: weight_gradient(b, g, dy, w.shape.static[2:], **geometry),
        )

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

    def decompose(self, b: Builder, x: Tensor, dy: Tensor, *, kernel: Any, **geometry: Any) -> Tensor:
        return weight_product(b, x, dy, kernel, **geometry)

    linear = ("x", "dy")

    def vjp(self, b: Builder, operands: Any, results: Any, cotangents: Any, *, kernel: Any, **geometry: Any) -> Any:
        (x, dy), (g,) = operands, cotangents
        return (
            lambda: input_gradient(b, dy, g, x.shape.dims[2:], **geometry),
            lambda: b.emit("conv", (x, g), **geometry),
        )

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
        yield sample((2, 2, 8, 7), (2, 6, 4, 2), kernel=(2, 3), **odd, dtypes=("f32",))
        strided: Any = {"stride": (2, 1), "padding": (0, 1, 0, 0), "dilation": (1, 1)}
        yield sample(("n", 2, "h", 4), ("n", 3, "h//2", 3), kernel=(3, 2), **strided, dtypes=("f32",))


def _weight(x: Shape, dy: Shape, kernel: tuple[int, ...], groups: int) -> Shape:
    """The shape of the kernel by which a result like `dy` was made from `x`."""
    same_dtype(x, dy)
    _check_image(x=x, dy=dy)
    if len(kernel) != 2:
        raise ShapeError(f"kernel gives the height and width of the kernel; got {list(kernel)}")
    channels = x.dims[1]
    if type(channels) is not int or channels % groups:
        raise ShapeError(f"the {channels} channels of {x} do not divide into {groups} groups")
    return x.with_dims((dy.dims[1], channels // groups, *kernel))
