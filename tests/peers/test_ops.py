"""PyTorch's functions and layers, compared with the evaluators. In `tests/ops` each has another reference too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from rlx.ir.dtype import dtype
from tests.ops import test_attention as attention
from tests.ops import test_blocks as blocks
from tests.ops import test_convolution_transpose as convolution_transpose
from tests.ops import test_fused as fused
from tests.ops import test_image as image
from tests.ops import test_image_blocks as image_blocks
from tests.ops import test_norm as norm
from tests.ops import test_padding as padding
from tests.ops import test_quant as quant
from tests.ops import test_recurrent as recurrent
from tests.ops.references import FLOATS, agree, random, run, same_bits, special_array

NAN, INF = np.nan, np.inf

# --- attention --------------------------------------------------------------------------------------


def test_attention_in_torch() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (attention._split(x) for x in attention._operands("f32", kv_heads=2, value_dim=3))
    mask = random("f32", (attention.B, 1, attention.S, attention.T), seed=9)
    expected = attend(*map(torch.tensor, (q, k, v)), attn_mask=torch.tensor(mask), enable_gqa=True).numpy()
    got = run("attention", q, k, v, mask, num_heads=attention.H, head_dim=attention.D, mask_kind="bias")
    agree(got, expected, noise=np.array(attention._F32))


# --- blocks -----------------------------------------------------------------------------------------


def test_transformer_encoder_block_is_torchs_encoder_layer() -> None:
    e, f = 8, 12
    weights = blocks._encoder_weights(e, f)
    x, wq, bq, wk, bk, wv, bv, wo, bo, s1, b1, up, bup, down, bdown, s2, b2 = weights
    layer = torch.nn.TransformerEncoderLayer(e, 2, f, 0.0, torch.nn.functional.gelu, 1e-5, batch_first=True)
    state = {
        "self_attn.in_proj_weight": np.concatenate([wq, wk, wv], 1).T,
        "self_attn.in_proj_bias": np.concatenate([bq, bk, bv]),
        "self_attn.out_proj.weight": wo.T,
        "self_attn.out_proj.bias": bo,
        "linear1.weight": up.T,
        "linear1.bias": bup,
        "linear2.weight": down.T,
        "linear2.bias": bdown,
        "norm1.weight": s1,
        "norm1.bias": b1,
        "norm2.weight": s2,
        "norm2.bias": b2,
    }
    layer.load_state_dict({k: torch.tensor(np.ascontiguousarray(v)) for k, v in state.items()})
    with torch.no_grad():
        expected = layer.train()(torch.tensor(x)).numpy()  # training mode avoids the fused path; dropout is 0
    got = run("transformer_encoder_block", *weights, None, num_heads=2, eps=1e-5, mask_kind="none")
    agree(got, expected, noise=blocks._ROOM)


# --- convolution transpose --------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in convolution_transpose._CASES if c[3][::2] == c[3][1::2]], ids=str)
def test_conv_transpose_in_torch(case: Any) -> None:
    x_shape, w_shape, stride, padding, extra, dilation, groups = case
    x, w = random("f64", x_shape, seed=1), random("f64", w_shape, seed=2)
    function = getattr(torch.nn.functional, f"conv_transpose{len(stride)}d")
    edges, rest = padding[::2], (extra, groups, dilation)
    expected = function(torch.tensor(x), torch.tensor(w), None, stride, edges, *rest).numpy()
    got = run(
        "conv_transpose", x, w, stride=stride, padding=padding, output_padding=extra, dilation=dilation, groups=groups
    )
    agree(got, expected, noise=100 * np.finfo(np.float64).eps)


# --- cumulative -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f32", "f64", "i8", "i32", "i64", "u8"])
def test_cummax_as_pytorch_has_it(name: str) -> None:
    x = random(name, (5, 30), low=-100, high=100)
    if name in FLOATS:
        x[1, 7], x[2, 3], x[3, 0], x[4] = NAN, INF, -INF, -INF
    got = run("cummax", x, axis=1)
    assert np.array_equal(got, torch.cummax(torch.from_numpy(x), 1).values.numpy(), equal_nan=name in FLOATS)
    assert run("cummax", x[:, :0], axis=1).shape == (5, 0)


# --- fused ------------------------------------------------------------------------------------------


def test_fused_transformer_layer_is_torchs_encoder_layer() -> None:
    weights, biases = fused._layer_weights("f32", width=8, e=8)
    x, qkv_w, out_w, s1, b1, up, down, s2, b2 = weights
    layer = torch.nn.TransformerEncoderLayer(
        8, fused.HEADS, fused.F, 0.0, torch.nn.functional.gelu, 1e-12, batch_first=True
    )
    names = ("self_attn.in_proj", "self_attn.out_proj", "linear1", "linear2")
    state = {f"{n}.weight": w.T for n, w in zip(names, (qkv_w, out_w, up, down), strict=True)}
    state |= {f"{n}.bias" if "in_proj" not in n else f"{n}_bias": v for n, v in zip(names, biases, strict=True)}
    state["self_attn.in_proj_weight"] = state.pop("self_attn.in_proj.weight")
    state |= {"norm1.weight": s1, "norm1.bias": b1, "norm2.weight": s2, "norm2.bias": b2}
    layer.load_state_dict({k: torch.tensor(np.ascontiguousarray(v)) for k, v in state.items()})
    keep = np.arange(fused.S)[None, :] < np.array([[3], [5]])
    with torch.no_grad():  # training mode avoids the fused path; dropout is 0
        expected = layer.train()(torch.tensor(x), src_key_padding_mask=torch.tensor(~keep)).numpy()
    got = run("fused_transformer_layer", *weights, keep, *biases, **fused._SIZES)
    agree(got, expected, noise=np.array(40 * np.finfo(np.float32).eps))


# --- image ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "align"), image._MODES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_resize_in_torch(rank: int, mode: str, align: bool) -> None:
    names = {"nearest": "nearest", "bilinear": ("linear", "bilinear", "trilinear")[rank - 1]}
    for old, new in image._SIZES:
        x = random("f64", (1, 2, *(old, 4, 3)[:rank]))
        size = (new, 6, 5)[:rank]
        options = {"align_corners": align} if mode == "bilinear" else {}
        expected = torch.nn.functional.interpolate(torch.tensor(x), size, mode=names[mode], **options).numpy()
        agree(run("resize", x, size=size, mode=mode, align_corners=align), expected, noise=100 * image._EPS)


# --- image blocks -----------------------------------------------------------------------------------


def test_unet_residual_block_in_torch() -> None:
    functional = torch.nn.functional
    operands = image_blocks._operands(4, 6, embedded=True, skip="wb")
    p = {n: torch.tensor(a, dtype=torch.float64) for n, a in operands.items()}
    h = functional.silu(functional.group_norm(p["x"], 2, p["norm1_scale"], p["norm1_bias"]))
    h = functional.conv2d(h, p["conv1_w"], p["conv1_b"], padding=1)
    embedded = functional.linear(functional.silu(p["embedding"]), p["embedding_w"].T, p["embedding_b"])
    h = functional.group_norm(h + embedded[:, :, None, None], 2, p["norm2_scale"], p["norm2_bias"])
    h = functional.conv2d(functional.silu(h), p["conv2_w"], p["conv2_b"], padding=1)
    expected = functional.conv2d(p["x"], p["skip_w"], p["skip_b"]) + h
    got = run("unet_residual_block", *operands.values(), num_groups=2, eps=1e-5)
    agree(got, expected.numpy().astype(np.float32), noise=image_blocks._ROOM)


# --- loss -------------------------------------------------------------------------------------------


def _in_torch(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """Evaluate a PyTorch function in f64, with its result in the dtype of the first array."""
    tensors = [torch.from_numpy(a.astype(np.int64 if a.dtype.kind in "iu" else np.float64)) for a in arrays]
    with np.errstate(over="ignore"):
        return function(torch.nn.functional, *tensors).numpy().astype(arrays[0].dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_losses_as_pytorch_has_them(name: str) -> None:
    logits, labels = random(name, (6, 11), low=-30, high=30), np.random.default_rng(0).integers(0, 11, 6)
    got = run("softmax_cross_entropy_with_logits", logits, labels)
    agree(got, _in_torch(lambda f, x, t: f.cross_entropy(x, t, reduction="none"), logits, labels), factor=0.5)
    x, y = random(name, (6, 15), seed=1), random(name, (6, 15), seed=2)
    for reduction in ("none", "mean", "sum"):
        got = run("mse_loss", x, y, reduction=reduction)
        agree(got, _in_torch(lambda f, a, b, r=reduction: f.mse_loss(a, b, reduction=r), x, y), factor=0.5)
        got = run("huber_loss", x, y, delta=0.25, reduction=reduction)
        agree(
            got, _in_torch(lambda f, a, b, r=reduction: f.huber_loss(a, b, reduction=r, delta=0.25), x, y), factor=0.5
        )


# --- norm -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_norms_in_torch(name: str) -> None:
    functional = torch.nn.functional
    x, (scale, bias) = random(name, (3, 8, 5)), norm._weights(name, 8)
    last, image = torch.tensor(np.moveaxis(x, 1, 2)), torch.tensor(x)
    weight, shift = torch.tensor(scale), torch.tensor(bias)
    moved = np.ascontiguousarray(np.moveaxis(x, 1, 2))
    room = norm._room(name, moved, scale, scale, bias)
    layer = functional.layer_norm(last, (8,), weight, shift, 1e-5).numpy()
    agree(run("layer_norm", moved, scale, bias, axis=2, eps=1e-5), layer, noise=room)
    rms = functional.rms_norm(last, (8,), weight, 1e-5).numpy()
    agree(run("rms_norm", moved, scale, None, axis=2, eps=1e-5), rms, noise=room)
    group = functional.group_norm(image, 4, weight, shift, 1e-5).numpy()
    agree(run("group_norm", x, scale, bias, num_groups=4, eps=1e-5), group, noise=np.moveaxis(room, 2, 1))
    mean, variance = random(name, (8,), seed=4), random(name, (8,), low=0.1, high=3, seed=5)
    statistics = torch.tensor(mean), torch.tensor(variance)
    batch = functional.batch_norm(image, *statistics, weight, shift, eps=1e-5).numpy()
    room = norm._room(name, x, 4 * batch, *(w[:, None] for w in (mean * scale, bias)))
    agree(run("batch_norm_inference", x, scale, bias, mean, variance, eps=1e-5), batch, noise=room)


# --- order ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
def test_order_as_pytorch_has_it(descending: bool) -> None:
    x = np.array([[1, NAN, INF, -INF, NAN, -0.0, 0.0, 1, -0.0]], np.float32)
    values, indices = torch.sort(torch.from_numpy(x), dim=1, descending=descending, stable=True)
    assert run("argsort", x, axis=1, descending=descending).tolist() == indices.tolist()
    got = run("sort", x, axis=1, descending=descending)
    assert got.tobytes() == values.numpy().tobytes()


# --- padding ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_as_pytorch_has_it(mode: str) -> None:
    x = special_array("f32", (2, 3, 5, 4))
    options: Any = {"value": -7.5} if mode == "constant" else {}
    reference = torch.nn.functional.pad(torch.from_numpy(x), (3, 1, 2, 4), mode=mode, **options)
    got = padding._padded(x, [(0, 0), (0, 0), (2, 4), (3, 1)], mode=mode, **options)
    same_bits(got, reference.numpy())


# --- pool -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"), [((7, 8), 3, 2, 1), ((9,), 4, 4, 2), ((4, 5, 6), 2, 1, 0)]
)
def test_pool_in_torch(size: tuple[int, ...], kernel: int, stride: int, padding: int) -> None:
    functional, count = torch.nn.functional, len(size)
    x = random("f64", (2, 3, *size))
    every = {"kernel": (kernel,) * count, "stride": (stride,) * count, "padding": (padding,) * (2 * count)}
    largest = getattr(functional, f"max_pool{count}d")(torch.tensor(x), kernel, stride, padding)
    agree(run("pool", x, kind="max", **every, count_include_pad=True), largest.numpy(), factor=0)
    for include in (True, False):
        function = getattr(functional, f"avg_pool{count}d")
        mean = function(torch.tensor(x), kernel, stride, padding, count_include_pad=include)
        agree(run("pool", x, kind="mean", **every, count_include_pad=include), mean.numpy())


# --- quant ------------------------------------------------------------------------------------------


def _away_from_ties(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return whether multiplying by the inverse scale, as PyTorch does, rounds to the same integer as dividing."""
    quotient = x.astype(np.float64) / scale
    return np.abs(quotient - np.floor(quotient) - 0.5) > 1e-4


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_there_and_back_in_torch(axis: int | None) -> None:
    """The composition equals PyTorch's fake quantisation with zero points."""
    x = random("f32", (40, 30), low=-30, high=30)
    scale = random("f32", () if axis is None else (x.shape[axis],), low=0.05, high=0.3)
    safe = _away_from_ties(x, scale if axis is None else np.expand_dims(scale, 1 - axis))
    assert safe.mean() > 0.99
    for kind in quant.BYTES:
        to, zero_point = dtype(kind), random("i32", scale.shape, low=0, high=40)
        operands = torch.tensor(x), torch.tensor(scale), torch.tensor(zero_point)
        if axis is None:
            reference = torch.fake_quantize_per_tensor_affine(*operands, int(to.min), int(to.max))
        else:
            reference = torch.fake_quantize_per_channel_affine(*operands, axis, int(to.min), int(to.max))
        q = run("quantize", x, scale, zero_point, axis=axis, dtype=to)
        back = run("dequantize", q, scale, zero_point, axis=axis)
        np.testing.assert_allclose(back[safe], reference.numpy()[safe], rtol=3e-7)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_fake_quantize_in_torch(axis: int | None) -> None:
    x = random("f32", (30, 20), low=-30, high=30)
    scale = random("f32", () if axis is None else (x.shape[axis],), low=0.05, high=0.3)
    zeros = torch.zeros(scale.shape, dtype=torch.int32)
    operands = torch.tensor(x), torch.tensor(scale), zeros
    if axis is None:
        reference = torch.fake_quantize_per_tensor_affine(*operands, -127, 127)
    else:
        reference = torch.fake_quantize_per_channel_affine(*operands, axis, -127, 127)
    safe = _away_from_ties(x, scale if axis is None else np.expand_dims(scale, 1 - axis))
    got = run("fake_quantize_lsq", x, scale, bits=8, axis=axis)
    np.testing.assert_allclose(got[safe], reference.numpy()[safe], rtol=3e-7)
    fixed, used = run("fake_quantize", x, scale, bits=8, axis=axis, scale_mode="fixed")
    quant._same(fixed, got)
    quant._same(used, scale)
    assert safe.mean() > 0.99


# --- recurrent --------------------------------------------------------------------------------------


def _both_directions(op: str, operands: Sequence[np.ndarray]) -> Any:
    return run(op, *operands), run(op, *operands, reverse=True)


def _load(torch: Any, layer: Any, weights: dict[str, np.ndarray]) -> None:
    """Load the weights of the forward direction, and the same ones for the backward direction."""
    both = {n + suffix: w for n, w in weights.items() for suffix in ("", "_reverse")}
    layer.load_state_dict({n: torch.tensor(np.ascontiguousarray(w)) for n, w in both.items()})


def test_lstm_is_torchs() -> None:
    operands = recurrent._lstm_operands("f32", 2, 6, 3, 4)
    x, h, c, w_input, w_hidden, bias = operands
    layer = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    weights = {"weight_ih_l0": w_input.T, "weight_hh_l0": w_hidden.T, "bias_ih_l0": bias, "bias_hh_l0": 0 * bias}
    _load(torch, layer, weights)
    with torch.no_grad():
        states = tuple(torch.tensor(np.stack([s, s])) for s in (h, c))
        result, (last_h, last_c) = layer(torch.tensor(x), states)
    for got, direction in zip(_both_directions("lstm", operands), range(2), strict=True):
        own = result.numpy()[..., 4 * direction : 4 * direction + 4]
        recurrent._agree(got, [own, last_h.numpy()[direction], last_c.numpy()[direction]])


def test_gru_is_torchs() -> None:
    operands = recurrent._gru_operands("f32", 2, 6, 3, 4)
    x, h, w_input, w_hidden, bias_input, bias_hidden = operands
    layer = torch.nn.GRU(3, 4, batch_first=True, bidirectional=True)
    weights = {"weight_ih_l0": w_input.T, "weight_hh_l0": w_hidden.T}
    _load(torch, layer, weights | {"bias_ih_l0": bias_input, "bias_hh_l0": bias_hidden})
    with torch.no_grad():
        result, last = layer(torch.tensor(x), torch.tensor(np.stack([h, h])))
    for got, direction in zip(_both_directions("gru", operands), range(2), strict=True):
        recurrent._agree(got, [result.numpy()[..., 4 * direction : 4 * direction + 4], last.numpy()[direction]])


# --- scatter ----------------------------------------------------------------------------------------


def test_scatter_add_as_pytorch_has_it() -> None:
    updates, indices = random("f64", (4, 6, 3)), np.random.default_rng(0).integers(0, 7, (4, 6))
    flat = torch.zeros(7, 3, dtype=torch.float64)
    flat.index_add_(0, torch.from_numpy(indices.reshape(-1)), torch.from_numpy(updates.reshape(-1, 3)))
    agree(run("scatter_add", updates, indices, size=(7,)), flat.numpy(), noise=np.full((7, 3), 1e-15))
