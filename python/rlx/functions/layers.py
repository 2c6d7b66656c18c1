"""Layers with the names and argument order of PyTorch: convolutions, norms without parameters, dropout, attention."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false, reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.functions.convolution import pooling
from rlx.functions.reduction.statistics import norm
from rlx.ir.dims.dim import product
from rlx.ir.dtype import f32
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import Padding, TensorLike, Window
from rlx.ops.lift import axis_of, cast, checked_eps, inexact, tensor_like
from rlx.ops.norm import along, standardised, statistics_input
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError
from rlx.support.guards import is_integer


def conv(
    b: Builder,
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    stride: Window = 1,
    padding: Padding = 0,
    dilation: Window = 1,
    groups: int = 1,
) -> Tensor:
    """The arguments are in PyTorch's order.

    Args:
        b: The graph.
        x: `[N, C, spatial…]`, or one image `[C, spatial…]`.
        w: `[O, C/groups, kernel…]`.
        bias: `[O]`, or None.
        stride: One integer, or one for each spatial axis.
        padding: An integer, one for each spatial axis, (before, after) pairs, `"same"` or `"valid"`.
        dilation: The distance between the elements of a window.
        groups: The number of convolutions that the channels are divided into.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    return b.conv(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias)


def conv_transpose(
    b: Builder,
    x: TensorLike,
    w: TensorLike,
    bias: TensorLike | None = None,
    stride: Window = 1,
    padding: Padding = 0,
    output_padding: Window = 0,
    groups: int = 1,
    dilation: Window = 1,
) -> Tensor:
    """The arguments are in PyTorch's order.

    Args:
        b: The graph.
        x: `[N, C, spatial…]`, or one image `[C, spatial…]`.
        w: `[C, O/groups, kernel…]`.
        bias: `[O]`, or None.
        stride: One integer, or one for each spatial axis.
        padding: The amount cut off at the edges: an integer, one for each spatial axis, or (before, after) pairs.
        output_padding: Positions that are added at the end of each axis.
        groups: The number of convolutions that the channels are divided into.
        dilation: The distance between the elements of a window.

    Raises:
        ShapeError: The shapes do not fit together.
    """
    window: dict[str, Any] = {
        "stride": stride,
        "padding": padding,
        "output_padding": output_padding,
        "dilation": dilation,
    }
    return b.conv_transpose(x, w, **window, groups=groups, bias=bias)


for _function in (conv, conv_transpose):
    for _count in (1, 2, 3):
        helper(pooling.with_dimensions(_function, _count))


def _weighted(
    b: Builder, normal: Tensor, scale: TensorLike | Sequence[float] | None, bias: TensorLike | None, x: Tensor
) -> Tensor:
    """Return normalised values, scaled and shifted per channel where scale and bias are given, in the dtype of `x`."""
    for name, weight in (("scale", scale), ("bias", bias)):
        if weight is None:
            continue
        weight = _channels(b, weight, x, name)
        normal = normal * weight if name == "scale" else normal + weight
    return cast(b, normal, x.dtype)


def _channels(b: Builder, weight: object, x: Tensor, name: str) -> Tensor:
    """Return a weight `[C]` along axis 1; f16 and bf16 are widened to f32."""
    weight = statistics_input(b, tensor_like(b, weight, x.dtype))
    if weight.shape.dims != x.shape.dims[1:2]:
        raise ShapeError(f"'{name}' must have shape [{x.shape.dims[1]}] to go with {x.shape}, got {weight.shape}")
    return along(b, weight, 1, x.rank)


def _images(b: Builder, x: TensorLike, least: int) -> Tensor:
    x = inexact(b, tensor_like(b, x, f32))
    if x.rank < least or x.dtype.is_complex:
        raise ShapeError(f"x must be real numbers [N, C{', spatial…' if least > 2 else ', …'}], got {x.shape}")
    return x


@helper
def instance_norm(
    b: Builder,
    x: TensorLike,
    scale: TensorLike | Sequence[float] | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each image minus its mean, divided by its standard deviation, times `scale [C]`, plus `bias [C]`.

    Args:
        b: The graph.
        x: `[N, C, spatial…]`, floats. f16 and bf16 are computed in f32.
        scale: `[C]`, or None for ones.
        bias: `[C]`, or None for zeros.
        eps: Added to the variance.

    Raises:
        ShapeError: There is no spatial axis, a weight has another shape, or `eps` is negative.
    """
    x, eps = _images(b, x, 3), checked_eps(eps)
    normal, _ = standardised(b, statistics_input(b, x), range(2, x.rank), eps)
    return _weighted(b, normal, scale, bias, x)


@helper
def batch_norm(
    b: Builder,
    x: TensorLike,
    mean: TensorLike | None = None,
    variance: TensorLike | None = None,
    scale: TensorLike | Sequence[float] | None = None,
    bias: TensorLike | None = None,
    training: bool = False,
    *,
    eps: float = 1e-5,
) -> Tensor:
    """PyTorch's `batch_norm`: `(x - mean)/sqrt(variance + eps)·scale + bias` for each channel.

    Args:
        b: The graph.
        x: `[N, C, …]`, floats. f16 and bf16 are computed in f32.
        mean: `[C]`, the running mean; not read in training.
        variance: `[C]`, the running variance; not read in training.
        scale: `[C]`, or None for ones.
        bias: `[C]`, or None for zeros.
        training: Whether to take mean and variance from `x` itself. Running statistics are not updated;
            `rlx.nn.BatchNorm` does that.
        eps: Added to the variance.

    Raises:
        ShapeError: Statistics are missing, a weight has another shape, or `eps` is negative.
    """
    x, eps = _images(b, x, 2), checked_eps(eps)
    if training:
        normal, _ = standardised(b, statistics_input(b, x), [i for i in range(x.rank) if i != 1], eps)
        return _weighted(b, normal, scale, bias, x)
    if mean is None or variance is None:
        raise ShapeError("mean and variance are missing", hint="with training=True they are taken from x")
    given = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    weights = {name: tensor_like(b, weight, x.dtype) for name, weight in given.items() if weight is not None}
    if all(weight.dtype is x.dtype for weight in weights.values()):
        channels = x.shape.dims[1:2]
        ones, zeros = (b.expand(b.constant(value, dtype=x.dtype), channels) for value in (1, 0))
        weights = {"scale": ones, "bias": zeros} | weights
        return b.batch_norm_inference(x, *(weights[name] for name in given), eps=eps)
    along_channels = {name: _channels(b, weight, x, name) for name, weight in weights.items()}
    factor = b.rsqrt(along_channels["variance"] + eps)
    factor = along_channels["scale"] * factor if scale is not None else factor
    result = (statistics_input(b, x) - along_channels["mean"]) * factor
    return cast(b, result if bias is None else result + along_channels["bias"], x.dtype)


@helper
def normalize(b: Builder, x: TensorLike, ord: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """PyTorch's `normalize`: `x / max(norm(x, ord), eps)` along an axis.

    Args:
        b: The graph.
        x: Floats; f16 and bf16 are computed in f32.
        ord: The order of the norm.
        axis: By default 1, as in PyTorch; 0 for a vector.
        eps: A lower bound for the divisor: zero vectors stay zero, and their gradient is finite.

    Raises:
        ShapeError: There is no such axis, or `eps` is negative.
    """
    x, eps = inexact(b, tensor_like(b, x, f32)), checked_eps(eps)
    place = axis_of(axis if x.rank != 1 or axis != 1 else 0, x.rank)
    wide = statistics_input(b, x)
    if ord == 2:
        size = b.sqrt(b.maximum(b.sum(wide * wide, place, True), eps**2))
    else:
        size = b.maximum(norm(b, wide, ord, place, True), eps)
    return cast(b, wide / size, x.dtype)


@helper
def local_response_norm(
    b: Builder, x: TensorLike, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """PyTorch's `local_response_norm`: `x / (k + alpha·m)^beta`, with `m` the mean square of `size` adjacent channels.

    Args:
        b: The graph.
        x: `[N, C, …]`, floats. f16 and bf16 are computed in f32.
        size: The number of channels, of these `size // 2` before the current one. Channels beyond the edges count as 0.
        alpha: The factor of the mean square.
        beta: The exponent.
        k: The added constant.

    Raises:
        ShapeError: The size is not a positive integer.
    """
    x = _images(b, x, 2)
    if not is_integer(size) or size < 1:
        raise ShapeError(f"size must be an integer from 1 on, got {size!r:.60}")
    wide = statistics_input(b, x)
    n, channels, *rest = x.shape.dims
    lines = b.reshape(wide * wide, (n, 1, channels, product(rest)))
    edges = [(size // 2, (size - 1) // 2), (0, 0)]
    means = b.pool(lines, kind="mean", kernel=(int(size), 1), stride=1, padding=edges)
    scale = b.pow(b.reshape(means, x.shape.dims) * float(alpha) + float(k), -float(beta))
    return cast(b, wide * scale, x.dtype)


@helper
def dropout(
    b: Builder, x: TensorLike, rate: float = 0.5, seed: TensorLike | None = None, training: bool = True
) -> Tensor:
    """Sets elements to 0 with probability `rate` and scales the others by `1/(1 - rate)`; the identity outside training.

    Args:
        b: The graph.
        x: Floats.
        rate: From 0 to 1.
        seed: As in `rng_uniform`: an integer, or a tensor, so that each step draws different numbers.
        training: Whether to drop elements.

    Raises:
        ShapeError: The rate is not from 0 to 1.
    """
    x = inexact(b, tensor_like(b, x, f32))
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise ShapeError(f"rate must be a number from 0 to 1, got {rate!r:.60}")
    if isinstance(seed, bool):
        raise ShapeError(
            f"the seed is an integer or a scalar tensor, not {seed}", hint="g.dropout(x, p, training=False)"
        )
    if not training or rate == 0:
        return x
    if rate == 1:
        return b.zeros_like(x)
    kept = b.rng_uniform(x.shape.dims, seed) >= float(rate)
    return b.where(kept, x * (1 / (1 - rate)), 0.0)


@helper
def softmin(b: Builder, x: TensorLike, axis: int = -1) -> Tensor:
    """PyTorch's `softmin`: the softmax of `-x` along an axis."""
    return b.softmax(-inexact(b, tensor_like(b, x, f32)), axis=axis)


@helper
def scaled_dot_product_attention(
    b: Builder,
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    attn_mask: TensorLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """PyTorch's `scaled_dot_product_attention`: `softmax(q·kᵀ·scale + mask)·v`, by `attention`.

    Args:
        b: The graph.
        q: `[B, H, S, D]`, or `[B, S, D]` for one head.
        k: `[B, Hkv, T, D]`; heads may be fewer than those of `q`.
        v: `[B, Hkv, T, Dv]`.
        attn_mask: Broadcastable to `[B, H, S, T]`. Bools mark the keys that are seen; floats are added to the scores.
        dropout_p: Must be 0. Call `dropout` on the result instead.
        is_causal: Query `i` sees keys 0 to `i`, counted from the start as in PyTorch. (`attention` counts from the
            end.)
        scale: By default `1/sqrt(D)`.

    Returns:
        `[B, H, S, Dv]`, or `[B, S, Dv]`; zeros for a query that sees no key.

    Raises:
        ShapeError: Shapes do not fit together, or both a mask and `is_causal` are given.
    """
    q, k, v = (tensor_like(b, t, f32) for t in (q, k, v))
    if q.rank not in (3, 4) or k.rank != q.rank or v.rank != q.rank:
        raise ShapeError(f"q, k and v must be [B, H, S, D] or [B, S, D], got {q.shape}, {k.shape} and {v.shape}")
    if isinstance(dropout_p, bool) or dropout_p != 0:
        raise ShapeError(f"dropout_p must be 0, got {dropout_p!r:.60}", hint="g.dropout(…, p) of what it gives")
    if attn_mask is not None and is_causal:
        raise ShapeError("attn_mask and is_causal go together only as one mask", hint="join them: mask & g.tri(s, t)")
    single = q.rank == 3
    if single:
        q, k, v = (b.expand_dims(t, 1) for t in (q, k, v))
    heads, queries, lanes = q.shape.dims[1:]
    mask, mask_kind = None, "none"
    if is_causal and queries == k.shape.dims[2]:
        mask_kind = "causal"
    elif is_causal:
        mask = b.reshape(b.tri(queries, k.shape.dims[2], dtype="bool"), (1, 1, queries, k.shape.dims[2]))
        mask_kind = "custom"
    elif attn_mask is not None:
        mask = tensor_like(b, attn_mask, q.dtype)
        if single and mask.rank == 3:
            mask = b.expand_dims(mask, 1)
        mask = b.reshape(mask, ((1,) * (4 - mask.rank)) + tuple(mask.shape.dims)) if mask.rank < 4 else mask
        mask_kind = "bias" if mask.dtype.is_inexact else "custom"
    if type(heads) is not int or type(lanes) is not int:
        raise ShapeError(f"the number of heads and their size must be known, got {q.shape}")
    result = b.attention(q, k, v, mask, num_heads=heads, head_dim=lanes, mask_kind=mask_kind, score_scale=scale)
    return b.reshape(result, (result.shape.dims[0], *result.shape.dims[2:])) if single else result
