"""Products, convolutions and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlx.importers.onnx.rules import (
    bounded,
    described,
    imports,
    keywords_of,
    static_dims,
)
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Tensor
from rlx.ops.lift import cast
from rlx.support.errors import UnsupportedError

_MOST_CHANNELS = 4096  # the largest number of channels of LRN, which sums them one by one


@imports("MatMul")
def matmul(g: Any, lhs: Tensor, rhs: Tensor) -> Tensor:
    return g.matmul(lhs, rhs)


@imports("Gemm")
def gemm(
    g: Any,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    broadcast: int = 1,
) -> Tensor:
    product = g.matmul(g.transpose(a, (1, 0)) if transA else a, g.transpose(b, (1, 0)) if transB else b)
    product = product if alpha == 1 else g.mul(product, alpha)
    return product if c is None else g.add(product, c if beta == 1 else g.mul(c, beta))


@imports("Einsum")
def einsum(g: Any, *xs: Tensor, equation: str) -> Tensor:
    return g.einsum(equation, *xs)


def padding_of(
    sizes: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil: bool = False
) -> list[tuple[Dim, Dim]]:
    """Return the padding before and after each axis, from `auto_pad` if it is set."""
    if auto_pad == "VALID":
        return [(0, 0)] * len(kernel)
    if auto_pad in ("NOTSET", ""):
        half = len(kernel)
        return [(int(pads[i]), int(pads[i + half])) for i in range(half)] if pads is not None else [(0, 0)] * half
    padding: list[tuple[Dim, Dim]] = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        whole = dim.maximum(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        low = whole // 2 if auto_pad == "SAME_UPPER" else whole - whole // 2
        padding.append((low, whole - low))
    return padding


def padded(g: Any, x: Tensor, padding: list[tuple[Dim, Dim]], value: float = 0) -> tuple[Tensor, list[tuple[int, int]]]:
    """Pad the tensor along axes whose padding depends on open sizes. Return it with the remaining padding."""
    if all(isinstance(n, int) for pair in padding for n in pair):
        return x, padding  # type: ignore[return-value]
    return g.pad(x, [(0, 0), (0, 0), *padding], value=value), [(0, 0)] * len(padding)


@dataclass(frozen=True, kw_only=True)
class ConvAttributes:
    """The attributes of a convolution, with ONNX's names."""

    auto_pad: str = "NOTSET"
    dilations: Any = None
    group: int = 1
    kernel_shape: Any = None
    pads: Any = None
    strides: Any = None

    def steps(self, kernel: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the strides and the dilations along each axis of a kernel."""
        ones = (1,) * len(kernel)
        return tuple(self.strides or ones), tuple(self.dilations or ones)

    def convolved(self, g: Any, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the convolution of a tensor [N, C, spatial…] with kernels."""
        kernel = static_dims(w, *spatial_axes(w))
        strides, dilations = self.steps(kernel)
        wanted = padding_of(x.shape.dims[2:], kernel, strides, dilations, self.pads, self.auto_pad)
        x, padding = padded(g, x, wanted)
        return g.conv(x, w, strides, padding, dilations, self.group, bias)


def convolution(*ops: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the rule of convolutions. The rule gets their attributes as one `ConvAttributes`, by the keyword `window`."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        of_window, others = keywords_of(ConvAttributes), [p for p in keywords_of(rule) if p.name != "window"]

        def build(g: Any, *operands: Any, **attributes: Any) -> Any:
            given = {p.name: attributes.pop(p.name) for p in of_window if p.name in attributes}
            return rule(g, *operands, window=ConvAttributes(**given), **attributes)

        imports(*ops)(described(build, rule, [*of_window, *others]))
        return rule

    return register


@convolution("Conv")
def conv(g: Any, x: Tensor, w: Tensor, bias: Tensor | None = None, *, window: ConvAttributes) -> Tensor:
    return window.convolved(g, x, w, bias)


@convolution("ConvTranspose")
def conv_transpose(
    g: Any,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    window: ConvAttributes,
    output_padding: Any = None,
    output_shape: Any = None,
) -> Tensor:
    kernel, sizes = static_dims(w, *spatial_axes(w)), x.shape.dims[2:]
    half, pads, auto_pad = len(kernel), window.pads, window.auto_pad
    strides, dilations = window.steps(kernel)
    beyond = tuple(output_padding or (0,) * half)
    whole = g.conv_transpose(x, w, strides, 0, 0, dilations, window.group)
    spans = [n + more for n, more in zip(whole.shape.dims[2:], beyond, strict=True)]
    wanted = output_shape
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
    result = g.slice(whole, (0, 0, *(low for low, _ in cut)), (*whole.shape.dims[:2], *limits))
    return result if bias is None else g.add(result, along_channels(g, x, bias))


def spatial_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.shape.rank))


@imports("LRN")
def lrn(g: Any, x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    bounded(size, "channels for one result", _MOST_CHANNELS)
    low, (channels,) = (size - 1) // 2, static_dims(x, 1)
    squares = g.pad(g.mul(x, x), [(0, 0), (low, size - 1 - low), *((0, 0) for _ in spatial_axes(x))])
    total = g.narrow(squares, 1, 0, channels)
    for shift in range(1, size):
        total = g.add(total, g.narrow(squares, 1, shift, channels))
    return g.div(x, g.pow(g.add(g.mul(total, alpha / size), bias), beta))


def along_channels(g: Any, x: Tensor, values: Tensor) -> Tensor:
    return g.reshape(values, (values.shape.dims[0], *(1 for _ in spatial_axes(x))))


@imports("BatchNormalization")
def batch_normalization(
    g: Any,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    outputs: int,
    wanted: Sequence[bool],
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Tensor | list[Tensor]:
    if not training_mode:
        if any(wanted[1:]):
            raise UnsupportedError("of another version in training mode cannot be imported")
        if not spatial:  # until version 8: separate statistics for each element
            factor = g.div(scale, g.sqrt(g.add(variance, epsilon)))
            return g.add(g.mul(g.sub(x, mean), factor), bias)
        result = g.batch_norm_inference(x, scale, bias, mean, variance, eps=epsilon)
        return [result, mean, variance, mean, variance][:outputs]  # the other results are not used
    axes = (0, *spatial_axes(x))
    now = g.mean(x, axes)
    centred = g.sub(x, along_channels(g, x, now))
    spread = g.mean(g.mul(centred, centred), axes)
    factor = g.mul(g.rsqrt(g.add(spread, epsilon)), scale)
    result = g.add(g.mul(centred, along_channels(g, x, factor)), along_channels(g, x, bias))
    kept = [g.add(g.mul(old, momentum), g.mul(new, 1 - momentum)) for old, new in ((mean, now), (variance, spread))]
    return [result, *kept][:outputs]


@imports("InstanceNormalization")
def instance_normalization(g: Any, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return g.instance_norm(x, scale, bias, eps=epsilon)


@imports("LayerNormalization")
def layer_normalization(
    g: Any,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    outputs: int,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Tensor]:
    axes = tuple(range(axis % x.shape.rank, x.shape.rank))
    wide = cast(g, x, x.dtype.compute)
    mean = g.mean(wide, axes, True)
    centred = g.sub(wide, mean)
    inverse = g.rsqrt(g.add(g.mean(g.mul(centred, centred), axes, True), epsilon))
    result = g.mul(g.cast(g.mul(centred, inverse), x.dtype), scale)
    return [result if bias is None else g.add(result, bias), mean, inverse][:outputs]


@imports("RMSNormalization")
def rms_normalization(
    g: Any, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = tuple(range(axis % x.shape.rank, x.shape.rank))
    wide = cast(g, x, x.dtype.compute)
    inverse = g.rsqrt(g.add(g.mean(g.mul(wide, wide), axes, True), epsilon))
    return g.mul(g.cast(g.mul(wide, inverse), x.dtype), scale)
