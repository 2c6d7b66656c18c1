"""`rlx-float-products`: integer products of the largest magnitudes and lengths, which f32 must hold exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.targets.stablehlo.edge_values import assert_same_bits, on_xla

LIMITS = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "bool": (0, 1)}


def _numbers(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Mostly the least and the greatest numbers, and rows of equal ones."""
    low, high = LIMITS[kind]
    rng = np.random.default_rng(seed)
    array = rng.choice(np.array([low, high, high, low, 1]), shape)
    array[0] = low
    array[-1] = high
    return array.astype(rlx.dtype(kind).numpy)


def _product(g: rlx.Graph, x: Any, y: Any) -> Any:
    return g.cast(x, "i32") @ g.cast(y, "i32")


def _lowered(build: Any, *inputs: tuple[tuple[int, ...], str]) -> rlx.Graph:
    g = rlx.Graph("g")
    g.set_outputs([build(g, *[g.input(f"x{i}", *each) for i, each in enumerate(inputs)])])
    return rlx.passes.run(g, "rlx-decompose{for=rlx-to-stablehlo},canonicalize,rlx-float-products")


# Lengths at and beyond the limits of one product, of several, and of all.
@pytest.mark.parametrize("kinds", [("i8", "i8"), ("u8", "i8"), ("u8", "u8"), ("i16", "bool"), ("i16", "i8")])
@pytest.mark.parametrize("length", [0, 1, 258, 259, 1024, 1025, 2500, 9000])
def test_products_are_exact(kinds: tuple[str, str], length: int) -> None:
    arrays = {"x": _numbers(kinds[0], (3, length), 0), "y": _numbers(kinds[1], (length, 4) if length else (1, 4), 1)}
    arrays["y"] = arrays["y"][:length]
    for name, result, expected in on_xla(lambda g, x, y: {"y": _product(g, x, y)}, arrays):
        assert_same_bits(result, expected, name)


@pytest.mark.parametrize("zero", [0, -128, 127])
def test_zero_points_widen_the_range(zero: int) -> None:
    x, w = _numbers("i8", (2, 3, 700), 0), _numbers("i8", (700, 5), 1)

    def build(g: rlx.Graph, x: Any, w: Any) -> dict[str, Any]:
        return {
            "sums": g.q_matmul(x, w, dtype="i32", x_zero_point=zero, w_zero_point=zero),
            "bytes": g.q_matmul(x, w, multiplier=np.float32(1e-4), x_zero_point=zero, out_zero_point=5),
        }

    for name, result, expected in on_xla(build, {"x": x, "w": w}):
        assert_same_bits(result, expected, name)


def test_convolutions_and_products_over_any_axes() -> None:
    x, w = _numbers("i8", (2, 4, 9, 9), 0), _numbers("i8", (6, 2, 3, 3), 1)
    y, z = _numbers("u8", (3, 4, 5), 2), _numbers("i8", (4, 3, 5), 3)

    def build(g: rlx.Graph, x: Any, w: Any, y: Any, z: Any) -> dict[str, Any]:
        return {
            "conv": g.q_conv2d(x, w, dtype="i32", padding=1, groups=2, x_zero_point=-128),
            "product": g.dot_general(g.cast(y, "i32"), g.cast(z, "i32"), (1,), (0,), (0,), (1,)),
        }

    for name, result, expected in on_xla(build, {"x": x, "w": w, "y": y, "z": z}):
        assert_same_bits(result, expected, name)


def test_what_is_rewritten() -> None:
    def parts(*inputs: tuple[tuple[int, ...], str]) -> tuple[int, int]:
        text = str(_lowered(_product, *inputs))
        lines = [line for line in text.splitlines() if "matmul" in line]
        return len(lines), sum("xf32" in line for line in lines)

    assert parts(((2, 1024), "i8"), ((1024, 2), "i8")) == (1, 1)
    assert parts(((2, 1025), "i8"), ((1025, 2), "i8")) == (2, 2)
    assert parts(((2, 8192), "i8"), ((8192, 2), "i8")) == (8, 8)
    assert parts(((2, 8193), "i8"), ((8193, 2), "i8")) == (1, 0)
    assert parts(((2, 4), "i8"), ((4, 2), "i32")) == (1, 0)
    assert parts(((2, 4), "i16"), ((4, 2), "i16")) == (1, 0)


def test_sums_that_may_wrap_are_not_rewritten() -> None:
    x = np.full((1, 2), 2**31 - 1, np.int32)

    def build(g: rlx.Graph, x: Any) -> dict[str, Any]:
        shifted = g.cast(g.cast(x, "i8"), "i32") + g.constant(np.int32(2**31 - 1))
        return {"y": shifted @ g.cast(g.constant(np.ones((2, 1), np.int8)), "i32")}

    for name, result, expected in on_xla(build, {"x": x}):
        assert_same_bits(result, expected, name)
