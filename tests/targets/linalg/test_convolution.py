"""Convolutions, compiled for this machine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.targets.linalg import lower_module
from tests.targets.linalg.helpers import Case, assert_agrees, case, run

_RANDOM = np.random.default_rng(13)


def _conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    dims: Any = None,
    dtype: Any = np.float32,
) -> Case:
    """A convolution of random numbers; `dims` are the declared dimensions of x."""
    count = len(x) - 2

    def each(value: Any, times: int) -> tuple[int, ...]:
        return (value,) * times if isinstance(value, int) else tuple(value)

    arrays = [_RANDOM.standard_normal(shape).astype(dtype) for shape in (x, w)]
    return case(
        "conv",
        *arrays,
        stride=each(stride, count),
        padding=each(padding, 2 * count),
        dilation=each(dilation, count),
        groups=groups,
        dims=dims and [dims, w],
    )


def _check(cases: list[Case], tolerance: float) -> None:
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result, tolerance)


def test_windows_as_columns():
    cases = [
        _conv((1, 3, 6, 5), (4, 3, 3, 2)),
        _conv((2, 3, 9, 8), (4, 3, 3, 3), stride=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2)),
        _conv((2, 4, 6), (6, 2, 3), stride=2, padding=(1, 2), groups=2),
        _conv((1, 6, 11), (9, 2, 3), dilation=2, padding=2, groups=3),
        _conv((1, 2, 5, 4, 3), (3, 2, 2, 2, 2), stride=(1, 2, 1), padding=(1, 0, 0, 1, 1, 1), dilation=(2, 1, 1)),
        _conv((1, 64, 20, 20), (64, 64, 3, 3), padding=1),
        _conv((1, 1, 40, 40), (2, 1, 13, 13), stride=3),
    ]
    _check(cases, 1e-5)


def test_kernels_of_one_channel_by_taps():
    cases = [
        _conv((2, 4, 7, 7), (4, 1, 3, 3), padding=1, groups=4),
        _conv((2, 4, 9, 7), (8, 1, 3, 3), stride=(2, 1), padding=(2, 1, 0, 3), dilation=(1, 2), groups=4),
        _conv((1, 5, 9), (5, 1, 4), padding=(3, 0), groups=5),
        _conv((1, 3, 5, 6, 4), (6, 1, 2, 3, 2), padding=1, groups=3),
        _conv((1, 1, 28, 28), (8, 1, 5, 5), padding=2),
    ]
    _check(cases, 1e-5)


def test_symbolic_sizes():
    cases = [
        _conv((3, 4, 10, 9), (6, 2, 3, 3), stride=2, padding=(1, 1, 0, 1), groups=2, dims=("n", 4, "h", "w")),
        _conv((1, 4, 10, 9), (6, 4, 3, 3), stride=(2, 1), padding=1, dims=(1, 4, "h", "w")),
        # IREE 3.13 cannot merge a symbolic batch and the positions into one axis during tiling.
        _conv((2, 64, 56, 56), (64, 64, 3, 3), padding=1, dims=("n", 64, 56, 56)),
        _conv((2, 4, 17), (4, 1, 4), stride=3, padding=(3, 0), dilation=2, groups=4, dims=("n", 4, "t")),
    ]
    _check(cases, 1e-5)


def test_other_dtypes():
    tolerances = {np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3, np.float64: 1e-14}
    cases = [
        one
        for dtype in tolerances
        for one in (
            _conv((1, 32, 9, 9), (8, 32, 3, 3), padding=1, dtype=dtype),
            _conv((1, 8, 30), (8, 1, 4), padding=(3, 0), groups=8, dtype=dtype),
        )
    ]
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result, tolerances[one.arrays[0].dtype.type])


def test_narrow_floats_are_added_up_in_f32():
    cases = []
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, w = np.ones((1, 4096, 1), dtype), np.full((1, 4096, 1), 2.0**-13, dtype)
        w[0, 0] = 1  # adding 2^-13 to it has no effect if each sum is rounded
        cases.append(case("conv", x, w, stride=(1,), padding=(0, 0), dilation=(1,), groups=1))
    for (result,) in run(cases):
        assert float(result[0, 0, 0]) == 1.5  # 1 + 4095/8192, rounded


def test_nothing_to_convolve():
    cases = [
        _conv((0, 3, 6, 5), (4, 3, 3, 2)),
        _conv((2, 0, 6, 5), (4, 0, 3, 2)),
        _conv((2, 3, 2, 5), (4, 3, 3, 2)),
        _conv((2, 3, 2, 5), (0, 3, 1, 2)),
        _conv((0, 3, 6, 5), (4, 3, 3, 2), dims=("n", 3, 6, 5)),
        _conv((1, 3, 2, 5), (4, 3, 3, 2), dims=(1, 3, "h", 5)),
    ]
    for one, (result,) in zip(cases, run(cases), strict=True):
        assert_agrees(one, (result,))
        assert not result.any()


def test_no_transpose_where_there_is_one_image():
    graph = Graph()
    x, w = graph.input("x", (1, 8, 9, 9)), graph.input("w", (4, 8, 3, 3))
    graph.set_outputs([graph.conv(x, w, padding=1)])
    text = str(lower_module(graph.module))
    assert "linalg.matmul" in text
    assert "linalg.transpose" not in text
