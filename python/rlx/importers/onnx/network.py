"""Products, convolutions and norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.importers.onnx.rules import (
    element_count,
    imports,
    static_dims,
)
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ops.lift import cast
from rlx.support.errors import UnsupportedError

_MOST_CHANNELS = 4096  # the largest number of channels of LRN, which sums them one by one


@imports("MatMul")
def matmul(g: Graph, lhs: Tensor, rhs: Tensor) -> Tensor:
    return g.matmul(lhs, rhs)


@dataclass(frozen=True, kw_only=True)
class ProductAttributes(ArgumentGroup):
    """The attributes of a product of two matrices, with ONNX's names."""

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0

    def product(self, g: Graph, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices, each transposed or not; without `alpha`."""
        return g.matmul(g.transpose(a, (1, 0)) if self.transA else a, g.transpose(b, (1, 0)) if self.transB else b)

    def scaled(self, g: Graph, product: Tensor) -> Tensor:
        """A product times `alpha`."""
        return product if self.alpha == 1 else g.mul(product, self.alpha)


@dataclass(frozen=True, kw_only=True)
class GemmAttributes(ProductAttributes):
    """The attributes of `Gemm`, with ONNX's names."""

    beta: float = 1.0

    def sum(self, g: Graph, a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        """`alpha·a·b + beta·c`."""
        product = self.scaled(g, self.product(g, a, b))
        return product if c is None else g.add(product, c if self.beta == 1 else g.mul(c, self.beta))


@imports("Gemm")
def gemm(
    g: Graph, a: Tensor, b: Tensor, c: Tensor | None = None, *, factors: GemmAttributes, broadcast: int = 1
) -> Tensor:
    return factors.sum(g, a, b, c)


@imports("Einsum")
def einsum(g: Graph, *xs: Tensor, equation: str) -> Tensor:
    return g.einsum(equation, *xs)


def padded(
    g: Graph, x: Tensor, padding: list[tuple[Dim, Dim]], value: float = 0
) -> tuple[Tensor, list[tuple[int, int]]]:
    """Pad the tensor along axes whose padding depends on open sizes. Return it with the remaining padding."""
    if all(isinstance(n, int) for pair in padding for n in pair):
        return x, padding  # type: ignore[return-value]
    return g.pad(x, [(0, 0), (0, 0), *padding], value=value), [(0, 0)] * len(padding)


@dataclass(frozen=True, kw_only=True)
class StepAttributes(ArgumentGroup):
    """The attributes of windows that move along the spatial axes, with ONNX's names."""

    dilations: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    strides: Sequence[int] | None = None

    def steps(self, kernel: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the strides and the dilations along each axis of a kernel."""
        ones = (1,) * len(kernel)
        return tuple(self.strides or ones), tuple(self.dilations or ones)

    def pairs(self, axes: int) -> list[tuple[int, int]]:
        """The amounts of padding before and after each axis."""
        pads = self.pads
        return [(int(pads[i]), int(pads[i + axes])) for i in range(axes)] if pads is not None else [(0, 0)] * axes


@dataclass(frozen=True, kw_only=True)
class WindowAttributes(StepAttributes):
    """The attributes of a window. `auto_pad` can replace the explicit padding."""

    auto_pad: str = "NOTSET"

    def padding(self, sizes: Sequence[Dim], kernel: Sequence[int]) -> list[tuple[Dim, Dim]]:
        """The amounts of padding before and after each axis of these sizes, by `auto_pad` where it is set."""
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(kernel)
        if self.auto_pad in ("NOTSET", ""):
            return [*self.pairs(len(kernel))]
        padding: list[tuple[Dim, Dim]] = []
        for n, k, s, d in zip(sizes, kernel, *self.steps(kernel), strict=True):
            whole = dim.maximum(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
            low = whole // 2 if self.auto_pad == "SAME_UPPER" else whole - whole // 2
            padding.append((low, whole - low))
        return padding


@dataclass(frozen=True, kw_only=True)
class ConvAttributes(WindowAttributes):
    """The attributes of a convolution, with ONNX's names."""

    group: int = 1
    kernel_shape: Sequence[int] | None = None

    def convolved(self, g: Graph, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """The convolution of a tensor, [N, C, places…], with kernels."""
        kernel = static_dims(w, *spatial_axes(w))
        strides, dilations = self.steps(kernel)
        x, padding = padded(g, x, self.padding(x.shape.dims[2:], kernel))
        return g.conv(x, w, strides, padding, dilations, self.group, bias)


@imports("Conv")
def conv(g: Graph, x: Tensor, w: Tensor, bias: Tensor | None = None, *, window: ConvAttributes) -> Tensor:
    return window.convolved(g, x, w, bias)


@dataclass(frozen=True, kw_only=True)
class TransposedShape(ArgumentGroup):
    """The attributes of a transposed convolution about the size of its result, with ONNX's names."""

    output_padding: Sequence[int] | None = None
    output_shape: Sequence[int] | None = None


@imports("ConvTranspose")
def conv_transpose(
    g: Graph,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    window: ConvAttributes,
    result: TransposedShape,
) -> Tensor:
    kernel, sizes = static_dims(w, *spatial_axes(w)), x.shape.dims[2:]
    half, pads, auto_pad = len(kernel), window.pads, window.auto_pad
    strides, dilations = window.steps(kernel)
    beyond = tuple(result.output_padding or (0,) * half)
    whole = g.conv_transpose(x, w, strides, 0, 0, dilations, window.group)
    spans = [n + more for n, more in zip(whole.shape.dims[2:], beyond, strict=True)]
    wanted: Sequence[Dim] | None = result.output_shape
    if wanted is None and auto_pad.startswith("SAME"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
    cut: list[tuple[Dim, Dim]] = []
    for i, span in enumerate(spans):
        if wanted is None:
            cut.append((pads[i], pads[i + half]) if pads is not None and auto_pad in ("NOTSET", "") else (0, 0))
        else:
            beyond = (*beyond[:i], beyond[i] + dim.maximum(0, wanted[i] - span), *beyond[i + 1 :])
            total = dim.maximum(0, span - wanted[i])
            low = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
            cut.append((low, total - low))
    whole = g.pad(whole, [(0, 0), (0, 0), *((0, more) for more in beyond)])
    limits = [size - high for size, (_, high) in zip(whole.shape.dims[2:], cut, strict=True)]
    kept = g.slice(whole, (0, 0, *(low for low, _ in cut)), (*whole.shape.dims[:2], *limits))
    return kept if bias is None else g.add(kept, along_channels(g, x, bias))


def spatial_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.shape.rank))


@imports("LRN")
def lrn(g: Graph, x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    element_count(size, "channels for one result", _MOST_CHANNELS)
    low, (channels,) = (size - 1) // 2, static_dims(x, 1)
    squares = g.pad(g.mul(x, x), [(0, 0), (low, size - 1 - low), *((0, 0) for _ in spatial_axes(x))])
    total = g.narrow(squares, 1, 0, channels)
    for shift in range(1, size):
        total = g.add(total, g.narrow(squares, 1, shift, channels))
    return g.div(x, g.pow(g.add(g.mul(total, alpha / size), bias), beta))


def along_channels(g: Graph, x: Tensor, values: Tensor) -> Tensor:
    return g.reshape(values, (values.shape.dims[0], *(1 for _ in spatial_axes(x))))


@dataclass(frozen=True)
class OnnxNormWeights(ArgumentGroup):
    """The scale and the bias of a norm."""

    scale: Tensor
    bias: Tensor


@dataclass(frozen=True)
class RunningStatistics(ArgumentGroup):
    """The running statistics of channels."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True, kw_only=True)
class BatchNormAttributes(ArgumentGroup):
    """The attributes of a batch norm, with ONNX's names."""

    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: int = 0
    spatial: int = 1


@imports("BatchNormalization")
def batch_normalization(
    g: Graph,
    x: Tensor,
    affine: OnnxNormWeights,
    running: RunningStatistics,
    *,
    wanted: Sequence[bool],
    norm: BatchNormAttributes,
) -> Tensor | list[Tensor]:
    mean, variance = running.mean, running.variance
    if not norm.training_mode:
        if any(wanted[1:]):
            raise UnsupportedError("of another version in training mode cannot be imported")
        if not norm.spatial:  # until version 8: statistics of each element
            factor = g.div(affine.scale, g.sqrt(g.add(variance, norm.epsilon)))
            return g.add(g.mul(g.sub(x, mean), factor), affine.bias)
        result = g.batch_norm_inference(x, affine.scale, affine.bias, mean, variance, eps=norm.epsilon)
        return [result, mean, variance, mean, variance][: len(wanted)]  # the others are unused
    axes = (0, *spatial_axes(x))
    now = g.mean(x, axes)
    centred = g.sub(x, along_channels(g, x, now))
    spread = g.mean(g.mul(centred, centred), axes)
    factor = g.mul(g.rsqrt(g.add(spread, norm.epsilon)), affine.scale)
    result = g.add(g.mul(centred, along_channels(g, x, factor)), along_channels(g, x, affine.bias))
    rest = 1 - norm.momentum
    kept = [g.add(g.mul(old, norm.momentum), g.mul(new, rest)) for old, new in ((mean, now), (variance, spread))]
    return [result, *kept][: len(wanted)]


@imports("InstanceNormalization")
def instance_normalization(g: Graph, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return g.instance_norm(x, scale, bias, eps=epsilon)


@dataclass(frozen=True, kw_only=True)
class NormAttributes(ArgumentGroup):
    """The attributes of norms of the last axes, with ONNX's names."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def axes(self, x: Tensor) -> tuple[int, ...]:
        """The axes of a tensor that are normed."""
        return tuple(range(self.axis % x.shape.rank, x.shape.rank))


@imports("LayerNormalization", "com.microsoft.LayerNormalization")
def layer_normalization(
    g: Graph, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, outputs: int, norm: NormAttributes
) -> list[Tensor]:
    axes = norm.axes(x)
    wide = cast(g, x, x.dtype.compute)
    mean = g.mean(wide, axes, True)
    centred = g.sub(wide, mean)
    inverse = g.rsqrt(g.add(g.mean(g.mul(centred, centred), axes, True), norm.epsilon))
    result = g.mul(g.cast(g.mul(centred, inverse), x.dtype), scale)
    return [result if bias is None else g.add(result, bias), mean, inverse][:outputs]


@imports("RMSNormalization", "SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization")
def rms_normalization(g: Graph, x: Tensor, scale: Tensor, *, norm: NormAttributes) -> Tensor:
    wide = cast(g, x, x.dtype.compute)
    inverse = g.rsqrt(g.add(g.mean(g.mul(wide, wide), norm.axes(x), True), norm.epsilon))
    return g.mul(g.cast(g.mul(wide, inverse), x.dtype), scale)
