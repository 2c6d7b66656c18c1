"""Depthwise convolutions on XLA: every number of axes, strides, dilations, channel multipliers and dtypes, and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from tests.targets.stablehlo.edge_values import on_xla

# Sizes of the input and of the kernel, and the options.
CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), (3, 1, 3), {"padding": 1}),
    ((1, 4, 8, 7), (4, 1, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 3, 8, 9), (6, 1, 3, 2), {"dilation": 2}),
    ((1, 2, 5, 6, 4), (4, 1, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
    ((2, 5, 1, 1), (5, 1, 1, 1), {}),
    ((0, 2, 5, 5), (2, 1, 3, 3), {}),
    ((1, 2, 12, 12), (2, 1, 9, 9), {"padding": 4}),
]


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "f64", "i8", "u8", "i32"])
def test_every_dtype(kind: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for i, (x, w, _) in enumerate(CASES):
        for name, shape in ((f"x{i}", x), (f"w{i}", w)):
            arrays[name] = (rng.integers(-3, 4, shape) if kind != "u8" else rng.integers(0, 4, shape)).astype(
                dtype(kind).numpy
            )

    def build(g: rlx.Graph, *operands: Any) -> dict[str, Any]:
        pairs = zip(CASES, operands[::2], operands[1::2], strict=True)
        return {f"{s} {w.shape}": g.conv(x, w, groups=s[1], **options) for (s, _, options), x, w in pairs}

    for name, result, expected in on_xla(build, arrays, every_form=kind in ("f32", "i8")):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape), name
        np.testing.assert_array_equal(result, expected, err_msg=f"{kind} {name}")


def test_special_values_stay_in_their_channel_and_meet_the_padding() -> None:
    x = np.ones((1, 4, 6, 6), np.float32)
    w = np.ones((4, 1, 3, 3), np.float32)
    x[0, 0, 2, 2], x[0, 1, 5, 5], w[2, 0, 0, 0], w[3, 0, 1, 1] = np.nan, np.inf, np.nan, -np.inf
    for _, result, expected in on_xla(lambda g, x, w: {"y": g.conv(x, w, padding=1, groups=4)}, {"x": x, "w": w}):
        np.testing.assert_array_equal(result, expected)
