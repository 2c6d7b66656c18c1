"""`torch.nn.functional`: activations, layers, images, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.peers.losses import WRAPPED
from tests.peers.products import matmul
from tests.peers.vocabulary import count, flat, needs, says, sizes

_NN = "nn.functional."
_TRUNCATED = "PyTorch truncates means of integers in windows"


def _layer(*names: str, **properties: Any) -> Any:
    return says(*(_NN + name for name in names), **properties)


_layer("relu6", differentiable=False)(lambda g, x, inplace=False: g.clamp(x, 0, 6))
_layer("hardtanh", differentiable=False)(
    lambda g, x, min_val=-1.0, max_val=1.0, inplace=False: _hardtanh(g, x, min_val, max_val)
)
_layer("hardsigmoid", differentiable=False)(lambda g, x, inplace=False: g.clamp(x + 3.0, 0.0, 6.0) / 6.0)
_layer("hardswish", differentiable=False)(lambda g, x, inplace=False: x * g.clamp(x + 3.0, 0.0, 6.0) / 6.0)
_layer("hardshrink")(lambda g, x, lambd=0.5: g.where((x >= -lambd) & (x <= lambd), 0.0, x))
_layer("softshrink")(lambda g, x, lambd=0.5: _softshrink(g, x, lambd))
_layer("tanhshrink")(lambda g, x: x - g.tanh(x))
_layer("threshold", differentiable=False)(
    lambda g, x, threshold, value, inplace=False: g.where(x > threshold, x, value)
)
_layer("leaky_relu")(lambda g, x, negative_slope=0.01, inplace=False: g.where(x > 0, x, x * negative_slope))
_layer("elu")(lambda g, x, alpha=1.0, inplace=False: _elu(g, x, alpha, 1.0, 1.0))
_layer("celu")(lambda g, x, alpha=1.0, inplace=False: _elu(g, x, alpha, 1.0, 1 / alpha))
_layer("selu")(lambda g, x, inplace=False: _elu(g, x, 1.6732632423543772, 1.0507009873554805, 1.0))
_layer("softplus", finite=True)(lambda g, x, beta=1, threshold=20: _softplus(g, x, beta, threshold))
_layer("mish", finite=True)(lambda g, x, inplace=False: x * g.tanh(_softplus(g, x, 1, 20)))
_layer("softsign")(lambda g, x: x / (1.0 + g.abs(x)))
_layer("logsigmoid", finite=True)(lambda g, x: g.minimum(x, 0) - g.log(1.0 + g.exp(-g.abs(x))))
_layer("prelu")(lambda g, x, weight: _prelu(g, x, weight))
_layer("glu")(lambda g, x, dim=-1: _glu(g, x, dim))
_layer("linear")(lambda g, x, w, bias=None: _linear(g, x, w, bias))
_layer("bilinear")(lambda g, x, y, w, bias=None: _bilinear(g, x, y, w, bias))
for _rank in (1, 2, 3):
    _layer(f"conv{_rank}d")(
        lambda g, x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, rank=_rank: _conv(
            g, x, w, bias, stride, padding, dilation, groups, rank
        )
    )
    _layer(f"conv_transpose{_rank}d")(
        lambda g, x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, rank=_rank: (
            _conv_transpose(g, x, w, bias, stride, padding, output_padding, groups, dilation, rank)
        )
    )
    _layer(f"avg_pool{_rank}d")(lambda g, x, *a, rank=_rank, **k: _avg_pool(g, x, rank, *a, **k))
    _layer(f"max_pool{_rank}d", differentiable=False)(lambda g, x, *a, rank=_rank, **k: _max_pool(g, x, rank, *a, **k))
    _layer(f"adaptive_avg_pool{_rank}d")(lambda g, x, size, rank=_rank: _adaptive(g, x, rank, size, "mean"))
    _layer(f"adaptive_max_pool{_rank}d", differentiable=False)(
        lambda g, x, size, return_indices=False, rank=_rank: _adaptive(g, x, rank, size, "max", return_indices)
    )
_layer("batch_norm", "batch_norm.without_cudnn")(
    lambda g, x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5: _batch_norm(
        g, x, mean, var, weight, bias, training, eps
    )
)
_layer("layer_norm")(lambda g, x, shape, weight=None, bias=None, eps=1e-5: _layer_norm(g, x, shape, weight, bias, eps))
says("native_layer_norm")(
    lambda g, x, shape, weight, bias, eps: (_layer_norm(g, x, shape, weight, bias, eps), None, None)
)
_layer("rms_norm")(lambda g, x, shape, weight=None, eps=None: _rms_norm(g, x, shape, weight, eps))
_layer("group_norm")(
    lambda g, x, groups, weight=None, bias=None, eps=1e-5: _group_norm(g, x, groups, weight, bias, eps)
)
_layer("instance_norm")(
    lambda g, x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5: (
        _instance_norm(g, x, weight, bias, use_input_stats, eps)
    )
)
_layer("local_response_norm")(
    lambda g, x, size, alpha=1e-4, beta=0.75, k=1.0: _local_response_norm(g, x, size, alpha, beta, k)
)
_layer("normalize", finite=True, differentiable=False)(
    lambda g, x, p=2.0, dim=1, eps=1e-12, out=None: _normalize(g, x, p, dim, eps)
)
_layer("cosine_similarity", differentiable=False)(lambda g, x, y, dim=1, eps=1e-8: g.cosine_similarity(x, y, dim, eps))
_layer("pairwise_distance", finite=True)(
    lambda g, x, y, p=2.0, eps=1e-6, keepdim=False: _distance(g, x, y, p, eps, keepdim)
)
_layer("interpolate.nearest", "upsample_nearest")(
    lambda g, x, size=None, scale_factor=None, mode="nearest", **k: _resize(g, x, size, scale_factor, "nearest", False)
)
for _name in ("linear", "bilinear", "trilinear"):
    _layer(f"interpolate.{_name}", tolerance=16.0)(
        lambda g, x, size=None, scale_factor=None, mode="", align_corners=None, **k: _resize(
            g, x, size, scale_factor, "bilinear", bool(align_corners), **k
        )
    )
_layer("upsample_bilinear", tolerance=16.0)(
    lambda g, x, size=None, scale_factor=None: _resize(g, x, size, scale_factor, "bilinear", True)
)
_layer("scaled_dot_product_attention", finite=True)(lambda g, q, k, v, *a, **kw: _attention(g, q, k, v, *a, **kw))
_layer("unfold")(
    lambda g, x, kernel_size, dilation=1, padding=0, stride=1: _unfold(g, x, kernel_size, dilation, padding, stride)
)
_layer(
    "dropout",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout.with_train",
    "feature_alpha_dropout.without_train",
)(lambda g, x, p=0.5, training=True, **_: _dropout(g, x, p, training))


def _hardtanh(g: Any, x: Any, low: Any, high: Any) -> Any:
    needs(x.dtype.is_float, "floats beside integers make floats")
    return g.clamp(x, low, high)


def _softshrink(g: Any, x: Any, lambd: float) -> Any:
    return g.where(x > lambd, x - lambd, g.where(x < -lambd, x + lambd, g.where(x != x, x, 0.0)))


def _elu(g: Any, x: Any, alpha: float, scale: float, slope: float) -> Any:
    return g.where(x > 0, x, (g.exp(g.minimum(x, 0) * slope) - 1.0) * alpha) * scale


def _softplus(g: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = x * beta
    soft = (g.maximum(scaled, 0) + g.log(1.0 + g.exp(-g.abs(scaled)))) / beta
    return g.where(scaled > threshold, x, soft)


def _prelu(g: Any, x: Any, weight: Any) -> Any:
    if weight.rank and x.rank > 1 and sizes(weight) != (1,):
        weight = g.reshape(weight, (1, -1) + (1,) * (x.rank - 2))
    elif weight.rank and x.rank == 0:
        weight = g.reshape(weight, ())
    return g.where(x > 0, x, weight * x)


def _glu(g: Any, x: Any, dim: int) -> Any:
    half = sizes(x)[dim] // 2
    return g.narrow(x, dim, 0, half) * g.sigmoid(g.narrow(x, dim, half, half))


def _linear(g: Any, x: Any, w: Any, bias: Any) -> Any:
    made = matmul(g, x, w.T) if w.rank == 2 else matmul(g, x, w)
    return made if bias is None else made + bias


def _bilinear(g: Any, x: Any, y: Any, w: Any, bias: Any) -> Any:
    batch = sizes(x)[:-1]
    x, y = (
        g.reshape(x, (-1, sizes(x)[-1])) if math.prod(batch) else x,
        g.reshape(y, (-1, sizes(y)[-1])) if math.prod(batch) else y,
    )
    needs(math.prod(batch), "rows")
    half = g.dot_general(x, w, [1], [1])
    made = g.dot_general(half, y, [2], [1], [0], [0])
    made = g.reshape(made, (*batch, sizes(w)[0]))
    return made if bias is None else made + bias


def _unbatched(g: Any, x: Any, rank: int, function: Any) -> Any:
    if x.rank == rank + 2:
        return function(x)
    made = function(g.reshape(x, (1, *sizes(x))))
    return g.reshape(made, sizes(made)[1:])


def _each(value: Any, rank: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * rank if len(values) == 1 else values


def _biased(g: Any, y: Any, bias: Any, rank: int) -> Any:
    return y if bias is None else y + g.reshape(bias, (-1,) + (1,) * rank)


def _conv(g: Any, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, rank: int) -> Any:
    needs(not x.dtype.is_complex, "RLX convolves real numbers")
    window = {"stride": _each(stride, rank), "dilation": _each(dilation, rank)}
    pads = 0 if padding == "valid" else padding if isinstance(padding, str) else _each(padding, rank)
    made = _unbatched(g, x, rank, lambda x: _biased(g, g.conv(x, w, padding=pads, groups=groups, **window), bias, rank))
    return made


def _conv_transpose(
    g: Any, x: Any, w: Any, bias: Any, stride: Any, padding: Any, more: Any, groups: int, dilation: Any, rank: int
) -> Any:
    needs(not x.dtype.is_complex, "RLX convolves real numbers")
    window = {
        "stride": _each(stride, rank),
        "padding": _each(padding, rank),
        "output_padding": _each(more, rank),
        "dilation": _each(dilation, rank),
        "groups": groups,
    }
    return _unbatched(g, x, rank, lambda x: _biased(g, g.conv_transpose(x, w, **window), bias, rank))


def _avg_pool(
    g: Any,
    x: Any,
    rank: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:
    needs(not ceil_mode and divisor_override is None, "windows are whole, and the mean is one")
    needs(x.dtype.is_float, _TRUNCATED)
    stride = _each(kernel_size if stride is None or stride == () else stride, rank)
    return _unbatched(
        g, x, rank, lambda x: g.mean_pool(x, _each(kernel_size, rank), stride, _each(padding, rank), count_include_pad)
    )


def _max_pool(
    g: Any,
    x: Any,
    rank: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    needs(not ceil_mode and set(_each(dilation, rank)) == {1}, "windows are whole, without gaps")
    stride = _each(kernel_size if stride is None or stride == () else stride, rank)
    made = _unbatched(g, x, rank, lambda x: g.max_pool(x, _each(kernel_size, rank), stride, _each(padding, rank)))
    return [made, None] if return_indices else made


def _adaptive(g: Any, x: Any, rank: int, size: Any, kind: str, indices: bool = False) -> Any:
    spatial = sizes(x)[-rank:]
    wanted = [s if o is None else o for s, o in zip(spatial, _each_or_none(size, rank), strict=True)]
    needs(not (kind == "max" and indices), "RLX has no positions of windows")
    needs(all(o and s % o == 0 for s, o in zip(spatial, wanted, strict=True)), "windows of one size")
    kernel = [s // o for s, o in zip(spatial, wanted, strict=True)]
    return _unbatched(g, x, rank, lambda x: g.pool(x, kind, kernel))


def _each_or_none(value: Any, rank: int) -> tuple[Any, ...]:
    values = (value,) if isinstance(value, int) or value is None else tuple(value)
    return values * rank if len(values) == 1 else values


def _batch_norm(g: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: bool, eps: float) -> Any:
    needs(x.rank > 1 and count(x, range(x.rank)), "something to average")
    channels, kind = sizes(x)[1], x.dtype
    if training:
        axes = [i for i in range(x.rank) if i != 1]
        needs(count(x, axes), "something to average")
        wide = g.cast(x, "f32") if kind.name in ("f16", "bf16") else x
        mean = g.mean(wide, axes)
        centred = wide - g.reshape(mean, (-1,) + (1,) * (x.rank - 2))
        var, x = g.mean(centred * centred, axes), wide
    weight = g.constant(np.ones(channels, np.float32)) if weight is None else weight
    bias = g.constant(np.zeros(channels, np.float32)) if bias is None else bias
    made = g.batch_norm_inference(x, *(g.cast(t, x.dtype) for t in (weight, bias, mean, var)), eps)
    return g.cast(made, kind)


def _affine(g: Any, y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _layer_norm(g: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    shape = _each(shape, 1)
    n = math.prod(shape)
    needs(n, "something to average")
    rows = g.reshape(x, (*sizes(x)[: x.rank - len(shape)], n))
    scale = g.cast(g.constant(np.ones(n, np.float32)), x.dtype) if weight is None else flat(g, weight)
    shift = g.cast(g.constant(np.zeros(n, np.float32)), x.dtype) if bias is None else flat(g, bias)
    return g.reshape(g.layer_norm(rows, scale, shift, -1, eps), sizes(x))


def _rms_norm(g: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    needs(not x.dtype.is_complex, "RLX normalises real numbers")
    n = math.prod(shape)
    needs(n, "something to average")
    rows = g.reshape(x, (*sizes(x)[: x.rank - len(shape)], n))
    scale = g.cast(g.constant(np.ones(n, np.float32)), x.dtype) if weight is None else flat(g, weight)
    eps = (x.dtype.eps if x.dtype.name not in ("f16", "bf16") else 2.0**-23) if eps is None else eps
    return g.reshape(g.rms_norm(rows, scale, eps=eps), sizes(x))


def _group_norm(g: Any, x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    channels = sizes(x)[1]
    needs(count(x, range(x.rank)) and x.rank > 2, "something to average")
    weight = g.cast(g.constant(np.ones(channels, np.float32)), x.dtype) if weight is None else weight
    bias = g.cast(g.constant(np.zeros(channels, np.float32)), x.dtype) if bias is None else bias
    return g.group_norm(x, weight, bias, groups, eps)


says("native_group_norm")(
    lambda g, x, weight, bias, n, c, rest, groups, eps: (_group_norm(g, x, groups, weight, bias, eps), None, None)
)


def _instance_norm(g: Any, x: Any, weight: Any, bias: Any, use_input_stats: bool, eps: float) -> Any:
    needs(use_input_stats, "statistics of the input")
    return _group_norm(g, x, sizes(x)[1], weight, bias, eps)


def _local_response_norm(g: Any, x: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    needs(count(x, range(x.rank)), "something to average")
    needs(x.dtype.is_float, _TRUNCATED)
    dims = sizes(x)
    rows = g.reshape(x * x, (dims[0], 1, dims[1], math.prod(dims[2:])))
    mean = g.mean_pool(rows, (size, 1), 1, ((size // 2, (size - 1) // 2), (0, 0)))
    return x / g.pow(g.reshape(mean, dims) * alpha + k, beta)


def _normalize(g: Any, x: Any, p: float, dim: Any, eps: float) -> Any:
    from tests.peers.reductions import vector_norm

    return x / g.maximum(vector_norm(g, x, p, dim, True), eps)


def _distance(g: Any, x: Any, y: Any, p: float, eps: float, keepdim: bool) -> Any:
    needs(x.dtype.name != "u8", WRAPPED)
    return g.pairwise_distance(x, y, p, eps, keepdim)


def _resize(
    g: Any,
    x: Any,
    size: Any,
    scale: Any,
    mode: str,
    align_corners: bool,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    rank = x.rank - 2
    needs(not antialias and x.dtype.is_float, "floats, without a filter")
    if size is None:
        needs(
            not isinstance(scale, float) or recompute_scale_factor or float(scale).is_integer(),
            "positions by the sizes",
        )
        factors = (scale,) * rank if isinstance(scale, (int, float)) else tuple(scale)
        needs(
            all(float(d * f).is_integer() for d, f in zip(sizes(x)[2:], factors, strict=True)), "positions by the sizes"
        )
        size = [int(d * f) for d, f in zip(sizes(x)[2:], factors, strict=True)]
    return g.resize(x, size=_each(size, rank), mode=mode, align_corners=align_corners)


def _attention(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    needs(dropout_p == 0, "PyTorch's random numbers are its own")
    needs(q.rank == 4 and k.rank == 4, "four axes")
    needs(not is_causal or sizes(q)[2] == sizes(k)[2], "causal counts from the end")
    kind = "causal" if is_causal else "none"
    if attn_mask is not None:
        kind = "custom" if attn_mask.dtype.is_bool else "bias"
        attn_mask = g.reshape(attn_mask, (1,) * (4 - attn_mask.rank) + sizes(attn_mask))
    return g.attention(
        q, k, v, attn_mask, num_heads=sizes(q)[1], head_dim=sizes(q)[3], mask_kind=kind, score_scale=scale
    )


def _unfold(g: Any, x: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    kernel, dilation, padding, stride = (_each(v, 2) for v in (kernel_size, dilation, padding, stride))
    batched = x if x.rank == 4 else g.reshape(x, (1, *sizes(x)))
    wide = g.pad(batched, [(0, 0), (0, 0), *((p, p) for p in padding)])
    n, c, *spatial = sizes(wide)
    positions = []
    for size, k, d, s in zip(spatial, kernel, dilation, stride, strict=True):
        number = (size - d * (k - 1) - 1) // s + 1
        positions.append((np.arange(k) * d)[:, None] + np.arange(number) * s)
    rows, columns = positions
    places = rows[:, None, :, None] * spatial[1] + columns[None, :, None, :]
    made = g.gather(g.reshape(wide, (n, c, spatial[0] * spatial[1])), g.constant(places.ravel()), axis=2)
    made = g.reshape(made, (n, c * kernel[0] * kernel[1], rows.shape[1] * columns.shape[1]))
    return made if x.rank == 4 else g.reshape(made, sizes(made)[1:])


def _dropout(g: Any, x: Any, p: float, training: bool) -> Any:
    needs(not training or p == 0, "PyTorch's random numbers are its own")
    return x
