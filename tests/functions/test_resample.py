"""Resampled and sampled images, against JAX, ONNX's reference implementation, and formulas in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import rlx
from tests.functions.test_spectral import built
from tests.ops.references import random

X = random("f32", (2, 3, 7, 6))
GRID = np.random.default_rng(5).uniform(-1.6, 1.6, (2, 4, 5, 2)).astype(np.float32)


def judged(op: str, inputs: list[Any], **attributes: Any) -> np.ndarray:
    """Return the result of ONNX's reference implementation."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], **attributes)
    kinds = {np.dtype(np.float32): 1, np.dtype(np.int64): 7}
    given = [(n, x) for n, x in zip(names, inputs, strict=True) if n]
    declared = [helper.make_tensor_value_info(n, kinds[x.dtype], x.shape) for n, x in given]
    graph = helper.make_graph([node], "judge", declared, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    results: Any = ReferenceEvaluator(model).run(None, dict(given))
    return np.asarray(results[0])


@pytest.mark.parametrize("size", [(9, 13), (3, 2), (7, 11), (1, 1)])
def test_sizes_are_those_of_jax(size: tuple[int, int]) -> None:
    def calls(g: Any, x: Any) -> list[Any]:
        return [
            g.resize(x, size, mode="bilinear", antialias=True),
            g.resize(x, size, mode="bicubic", antialias=True),
            g.interpolate(x, size, mode="nearest-exact"),
        ]

    for got, method in zip(built(calls, X), ("bilinear", "bicubic", "nearest"), strict=True):
        expected = jax.image.resize(X, (2, 3, *size), method)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6, err_msg=method)


@pytest.mark.parametrize("align_corners", [False, True])
def test_cubic_is_that_of_onnx(align_corners: bool) -> None:
    for size in ((9, 13), (3, 2), (7, 11)):
        (got,) = built(lambda g, x, s=size: g.resize(x, s, mode="bicubic", align_corners=align_corners), X)
        how = "align_corners" if align_corners else "half_pixel"
        sizes = np.asarray((2, 3, *size), np.int64)
        expected = judged(
            "Resize", [X, None, None, sizes], mode="cubic", coordinate_transformation_mode=how, cubic_coeff_a=-0.75
        )
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_area_and_symbols() -> None:
    (got,) = built(lambda g, x: g.interpolate(x, (3, 4), mode="area"), X)
    rows, columns = ([(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in ((7, 3), (6, 4)))
    expected = [[X[:, :, a:b, c:d].mean((2, 3)) for c, d in columns] for a, b in rows]
    np.testing.assert_allclose(got, np.moveaxis(np.asarray(expected), (0, 1), (2, 3)), rtol=1e-5, atol=1e-6)
    for old, new in (("h", "m"), (7, "m"), ("h", 4)):
        g: Any = rlx.Graph("symbols")
        x = g.input("x", ("n", 3, old, 6))
        size = g.input("size", (new, 1))
        g.set_outputs(g.resize(x, (size.shape.dims[0], 11), mode="nearest_exact"))
        (got,) = rlx.evaluate(g, {"x": X, "size": np.zeros((4, 1), np.float32)})
        np.testing.assert_array_equal(got, jax.image.resize(X, (2, 3, 4, 11), "nearest"))


def test_one_and_three_axes() -> None:
    line, solid = random("f32", (1, 2, 5)), random("f32", (1, 2, 3, 4, 2))
    for x, size in ((line, (8,)), (solid, (5, 3, 4))):
        (got,) = built(lambda g, t, s=size: g.resize(t, s, mode="bicubic", antialias=True), x)
        np.testing.assert_allclose(got, jax.image.resize(x, (*x.shape[:2], *size), "bicubic"), rtol=1e-5, atol=2e-6)


def weights(share: np.ndarray) -> list[np.ndarray]:
    """Return the weights of the four neighbours: the cubic with slope -0.75."""
    a, s = -0.75, share
    outer = [a * (s**3 - 2 * s**2 + s), a * (s**2 - s**3)]
    inner = [(a + 2) * s**3 - (a + 3) * s**2 + 1, -(a + 2) * s**3 + (2 * a + 3) * s**2 - a * s]
    return [outer[0], *inner, outer[1]]


@pytest.mark.parametrize("align_corners", [False, True])
def test_cubic_samples_at_the_border(align_corners: bool) -> None:
    """ONNX's reference clamps positions to the image; RLX, like PyTorch, clamps each neighbour."""
    (got,) = built(lambda g, x, at: g.grid_sample(x, at, "bicubic", "border", align_corners), X, GRID)
    wide, taps = GRID.astype(np.float64), []
    for size, at in ((7, wide[..., 1]), (6, wide[..., 0])):
        place = (at + 1) * (size - 1) / 2 if align_corners else ((at + 1) * size - 1) / 2
        before = np.floor(place)
        held = [np.clip(before + i - 1, 0, size - 1).astype(int) for i in range(4)]
        taps.append(list(zip(held, weights(place - before), strict=True)))
    batch = np.arange(2)[:, None, None]
    expected = sum(X[batch, :, r, c] * (u * v)[..., None] for r, u in taps[0] for c, v in taps[1])
    np.testing.assert_allclose(got, np.moveaxis(np.asarray(expected), -1, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_are_those_of_onnx(mode: str, padding_mode: str, align_corners: bool) -> None:
    (got,) = built(lambda g, x, at: g.grid_sample(x, at, mode, padding_mode, align_corners), X, GRID)
    if (mode, padding_mode) == ("bicubic", "border"):
        return  # tested above
    name = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    options: dict[str, Any] = {"mode": name, "padding_mode": padding_mode, "align_corners": int(align_corners)}
    np.testing.assert_allclose(got, judged("GridSample", [X, GRID], **options), rtol=1e-4, atol=1e-5)


def test_samples_of_symbols_and_of_solids() -> None:
    def call(g: Any, x: Any, at: Any) -> Any:
        return [g.grid_sample(x, at, padding_mode=p, align_corners=a) for p in ("zeros", "reflection") for a in (0, 1)]

    known = built(call, X, GRID)
    for got, expected in zip(built(call, X, GRID, dims=[("n", 3, "h", "w"), ("n", "a", 5, 2)]), known, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    solid, at = random("f32", (1, 2, 3, 4, 2)), np.random.default_rng(1).uniform(-1.2, 1.2, (1, 2, 2, 2, 3))
    (got,) = built(lambda g, x, t: g.grid_sample(x, t), solid, at.astype(np.float32))
    expected = judged("GridSample", [solid, at.astype(np.float32)], mode="linear")
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grids_are_those_of_onnx(align_corners: bool) -> None:
    for size, theta in (((2, 1, 5, 4), random("f32", (2, 2, 3))), ((2, 1, 3, 5, 4), random("f32", (2, 3, 4)))):
        (got,) = built(lambda g, t, s=size: g.affine_grid(t, s, align_corners), theta)
        expected = judged("AffineGrid", [theta, np.asarray(size, np.int64)], align_corners=int(align_corners))
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_pixels_and_channels_move() -> None:
    x = np.arange(2 * 8 * 3 * 2, dtype=np.int32).reshape(2, 8, 3, 2)
    (shuffled,) = built(lambda g, t: g.pixel_shuffle(t, 2), x)
    expected = x.reshape(2, 2, 2, 2, 3, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 4)
    np.testing.assert_array_equal(shuffled, expected)
    np.testing.assert_array_equal(built(lambda g, t: g.pixel_unshuffle(t, 2), shuffled)[0], x)
    symbols = built(lambda g, t: g.pixel_shuffle(t, 2), x, dims=[("n", 8, "h", 2)])
    np.testing.assert_array_equal(symbols[0], expected)
    (mixed,) = built(lambda g, t: g.channel_shuffle(t, 4), x)
    np.testing.assert_array_equal(mixed, x.reshape(2, 4, 2, 3, 2).swapaxes(1, 2).reshape(x.shape))


def test_blocks_are_the_patches_of_jax() -> None:
    options: dict[str, Any] = {"dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
    (got,) = built(lambda g, t: g.unfold(t, (3, 2), **options), X)
    expected = jax.lax.conv_general_dilated_patches(X, (3, 2), (2, 1), [(1, 1), (0, 0)], rhs_dilation=(1, 2))
    np.testing.assert_array_equal(got, np.asarray(expected).reshape(2, 18, -1))
    (folded,) = built(lambda g, t: g.fold(t, (7, 6), (3, 2), **options), got)
    one = built(lambda g, t: g.fold(g.unfold(t, (3, 2), **options), (7, 6), (3, 2), **options), np.ones_like(X))[0]
    np.testing.assert_allclose(folded, X * one, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.resize(x, (3, 3), mode="lanczos"), "lanczos"),
        (lambda g, x: g.resize(x, (3, 3), mode="area", align_corners=True), "align_corners"),
        (lambda g, x: g.resize(x, (3, 3), mode="nearest", antialias=True), "antialias is for"),
        *(
            (lambda g, x, mode=mode: g.resize(g.cast(x, "u8"), (3, 3), mode=mode), "float|f32")
            for mode in ("nearest", "bilinear", "bicubic", "area")
        ),
        (lambda g, x: g.resize(g.cast(x, "i32"), (3, 3), mode="bilinear", antialias=True), "takes floats"),
        (lambda g, x: g.interpolate(x), "one of size and scale"),
        (lambda g, x: g.grid_sample(x, x), "needs a grid"),
        (lambda g, x: g.grid_sample(x, GRID, mode="area"), "mode is"),
        (lambda g, x: g.grid_sample(x, GRID, padding_mode="wrap"), "padding_mode is"),
        (lambda g, x: g.pixel_shuffle(x, 2), "do not divide by 4"),
        (lambda g, x: g.unfold(x, 9), "does not fit"),
        (lambda g, x: g.fold(x, (4, 4), 2), "must be"),
        (lambda g, x: g.affine_grid(x, (1, 1, 2, 2)), "theta is"),
    ],
)
def test_mistakes_name_the_call(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        built(call, X)
