"""Sums on XLA as products with ones: axes, lengths and places of special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from tests.targets.stablehlo.edge_values import on_xla

# Short, odd, long and very long axes; the longest have and lack divisors.
CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((40, 200), (0,)),
    ((200, 40), (1,)),
    ((37, 131), (0,)),
    ((37, 131), (1,)),
    ((7, 9, 101), (1, 2)),
    ((7, 9, 101), (0, 1)),
    ((9, 63, 11), (1,)),
    ((3, 6000), (1,)),
    ((3, 4099), (1,)),
    ((6000, 3), (0,)),
    ((30_000,), (0,)),
    ((50_021,), (0,)),
    ((0, 5000), (1,)),
    ((5000, 0), (0,)),
]


def _sums(g: rlx.Graph, *xs: Any) -> dict[str, Any]:
    results = {}
    for x, (shape, axes) in zip(xs, CASES, strict=True):
        results[f"sum of {shape} {axes}"] = g.sum(x, axes)
        results[f"mean of {shape} {axes}"] = g.mean(x, axes, keep_dims=True)
    return results


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "c64"])
def test_sums(kind: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"x{i}": (rng.standard_normal(s) + 0.1).astype(dtype(kind).numpy) for i, (s, _) in enumerate(CASES)}
    relative = {"f64": 1e-12, "bf16": 1e-2}.get(kind, 1e-4)
    for name, result, expected in on_xla(_sums, arrays):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), name
        wide = np.complex128 if kind == "c64" else np.float64
        size = max(np.abs(expected.astype(wide)).max(initial=0), 1)
        np.testing.assert_allclose(result.astype(wide), expected.astype(wide), relative, relative * size, err_msg=name)


def test_sums_of_integers_are_exact() -> None:
    rng = np.random.default_rng(0)
    arrays = {f"x{i}": rng.integers(-100, 100, s).astype(np.float32) for i, (s, _) in enumerate(CASES)}
    for name, result, expected in on_xla(lambda g, *xs: dict([*_sums(g, *xs).items()][::2]), arrays):
        np.testing.assert_array_equal(result, expected, err_msg=name)


@pytest.mark.parametrize(("rows", "columns"), [(36, 131), (131, 36), (1, 4099), (64, 64)])
def test_special_values_stay_in_their_sum(rows: int, columns: int) -> None:
    """In every row and column, also the last ones, which vector code may compute apart."""
    arrays = {}
    for i, value in enumerate([np.nan, np.inf, -np.inf, 3e38]):
        x = np.ones((rows, columns), np.float32)
        for row, column in ((0, 0), (rows - 1, 1), (rows // 2, columns - 1), (rows - 1, columns - 2)):
            x[row, column] = value
        arrays[f"x{i}"] = x
    x = np.full((rows, columns), -0.0, np.float32)
    x[0, 0], x[0, 1] = np.inf, -np.inf
    arrays["zeros"] = x

    def build(g: rlx.Graph, *xs: Any) -> dict[str, Any]:
        return {f"{i} {axis}": g.sum(x, axis) for i, x in enumerate(xs) for axis in (0, 1)}

    for name, result, expected in on_xla(build, arrays):
        np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=name)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected), err_msg=name)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "i32"])
def test_maxima_of_special_values(kind: str) -> None:
    """NaN at every place of a row, rows of infinities, and lengths with and without divisors."""
    arrays = {}
    for i, length in enumerate([1000, 1024, 127, 4099]):
        x = np.random.default_rng(i).standard_normal((length, length) if length < 200 else (60, length))
        x[2:4] = np.array([[np.inf], [-np.inf]])
        if kind != "i32":
            x[range(5, len(x)), np.linspace(0, length - 1, len(x) - 5).astype(int)] = np.nan
        arrays[f"x{i}"] = (np.nan_to_num(x * 1000, posinf=9e8, neginf=-9e8) if kind == "i32" else x).astype(
            dtype(kind).numpy
        )

    def build(g: rlx.Graph, *xs: Any) -> dict[str, Any]:
        return {f"{i} {n}": getattr(g, n)(x, 1) for i, x in enumerate(xs) for n in ("max", "min", "argmax", "argmin")}

    for name, result, expected in on_xla(build, arrays):
        np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64), err_msg=name)
