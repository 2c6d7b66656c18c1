"""Convolutions, norms and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlx.importers.torch.rules import Results, as_tensor, aten, each
from rlx.ir.dims.dim import Dim, product
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.op.argument_groups import ArgumentGroup
from rlx.ops.norm import statistics_input
from rlx.support.errors import UnsupportedError


@dataclass(frozen=True)
class ConvArguments(ArgumentGroup):
    """The arguments of a convolution of either kind, in PyTorch's order."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int


@aten("convolution", "_convolution")
def convolution(g: Graph, x: Tensor, w: Tensor, bias: Tensor | None, by: ConvArguments, *rest: Any) -> Tensor:
    if by.transposed:
        return conv_transpose(g, x, w, bias, by.stride, by.padding, by.output_padding, by.groups, by.dilation)
    return conv(g, x, w, bias, by.stride, by.padding, by.dilation, by.groups)


@aten("conv1d", "conv2d", "conv3d")
def conv(g: Graph, x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    """Return the convolution. `rlx.ops.conv2d` and the other convolutions have PyTorch's arguments."""
    count = w.rank - 2
    return getattr(g, f"conv{count}d")(x, w, *(_for_all(value, count) for value in rest))


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(g: Graph, x: Tensor, w: Tensor, *rest: Any) -> Tensor:
    count = w.rank - 2
    return getattr(g, f"conv_transpose{count}d")(x, w, *(_for_all(value, count) for value in rest))


def _for_all(value: Any, count: int) -> Any:
    """Return a value for all spatial axes. A list of one number applies to all."""
    return each(value, count) if isinstance(value, (list, tuple)) else value


def _normed(g: Graph, x: Tensor, shape: Sequence[Dim], method: str, *weights: Tensor | None, eps: float) -> Tensor:
    """Normalise over the last axes."""
    given = [None if w is None else as_tensor(g, w, x.dtype) for w in weights]
    return getattr(g, method)(x, *given, axis=tuple(range(-len(shape), 0)), eps=eps)


@dataclass(frozen=True)
class NormArguments(ArgumentGroup):
    """The weights and the options of a norm, in PyTorch's order."""

    weight: Tensor | None = None
    bias: Tensor | None = None
    eps: float = 1e-5
    cudnn_enabled: bool = True


@aten("layer_norm")
def layer_norm(g: Graph, x: Tensor, normalized_shape: Sequence[Dim], norm: NormArguments) -> Tensor:
    return _normed(g, x, normalized_shape, "layer_norm", norm.weight, norm.bias, eps=norm.eps)


@aten("native_layer_norm")
def native_layer_norm(
    g: Graph, x: Tensor, shape: Sequence[Dim], weight: Tensor | None, bias: Tensor | None, eps: float
) -> list[Tensor]:
    return [layer_norm(g, x, shape, NormArguments(weight, bias, eps)), *_statistics(g, x, len(shape), eps)]


def _statistics(g: Graph, x: Tensor, count: int, eps: float) -> list[Tensor]:
    """Return the mean over the last axes, and the reciprocal of the standard deviation."""
    axes, wide = tuple(range(x.rank - count, x.rank)), statistics_input(g, x)
    mean = g.mean(wide, axes, True)
    inverse = g.rsqrt(g.add(g.mean(g.square(g.sub(wide, mean)), axes, True), eps))
    return [as_tensor(g, mean, x.dtype), as_tensor(g, inverse, x.dtype)]


@aten("rms_norm")
def rms_norm(
    g: Graph, x: Tensor, normalized_shape: Sequence[Dim], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return the RMS norm. The default eps is the machine epsilon of the dtype that PyTorch computes in."""
    smallest = x.dtype.compute.eps if eps is None else eps
    return _normed(g, x, normalized_shape, "rms_norm", weight, eps=smallest)


@aten("_fused_rms_norm")
def fused_rms_norm(
    g: Graph, x: Tensor, normalized_shape: Sequence[Dim], weight: Tensor | None, eps: float | None, *, results: Results
) -> list[Tensor]:
    """Return the norm and the reciprocal root mean square. f16 and bf16 are computed in f32."""
    axes = tuple(range(x.rank - len(normalized_shape), x.rank))
    wide = statistics_input(g, x)
    inverse = g.rsqrt(g.add(g.mean(g.square(wide), axes, True), wide.dtype.eps if eps is None else eps))
    return [rms_norm(g, x, normalized_shape, weight, eps), as_tensor(g, inverse, results[1].dtype)]


@aten("group_norm")
def group_norm(g: Graph, x: Tensor, num_groups: int, norm: NormArguments) -> Tensor:
    weight, bias = (None if w is None else as_tensor(g, w, x.dtype) for w in (norm.weight, norm.bias))
    return g.group_norm(x, weight, bias, num_groups, norm.eps)


@dataclass(frozen=True)
class GroupNormArguments(ArgumentGroup):
    """The arguments of `native_group_norm` after the tensor, in PyTorch's order."""

    weight: Tensor | None
    bias: Tensor | None
    n: Dim
    c: Dim
    rest: Dim
    groups: int
    eps: float


@aten("native_group_norm")
def native_group_norm(g: Graph, x: Tensor, by: GroupNormArguments) -> list[Tensor]:
    rows = g.reshape(x, (by.n, by.groups, product(x.shape.dims[1:]) // by.groups))
    statistics = [g.squeeze(t, -1) for t in _statistics(g, rows, 1, by.eps)]
    return [group_norm(g, x, by.groups, NormArguments(by.weight, by.bias, by.eps)), *statistics]


@dataclass(frozen=True)
class BatchNormTensors(ArgumentGroup):
    """The weights of a batch norm, and its running statistics, in PyTorch's order."""

    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor | None
    variance: Tensor | None

    @property
    def running(self) -> tuple[Tensor, Tensor]:
        """The running statistics.

        Raises:
            UnsupportedError: There are none.
        """
        if self.mean is None or self.variance is None:
            raise UnsupportedError("without running statistics cannot be imported")
        return self.mean, self.variance


@dataclass(frozen=True)
class NormModes(ArgumentGroup):
    """The options of a norm of channels, in PyTorch's order; `of_input` selects the statistics of the input."""

    of_input: bool
    momentum: float
    eps: float
    cudnn_enabled: bool = True


@aten("batch_norm")
def batch_norm(g: Graph, x: Tensor, tensors: BatchNormTensors, modes: NormModes) -> Tensor:
    of_input = modes.of_input or tensors.mean is None
    return g.batch_norm(x, tensors.mean, tensors.variance, tensors.weight, tensors.bias, of_input, eps=modes.eps)


@aten("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    g: Graph, x: Tensor, tensors: BatchNormTensors, momentum: float, eps: float, *, results: Results
) -> list[Tensor]:
    made = batch_norm(g, x, tensors, NormModes(False, momentum, eps))
    return [made, *(g.zeros(r.dims, dtype=r.dtype) for r in results[1:])]  # the statistics are empty


@aten("_native_batch_norm_legit_functional")
def batch_norm_functional(
    g: Graph, x: Tensor, tensors: BatchNormTensors, training: bool, momentum: float, eps: float, *, results: Results
) -> list[Tensor]:
    """Return the normalised tensor, its statistics and the running ones. The running variance is the unbiased one."""
    axes = tuple(a for a in range(x.rank) if a != 1)
    made, (mean, variance) = batch_norm(g, x, tensors, NormModes(training, momentum, eps)), tensors.running
    if not training:
        empty = (g.zeros(r.dims, dtype=r.dtype) for r in results[1:3])
        return [made, *empty, mean, variance]
    wide = statistics_input(g, x)
    now, spread = g.mean(wide, axes), g.var(wide, axes)
    count = product(x.shape.dims[a] for a in axes)
    size = as_tensor(g, count, wide.dtype)
    sample = g.mul(spread, g.div(size, g.sub(size, 1.0)))
    running = [
        g.add(g.mul(as_tensor(g, old, wide.dtype), 1 - momentum), g.mul(new, momentum))
        for old, new in ((mean, now), (variance, sample))
    ]
    statistics = [now, g.rsqrt(g.add(spread, eps)), *running]
    return [made, *(as_tensor(g, s, r.dtype) for s, r in zip(statistics, results[1:], strict=True))]


@aten("instance_norm")
def instance_norm(g: Graph, x: Tensor, tensors: BatchNormTensors, modes: NormModes) -> Tensor:
    if not modes.of_input:
        return batch_norm(g, x, tensors, modes)
    return g.instance_norm(x, tensors.weight, tensors.bias, eps=modes.eps)


@dataclass(frozen=True)
class AttentionArguments(ArgumentGroup):
    """The arguments of attention, in PyTorch's order."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False


@aten("scaled_dot_product_attention")
def attention(
    g: Graph,
    operands: AttentionArguments,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    results: Results,
) -> Tensor:
    if operands.dropout_p > 0:
        raise UnsupportedError("with dropout cannot be imported", hint="module.eval() before it")
    if scale is not None and math.isnan(scale):
        scale = None
    q, k, v, mask, is_causal = operands.q, operands.k, operands.v, operands.mask, operands.is_causal
    mask = mask if mask is None or mask.dtype.is_bool else as_tensor(g, mask, q.dtype)
    if q.rank == 4 and (k.rank, v.rank) == (4, 4) and q.shape.dims[0] == k.shape.dims[0] == v.shape.dims[0]:
        return g.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale)
    # Merge other batch axes into one, with single heads.
    dims = results[0].dims[:-2]
    q, k, v = (_one_batch(g, t, dims) for t in (q, k, v))
    mask = None if mask is None else _one_batch(g, mask, dims)
    return g.reshape(g.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, scale=scale), results[0].dims)


def _one_batch(g: Graph, x: Tensor, dims: Sequence[Dim]) -> Tensor:
    matrix = x.shape.dims[-2:]
    return g.reshape(g.expand(x, (*dims, *matrix)), (product(dims), 1, *matrix))
