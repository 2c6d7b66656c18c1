"""Running sums, products and maxima on XLA: axes of any length and place, and edge values of every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import REAL, dtype
from tests.targets.stablehlo.edge_values import assert_same_bits, edges, on_xla

# Short and long axes, few and many rows and columns, segments that do not divide the axis, blocks that overlap.
SHAPES = [
    ((5,), 0),
    ((9,), 0),
    ((257,), 0),
    ((1021,), 0),
    ((10_000,), 0),
    ((3, 500), 1),
    ((300, 12), 1),
    ((40, 300), 0),
    ((2, 300, 3), 1),
    ((2, 300, 20), 1),
    ((270, 11, 2), 1),
    ((0, 300), 1),
    ((300, 0), 0),
    ((4, 1), 1),
]


def _running(g: rlx.Graph, x: Any, axis: int) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for exclusive in (False, True):
        outputs[f"cumsum {exclusive}"] = g.cumsum(x, axis, exclusive)
        outputs[f"cumprod {exclusive}"] = g.cumprod(x, axis, exclusive)
    if x.dtype.name in REAL:
        outputs["cummax"] = g.cummax(x, axis)
    return outputs


def _assert_close(result: np.ndarray, expected: np.ndarray, name: str) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape), name
    wide = np.complex128 if result.dtype.kind == "c" else np.float64
    eps = {2: 2e-2, 4: 1e-4}.get(result.dtype.itemsize // (2 if result.dtype.kind == "c" else 1), 1e-12)
    with np.errstate(all="ignore"):
        got, wanted = result.astype(wide), expected.astype(wide)
        np.testing.assert_allclose(got, wanted, rtol=eps, atol=100 * eps, err_msg=name)


@pytest.mark.parametrize("kind", ["f32", "u8", "f64", "bf16", "i64", "c64"])
def test_every_dtype(kind: str) -> None:
    rng = np.random.default_rng(0)
    is_exact = not dtype(kind).is_float and not dtype(kind).is_complex
    arrays = {}
    shapes = SHAPES if kind in ("f32", "u8") else SHAPES[2:3] + SHAPES[9:10]
    for i, (shape, _) in enumerate(shapes):
        ordinary = (rng.integers(0, 2, shape) * 2 - 1) * (1 + rng.standard_normal(shape) / 100)
        arrays[f"x{i}"] = edges(dtype(kind), shape, i) if is_exact else ordinary.astype(dtype(kind).numpy)

    def build(g: rlx.Graph, *xs: Any) -> dict[str, Any]:
        pairs = zip(xs, shapes, strict=True)
        return {f"{s} {axis}: {n}": v for x, (s, axis) in pairs for n, v in _running(g, x, axis).items()}

    for name, result, expected in on_xla(build, arrays, every_form=kind in ("f64", "i64")):
        check = assert_same_bits if is_exact or "cummax" in name else _assert_close
        check(result, expected, f"{kind} {name}")


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64"])
def test_special_values(kind: str) -> None:
    """NaN, infinities and zeros reach exactly the elements after them, in every segment."""
    x = np.ones((10, 1500), np.float32)
    x[8:] = -0.0
    for i, (value, other) in enumerate([(np.nan, 1), (np.inf, 1), (np.inf, -np.inf), (-0.0, 1), (-0.0, -0.0)]):
        x[2 * i, 700], x[2 * i, 1100], x[2 * i + 1, 3] = value, other, value
    for name, result, expected in on_xla(lambda g, x: _running(g, x, 1), {"x": x.astype(dtype(kind).numpy)}):
        _assert_close(result, expected, f"{kind} {name}")
        if "True" not in name:
            is_number = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(result[is_number]), np.signbit(expected[is_number]), err_msg=name)


def test_sums_are_in_order() -> None:
    """Sums after large numbers that cancel, and a product that a 0 keeps from an overflow."""
    x = np.ones((1, 2000), np.float32)
    x[0, 0], x[0, 1100], x[0, 1101] = 0, 3e38, 3e38
    y = np.arange(2000, dtype=np.float32).reshape(1, 2000) / 7
    y[0, 50], y[0, 60] = 1e8, -1e8
    z = np.zeros((1, 2000), np.float32)
    z[0, 1100:1103] = 3e38, 3e38, -3e38

    def build(g: rlx.Graph, x: Any, y: Any, z: Any) -> dict[str, Any]:
        return {"product": g.cumprod(x, 1), "sum": g.cumsum(y, 1), "large sum": g.cumsum(z, 1)}

    for name, result, expected in on_xla(build, {"x": x, "y": y, "z": z}):
        assert_same_bits(result, expected, name)


def test_segments_of_equal_numbers() -> None:
    g = rlx.Graph("equal")
    g.set_outputs([g.cumsum(g.expand(g.input("x", (1,)), (1000,)), 0)])
    x = np.array([-0.0], np.float32)
    (result,) = rlx.Session("xla").compile(g, cache=False).run({"x": x})
    assert_same_bits(result, rlx.evaluate(g, {"x": x})[0], "sums of -0")
