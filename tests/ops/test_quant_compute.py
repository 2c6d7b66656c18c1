"""Products of 8-bit integers against loops over Python integers and ONNX's reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.ops.references import random, run
from tests.ops.test_quant import _f32, _in_onnx, _same, _step


def _wrapped(value: int) -> int:
    """Return the value in 32-bit two's complement."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _requantised(total: int, multiplier: float, zero_point: int) -> int:
    scaled = float(np.float32(_wrapped(total)) * np.float32(multiplier))
    return int(min(max(_step(scaled) + zero_point, -128), 127))


_ZEROS = [{}, {"x_zero_point": -128, "w_zero_point": 127, "out_zero_point": -5}, {"x_zero_point": 9}]


@pytest.mark.parametrize("zeros", _ZEROS, ids=str)
def test_q_matmul(zeros: dict[str, int]) -> None:
    x, w = random("i8", (2, 3, 20), low=-128, high=128), random("i8", (20, 4), low=-128, high=128, seed=1)
    bias = np.array([0, 2**31 - 1, -(2**31), 12345], np.int32)
    for multiplier in (2.0**-9, 0.0037, 1e-9, 0.0):
        got = run("q_matmul", x, w, bias, _f32(multiplier), dtype=rlx.i8, **zeros)
        expected = np.zeros(got.shape, np.int8)
        sums = np.zeros(got.shape, np.int32)
        for i, j, n in np.ndindex(*got.shape):
            pairs = zip(x[i, j].tolist(), w[:, n].tolist(), strict=True)
            products = ((a - zeros.get("x_zero_point", 0)) * (c - zeros.get("w_zero_point", 0)) for a, c in pairs)
            total = sum(products) + int(bias[n])
            sums[i, j, n] = _wrapped(total)
            expected[i, j, n] = _requantised(total, multiplier, zeros.get("out_zero_point", 0))
        _same(got, expected)
        _same(run("q_matmul", x, w, bias, None, dtype=rlx.i32, **(zeros | {"out_zero_point": 0})), sums)


@pytest.mark.parametrize("zeros", _ZEROS, ids=str)
def test_q_conv2d(zeros: dict[str, int]) -> None:
    x, w = random("i8", (2, 4, 5, 6), low=-128, high=128), random("i8", (6, 2, 3, 2), low=-128, high=128, seed=1)
    bias = np.array([0, 2**31 - 1, -(2**31), 12345, -777, 3], np.int32)
    (up, down, left, right), (down_by, right_by), (rows_by, columns_by), multiplier = (1, 0, 2, 1), (2, 1), (1, 2), 3e-3
    window: Any = {"stride": (down_by, right_by), "padding": (up, down, left, right), "dilation": (rows_by, columns_by)}
    got = run("q_conv2d", x, w, bias, _f32(multiplier), **window, groups=2, dtype=rlx.i8, **zeros)
    zero = zeros.get("x_zero_point", 0)
    padded = np.pad(x, ((0, 0), (0, 0), (up, down), (left, right)), constant_values=zero).astype(object) - zero
    kernel = w.astype(object) - zeros.get("w_zero_point", 0)
    assert got.shape == (2, 6, (6 - 3) // 2 + 1, 9 - 2)
    expected, sums = np.zeros(got.shape, np.int8), np.zeros(got.shape, np.int32)
    for n, o, row, column in np.ndindex(*got.shape):
        total = int(bias[o])
        for c, i, j in np.ndindex(2, 3, 2):
            pixel = padded[n, 2 * (o // 3) + c, row * down_by + i * rows_by, column * right_by + j * columns_by]
            total += int(pixel * kernel[o, c, i, j])
        sums[n, o, row, column] = _wrapped(total)
        expected[n, o, row, column] = _requantised(total, multiplier, zeros.get("out_zero_point", 0))
    _same(got, expected)
    of_sums = zeros | {"out_zero_point": 0}
    _same(run("q_conv2d", x, w, bias, None, **window, groups=2, dtype=rlx.i32, **of_sums), sums)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"dtype": "i32", "multiplier": 0.5}, "no 'multiplier'"),
        ({"dtype": "f32"}, "needs a 'multiplier'"),
        ({"dtype": "i32", "out_zero_point": 3}, "no zero point"),
        ({"dtype": "i16", "multiplier": 0.5}, "must be i8, i32 or f32"),
    ],
)
def test_sums_are_not_scaled(attributes: dict[str, Any], message: str) -> None:
    g = rlx.Graph("sums")
    x, w = g.input("x", (2, 8), "i8"), g.param("w", (8, 3), "i8")
    with pytest.raises(rlx.ShapeError, match=message):
        g.q_matmul(x, w, **attributes)
    assert g.q_matmul(x, w, dtype="i32").shape == rlx.Shape((2, 3), "i32")


@pytest.mark.parametrize("zeros", _ZEROS, ids=str)
def test_q_matmul_in_onnx(zeros: dict[str, int]) -> None:
    """The scales are powers of two, so both multiply without rounding."""
    x, w = random("i8", (3, 20), low=-128, high=128), random("i8", (20, 4), low=-128, high=128, seed=1)
    point = [np.array(zeros.get(f"{n}_zero_point", 0), np.int8) for n in ("x", "w", "out")]
    operands = (x, _f32(2**-4), point[0], w, _f32(2**-5), point[1], _f32(2.0), point[2])
    got = run("q_matmul", x, w, None, _f32(2.0**-10), dtype=rlx.i8, **zeros)
    _same(got, _in_onnx("QLinearMatMul", *operands))
