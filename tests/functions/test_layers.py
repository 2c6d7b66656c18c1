"""Layers with PyTorch's names, against formulas; also their derivatives, batches and compiled code."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx import ops
from tests.drawing import drawn
from tests.functions.test_spectral import built
from tests.ops.references import random

X = random("f32", (2, 4, 5, 6))
W = random("f32", (3, 4, 2, 3))
BIAS = np.array([1, -2, 0.5], np.float32)
LABELS = np.array([[0, 3, -1, 2, 5, 1], [1, 1, 2, 0, 3, 4]], np.int32)
GRID = np.random.default_rng(5).uniform(-1.4, 1.4, (2, 3, 2, 2)).astype(np.float32)


def convolved(x: Any, w: Any, stride: Any, padding: Any, **options: Any) -> np.ndarray:
    """Compute JAX's convolution."""
    return np.asarray(
        jax.lax.conv_general_dilated(jax.numpy.asarray(x), jax.numpy.asarray(w), stride, padding, **options)
    )


def normal(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    x = x.astype(np.float64)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def test_convolutions_with_bias() -> None:
    def calls(g: Any, x: Any, w: Any) -> list[Any]:
        return [
            g.conv2d(x, w, BIAS, padding="SAME"),
            g.conv2d(x, w, BIAS, 2, "valid"),
            g.conv(x, w, bias=BIAS),
            g.conv2d(x[0], w, BIAS),
            g.conv_transpose2d(x, g.swapaxes(w, 0, 1), BIAS, 2, output_padding=1),
        ]

    got = built(calls, X, W)
    spread = BIAS.reshape(3, 1, 1)
    same = convolved(X, W, (1, 1), "SAME") + spread
    np.testing.assert_allclose(got[0], same, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(got[1], convolved(X, W, (2, 2), "VALID") + spread, rtol=2e-5, atol=1e-5)
    np.testing.assert_array_equal(got[2][0], got[3])
    padded = convolved(
        X, W[:, :, ::-1, ::-1], (1, 1), [(1, 2), (2, 3)], lhs_dilation=(2, 2)
    )  # fmt: skip
    np.testing.assert_allclose(got[4], padded + spread, rtol=2e-5, atol=1e-5)
    line = X[:, :, :, 0]
    (one,) = built(lambda g, x, w: g.conv1d(x, w, groups=2), line, W[:2, :2, 0])
    expected = convolved(line, W[:2, :2, 0], (1,), "VALID", feature_group_count=2)
    np.testing.assert_allclose(one, expected, rtol=2e-5, atol=1e-5)


def test_norms_without_weights_and_over_several_axes() -> None:
    scale, bias = random("f32", (5, 6)), random("f32", (5, 6))
    run = [BIAS[0] * np.ones(4, np.float32), np.array([1, 2, 0.5, 3], np.float32)]
    found = built(
        lambda g, x: [
            g.layer_norm(x),
            g.layer_norm(x, axis=(-2, -1)),
            g.layer_norm(x, scale, bias, axis=(2, 3)),
            g.layer_norm(x, axis=(1, 3)),
            g.rms_norm(x, axis=(1, 2), eps=1e-3),
            g.group_norm(x, num_groups=2),
            g.instance_norm(x, run[1]),
            g.batch_norm(x, training=True),
            g.batch_norm(x, *run, scale=run[1], bias=run[0]),
            g.normalize(x),
            g.normalize(x, ord=1, axis=-1),
            g.local_response_norm(x, 3, alpha=0.1),
        ],
        X,
    )
    wide = X.astype(np.float64)
    channels = [v.astype(np.float64).reshape(4, 1, 1) for v in run]
    squares = np.pad(wide**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    means = sum(squares[:, i : i + 4] for i in range(3)) / 3
    expected = [
        normal(X, -1),
        normal(X, (2, 3)),
        normal(X, (2, 3)) * scale + bias,
        normal(X, (1, 3)),
        wide / np.sqrt((wide**2).mean((1, 2), keepdims=True) + 1e-3),
        normal(X.reshape(2, 2, 60), -1).reshape(X.shape),
        normal(X, (2, 3)) * channels[1],
        normal(X, (0, 2, 3)),
        (wide - channels[0]) / np.sqrt(channels[1] + 1e-5) * channels[1] + channels[0],
        wide / np.linalg.norm(wide, axis=1, keepdims=True),
        wide / np.abs(wide).sum(-1, keepdims=True),
        wide / (1 + 0.1 * means) ** 0.75,
    ]
    for number, (got, wanted) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-6, err_msg=f"case {number}")


@pytest.mark.parametrize("eps", [-0.5, -1e-12, float("nan"), float("inf")])
def test_the_eps_of_every_norm_is_a_number_from_0_on(eps: float) -> None:
    ones = np.ones(4, np.float32)
    calls: dict[str, Any] = {
        "layer_norm": lambda g, x: g.layer_norm(x, eps=eps),
        "layer_norm over axes": lambda g, x: g.layer_norm(x, axis=(1, 3), eps=eps),
        "rms_norm": lambda g, x: g.rms_norm(x, eps=eps),
        "rms_norm over axes": lambda g, x: g.rms_norm(x, axis=(1, 2), eps=eps),
        "group_norm": lambda g, x: g.group_norm(x, num_groups=2, eps=eps),
        "instance_norm": lambda g, x: g.instance_norm(x, eps=eps),
        "batch_norm": lambda g, x: g.batch_norm(x, ones, ones, eps=eps),
        "batch_norm of other dtypes": lambda g, x: g.batch_norm(x, ones.astype(np.float64), ones, eps=eps),
        "batch_norm in training": lambda g, x: g.batch_norm(x, training=True, eps=eps),
        "normalize": lambda g, x: g.normalize(x, eps=eps),
        "normalize of order 1": lambda g, x: g.normalize(x, 1, eps=eps),
        "cosine_similarity": lambda g, x: g.cosine_similarity(x, x, eps=eps),
    }
    for name, call in calls.items():
        with pytest.raises(rlx.Error, match="eps"):
            built(call, X)
            pytest.fail(f"{name} accepts {eps}")


@pytest.mark.parametrize(
    "array", [X, np.array([[3, np.nan, -np.inf, 3, -0.0, 0.0]], np.float32), LABELS.astype(np.int8)]
)
def test_the_smallest_and_other_axes(array: np.ndarray) -> None:
    for axis in range(-1, array.ndim - 1):
        for largest in (True, False):
            k = min(2, array.shape[axis])
            values, places = built(lambda g, x, a=axis, n=k, up=largest: g.topk(x, n, axis=a, largest=up), array)
            moved = np.moveaxis(array, axis, -1).astype(np.float64)
            key = np.where(np.isnan(moved), np.inf, moved)
            order = np.argsort(-key if largest else key, -1, kind="stable")[..., :k]
            np.testing.assert_array_equal(np.moveaxis(places, axis, -1), order)
            np.testing.assert_array_equal(np.moveaxis(values, axis, -1), np.take_along_axis(moved, order, -1))


def test_attention_by_its_long_name() -> None:
    q, k, v = random("f32", (2, 2, 3, 4)), random("f32", (2, 2, 5, 4)), random("f32", (2, 2, 5, 4))
    seen, added = np.tri(3, 5, dtype=bool), random("f32", (3, 5))

    def expected(mask: Any, scale: float = 0.5) -> Any:
        scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * scale + mask
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ v

    found = built(
        lambda g, *qkv: [
            g.scaled_dot_product_attention(*qkv),
            g.scaled_dot_product_attention(*qkv, is_causal=True, scale=1.0),
            g.scaled_dot_product_attention(*qkv, attn_mask=seen),
            g.scaled_dot_product_attention(*qkv, added),
        ],
        q, k, v,
    )  # fmt: skip
    hidden = np.where(seen, 0, -np.inf)
    for got, wanted in zip(found, [expected(0), expected(hidden, 1.0), expected(hidden), expected(added)], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    (single,) = built(lambda g, *qkv: g.scaled_dot_product_attention(*qkv), q[:, 0], k[:, 0], v[:, 0])
    np.testing.assert_allclose(single, expected(0)[:, 0], rtol=1e-5, atol=1e-6)


def test_dropout() -> None:
    x = np.ones((100, 100), np.float32)
    some, other, none, all_ = built(
        lambda g, t: [g.dropout(t, 0.3, 1), g.dropout(t, 0.3, 2), g.dropout(t, 0.3, training=False), g.dropout(t, 1)], x
    )
    assert set(np.unique(some)) == {0, np.float32(1 / 0.7)} and abs(some.mean() - 1) < 0.03
    assert (some != other).any() and (none == 1).all() and (all_ == 0).all()


# Every composed function, of one tensor: for derivatives, batches and compilers.
CALLS: dict[str, Any] = {
    "max_pool": lambda g, x: g.max_pool2d(x, 2, 2, 1, dilation=2, ceil_mode=True),
    "avg_pool": lambda g, x: g.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_pool dilated": lambda g, x: g.avg_pool2d(x, 2, 1, 1, count_include_pad=False, dilation=2),
    "lp_pool": lambda g, x: g.lp_pool2d(g.abs(x) + 0.1, 3, 2),
    "adaptive_avg_pool": lambda g, x: g.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive_max_pool": lambda g, x: g.adaptive_max_pool2d(x, (3, 4)),
    "bicubic": lambda g, x: g.resize(x, (7, 3), mode="bicubic"),
    "antialias": lambda g, x: g.resize(x, (3, 8), mode="bilinear", antialias=True),
    "nearest_exact": lambda g, x: g.resize(x, (7, 4), mode="nearest_exact"),
    "grid_sample": lambda g, x: g.grid_sample(x, g.cast(g.constant(GRID), x.dtype), padding_mode="reflection"),
    "grid_sample of a grid": lambda g, x: g.grid_sample(x, g.tanh(g.narrow(x, 3, 0, 2)), "bicubic"),
    "affine_grid": lambda g, x: g.affine_grid(x[:, :2, 0, :3], (2, 1, 3, 4)),
    "pixels": lambda g, x: g.pixel_unshuffle(g.pixel_shuffle(x, 2), 2),
    "fold": lambda g, x: g.fold(g.unfold(x, (2, 3), padding=1, stride=2), (5, 6), (2, 3), padding=1, stride=2),
    "cross_entropy": lambda g, x: g.cross_entropy(x[:, :, 0], LABELS, label_smoothing=0.2, weight=np.arange(1.0, 5.0)),
    "nll_loss": lambda g, x: g.nll_loss(x[:, :, 0], LABELS, reduction="none"),
    "binary_cross_entropy": lambda g, x: g.binary_cross_entropy(g.sigmoid(x), x * x),
    "pos_weight": lambda g, x: g.binary_cross_entropy_with_logits(x, x * 0.5, pos_weight=3.0),
    "kl_div": lambda g, x: g.kl_div(x, g.exp(x * 0.5), "batchmean"),
    "cosine_similarity": lambda g, x: g.cosine_similarity(x, x * x),
    "triplet_margin_loss": lambda g, x: g.triplet_margin_loss(x, x * x, x + 1.0),
    "poisson_nll_loss": lambda g, x: g.poisson_nll_loss(x, x * x, full=True),
    "gaussian_nll_loss": lambda g, x: g.gaussian_nll_loss(x, x * x, g.exp(x)),
    "topk": lambda g, x: g.topk(x, 2, axis=1, largest=False)[0],
    "layer_norm": lambda g, x: g.layer_norm(x, axis=(1, 3)),
    "rms_norm": lambda g, x: g.rms_norm(x, axis=(2, 3)),
    "batch_norm": lambda g, x: g.batch_norm(x, training=True),
    "normalize": lambda g, x: g.normalize(x),
    "local_response_norm": lambda g, x: g.local_response_norm(x, 3, alpha=0.5),
    "conv2d": lambda g, x: g.conv2d(x, x[:, :, :2, :2], g.sum(x, (1, 2, 3))),
    "softmin": lambda g, x: g.softmin(x, 1),
}  # fmt: skip


def graph_of(names: Any, x: np.ndarray) -> rlx.Graph:
    g: Any = rlx.Graph("names")
    t = g.input("x", x.shape, x.dtype)
    g.set_outputs([CALLS[name](g, t) for name in names])
    return g


@drawn("name", list(CALLS), of_each=5)
def test_derivatives_are_slopes(name: str) -> None:
    x = (
        np.random.default_rng(4).permutation(240).reshape(X.shape) / 70 - 1.7037
    )  # no two are close to each other, and none is close to 0 or 1: no kinks
    g = graph_of([name], x)
    direction = np.random.default_rng(6).standard_normal(x.shape)
    ahead, behind = (rlx.evaluate(g, {"x": x + s * 1e-6 * direction})[0] for s in (1, -1))
    moved = rlx.evaluate(rlx.jvp(g, ["x"]), {"x": x, "tangent_x": direction})[-1]
    np.testing.assert_allclose(moved, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-7)
    dy = np.random.default_rng(7).standard_normal(moved.shape)
    pulled = rlx.evaluate(rlx.vjp(g, "x"), {"x": x, "cotangent_output0": dy})[-1]
    np.testing.assert_allclose((pulled * direction).sum(), (moved * dy).sum(), rtol=1e-9)


@drawn("name", list(CALLS), of_each=5)
def test_batches_are_loops(name: str) -> None:
    several = random("f64", (3, *X.shape))
    g = graph_of([name], several[0])
    got = rlx.evaluate(rlx.vmap(g, {"x": 0}, 3), {"x": several})[0]
    np.testing.assert_allclose(got, [rlx.evaluate(g, {"x": x})[0] for x in several], rtol=1e-9, atol=1e-12)


@drawn("share", range(3))
@drawn("device", ["cpu", "xla"])
def test_compilers_agree(device: str, share: int) -> None:
    names = list(CALLS)[share::3]
    g = graph_of(names, X)
    found = rlx.Session(device).compile(g, cache=False).run({"x": X})
    for name, got, expected in zip(names, found, rlx.evaluate(g, {"x": X}), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.layer_norm(x, (5, 6)), "axis=.-2, -1."),
        (lambda g, x: g.layer_norm(x, x, axis=(2, 3)), "must have the shape of axes"),
        (lambda g, x: g.layer_norm(x, weight=x), "did you mean 'scale'"),
        (lambda g, x: g.group_norm(x, 2), "num_groups=4"),
        (lambda g, x: g.group_norm(x), "num_groups is missing"),
        (lambda g, x: g.batch_norm(x), "training=True"),
        (lambda g, x: g.batch_norm(x, running_mean=x), "did you mean 'mean'"),
        (lambda g, x: g.conv(x, W, bias=W), "one for each channel"),
        (lambda g, x: g.conv3d(x[0, 0], W), "one image"),
        (lambda g, x: g.topk(x, 9, largest=False), "does not fit"),
        (lambda g, x: g.dropout(x, 2), "from 0 to 1"),
        (lambda g, x: g.dropout(x, p=0.1), "did you mean 'rate'"),
        (lambda g, x: g.scaled_dot_product_attention(x, x, x, x, is_causal=True), "only as one mask"),
    ],
)  # fmt: skip
def test_mistakes_name_the_call(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        built(call, X)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("hardtanh", "hard_tanh"), ("im2col", "unfold"), ("masked_fill", "where.mask"), ("avg_pol", "avg_pool")],
)
def test_unknown_names_are_answered_with_ours(name: str, ours: str) -> None:
    for place in (rlx.Graph(), ops):
        with pytest.raises(AttributeError, match=ours):
            getattr(place, name)
    assert not hasattr(rlx.Graph(), "_nothing")


def test_batch_norm_with_statistics_is_one_op() -> None:
    g: Any = rlx.Graph("bn")
    x, running = g.input("x", (2, 4, 5)), [g.param(n, (4,)) for n in ("mean", "variance", "scale", "bias")]
    g.set_outputs([g.batch_norm(x, *running)])
    assert str(g).count("rlx.batch_norm_inference") == 1 and "rlx.rsqrt" not in str(g)


def test_batch_norm_with_statistics_of_another_dtype() -> None:
    x, mean, variance = X.astype(np.float16), np.arange(4.0), np.arange(1.0, 5.0)
    got = built(lambda g, x: g.batch_norm(x, g.constant(mean, "f32"), g.constant(variance, "f32")), x)[0]
    tail = (4, 1, 1)
    expected = (x.astype(np.float64) - mean.reshape(tail)) / np.sqrt(variance.reshape(tail) + 1e-5)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


def test_norms_over_the_last_axes_move_nothing() -> None:
    g: Any = rlx.Graph("last")
    x = g.input("x", (2, 4, 5))
    g.set_outputs([g.layer_norm(x, axis=(1, 2)), g.layer_norm(x, axis=(0, 1))])
    assert str(g).count("rlx.transpose") == 2  # both for the second norm
