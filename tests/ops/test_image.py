"""Resizing against its formula, JAX and PyTorch; axial rotations against complex numbers."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate_decomposition
from rlx.ir.op.registry import card
from tests.ops.references import FLOATS, agree, in_jax, random, run

_SIZES = [(1, 1), (1, 5), (5, 1), (4, 8), (8, 4), (3, 7), (7, 3), (6, 4), (10, 9)]
_EPS = np.finfo(np.float64).eps


def _line(old: int, new: int, mode: str, *, align_corners: bool) -> np.ndarray:
    """Return the matrix of one axis, from exact positions."""
    matrix = np.zeros((new, old))
    for i in range(new):
        if mode == "nearest":
            matrix[i, i * old // new] = 1
            continue
        if align_corners:
            place = Fraction(i * (old - 1), max(new - 1, 1))
        else:
            place = (i + Fraction(1, 2)) * Fraction(old, new) - Fraction(1, 2)
        place = min(max(place, Fraction(0)), Fraction(old - 1))
        before = floor(place)
        matrix[i, before] += 1 - float(place - before)
        if place > before:
            matrix[i, before + 1] += float(place - before)
    return matrix


def _resized(x: np.ndarray, size: tuple[int, ...], mode: str, *, align_corners: bool) -> np.ndarray:
    result = x.astype(np.float64)
    for axis, new in enumerate(size, 2):
        matrix = _line(x.shape[axis], new, mode, align_corners=align_corners)
        result = np.moveaxis(np.tensordot(result, matrix, (axis, 1)), -1, axis)
    return result


_MODES = [("nearest", False), ("bilinear", False), ("bilinear", True)]


@pytest.mark.parametrize(("mode", "align"), _MODES)
@pytest.mark.parametrize(("old", "new"), _SIZES)
def test_resize(old: int, new: int, mode: str, align: bool) -> None:
    uses = [("f32", (2, 3, old), (new,)), ("f64", (1, 2, old, 4), (new, 6)), ("f16", (1, 1, 3, old, 2), (2, new, 4))]
    for name, shape, size in uses:
        x = random(name, shape)
        attributes = {"size": size, "mode": mode, "align_corners": align}
        got = run("resize", x, **attributes)
        agree(got, _resized(x, size, mode, align_corners=align).astype(x.dtype), noise=8 * _EPS)
        agree(evaluate_decomposition(card("resize"), (x,), attributes), got, noise=20 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("name", FLOATS)
def test_nearest_moves_values(name: str) -> None:
    x = random(name, (1, 2, 5, 3))
    x[0, 0, 1, 1], x[0, 1, 2, 2] = np.nan, -np.inf
    got = run("resize", x, size=(8, 2), mode="nearest", align_corners=False)
    rows, columns = np.arange(8) * 5 // 8, np.arange(2) * 3 // 2
    assert got.tobytes() == x[:, :, rows][..., columns].tobytes()


def test_positions_of_large_axes_are_exact() -> None:
    """In 32 bits both the products and the weights would be wrong."""
    old, new = 100_003, 99_991
    x = np.arange(old, dtype=np.float64).reshape(1, 1, -1)
    nearest = run("resize", x, size=(new,), mode="nearest", align_corners=False)
    assert nearest[0, 0].tolist() == [i * old // new for i in range(new)]
    straight = run("resize", x, size=(new,), mode="bilinear", align_corners=True)
    assert np.allclose(straight[0, 0], np.linspace(0, old - 1, new), rtol=1e-15, atol=1e-10)


@pytest.mark.parametrize("binding", [{"n": 2, "h": 3, "m": 7}, {"n": 1, "h": 6, "m": 4}, {"n": 1, "h": 1, "m": 9}])
@pytest.mark.parametrize(("mode", "align"), _MODES)
def test_symbolic_sizes_mean_the_same(mode: str, align: bool, binding: dict[str, int]) -> None:
    g = rlx.Graph("symbolic")
    x = g.input("x", rlx.Shape(("n", 2, "h", 5), "f32"))
    target = g.input("target", rlx.Shape(("m",), "f32"))
    g.set_outputs([g.resize(x, ("m", "2*h"), mode=mode, align_corners=align) + 0 * g.sum(target)])
    array = random("f32", (binding["n"], 2, binding["h"], 5))
    found = rlx.evaluate(g, {"x": array, "target": np.zeros(binding["m"], np.float32)})[0]
    size = (binding["m"], 2 * binding["h"])
    agree(found, _resized(array, size, mode, align_corners=align).astype(np.float32), noise=8 * _EPS)


@pytest.mark.parametrize(("old", "new"), [pair for pair in _SIZES if pair[0] <= pair[1]])
def test_resize_in_jax(old: int, new: int) -> None:
    """JAX smooths when it shrinks images, so only enlarging is compared."""
    x = random("f64", (2, 3, old, 4))
    got = run("resize", x, size=(new, 4), mode="bilinear", align_corners=False)
    agree(got, in_jax(lambda v: jax.image.resize(v, (2, 3, new, 4), "linear"), x), noise=100 * _EPS)


def test_a_neighbour_without_a_share_does_not_count() -> None:
    x = np.array([[[1, np.inf, 3, np.nan, 5]]], np.float64)
    same = run("resize", x, size=(5,), mode="bilinear", align_corners=False)
    assert np.array_equal(same, x, equal_nan=True)
    finer = run("resize", x, size=(9,), mode="bilinear", align_corners=True)[0, 0]
    assert np.array_equal(finer, [1, np.inf, np.inf, np.inf, 3, np.nan, np.nan, np.nan, 5], equal_nan=True)


def _graph(shape: Any) -> tuple[Any, Any]:
    g = rlx.Graph("images")
    return g, g.input("x", rlx.Shape(shape, "f32"))


def test_sizes_from_scales() -> None:
    g, x = _graph((2, 3, 5, 6))
    assert g.resize(x, scale=2).shape == (2, 3, 10, 12)
    assert g.resize(x, scale=(0.5, 1.5), mode="bilinear").shape == (2, 3, 2, 9)
    assert g.resize(x, 4).shape == (2, 3, 4, 4)
    assert rlx.ops.resize_nearest2x(x).shape == (2, 3, 10, 12)
    g, x = _graph(("n", 3, "h", 6))
    assert g.resize(x, scale=(1.5, 0.7)).shape == ("n", 3, "3*h//2", 4)
    assert g.resize_nearest2x(x).shape == ("n", 3, "2*h", 12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.resize(x), "one of size and scale"),
        (lambda g, x: g.resize(x, 4, 2), "one of size and scale"),
        (lambda g, x: g.resize(x, (4,)), "2 entries"),
        (lambda g, x: g.resize(x, scale=(2, 2, 2)), "2 entries"),
        (lambda g, x: g.resize(x, scale=-1), "positive"),
        (lambda g, x: g.resize(x, scale="twice"), "positive"),
        (lambda g, x: g.resize(x, scale=0.1), "no simple fraction"),
        (lambda g, x: g.resize(x, 4, mode="bicubic"), "bicubic"),
        (lambda g, x: g.resize(x, 4, align_corners=True), "nearest"),
        (lambda g, x: g.resize(g.sum(x, (0, 1)), ()), "rank 3, 4 or 5"),
        (lambda g, x: g.resize(g.constant(np.ones((1, 1, 0), np.float32)), 4), "empty"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    g, x = _graph((1, 2, "h", 4))
    with pytest.raises(rlx.Error, match=message):
        call(g, x)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("packed", [True, False])
def test_axial_rope_2d(packed: bool, name: str) -> None:
    """Pairs of lanes are complex numbers, rotated one by one."""
    end_x, end_y, d, heads, theta, repeat = 3, 2, 8, 2, 50.0, 2
    length = end_x * end_y * repeat
    x = random(name, (2, heads, length, d))
    expected = np.empty(x.shape)
    for t in range(length):
        column, row = t % end_x, t % (end_x * end_y) // end_x
        for i in range(d // 2):
            place, pair = (column, i) if i < d // 4 else (row, i - d // 4)
            turn = np.exp(1j * place * theta ** (-4 * pair / d))
            turned = (x[..., t, 2 * i].astype(np.float64) + 1j * x[..., t, 2 * i + 1].astype(np.float64)) * turn
            expected[..., t, 2 * i], expected[..., t, 2 * i + 1] = turned.real, turned.imag
    if packed:
        x, expected = (np.swapaxes(v, 1, 2).reshape(2, length, heads * d) for v in (x, expected))
    sizes = {"end_x": end_x, "end_y": end_y, "head_dim": d, "num_heads": heads, "theta": theta, "repeat_factor": repeat}
    agree(run("axial_rope_2d", np.ascontiguousarray(x), **sizes), expected.astype(x.dtype), noise=20 * _EPS)


@pytest.mark.parametrize(
    ("shape", "changed", "message"),
    [
        ((1, 6, 16), {"head_dim": 6}, "multiple of 4"),
        ((1, 5, 16), {}, "tokens"),
        ((1, 6, 8), {}, "tokens"),
        ((1, "s", 16), {}, "tokens"),
        ((1, 6, 16), {"theta": 0.0}, "theta"),
        ((6, 16), {}, r"\[B, S, H·D\]"),
    ],
)
def test_axial_rope_2d_refuses(shape: Any, changed: Any, message: str) -> None:
    g, x = _graph(shape)
    with pytest.raises(rlx.ShapeError, match=message):
        g.axial_rope_2d(x, **({"end_x": 3, "end_y": 2, "head_dim": 8, "num_heads": 2} | changed))
