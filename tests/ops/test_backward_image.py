"""Gradients of convolution and maximum pooling, against JAX, loops and differences."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from rlx.ir.op.registry import card
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError
from tests.ops.gradients import check_rounded_once, check_twice
from tests.ops.references import FLOATS, agree, random, run

# --- maximum pooling --------------------------------------------------------------------------------

_POOLS: list[tuple[Any, ...]] = [
    ((2, 3, 6, 6), (2, 2), (2, 2), (0, 0, 0, 0)),
    ((1, 2, 7, 5), (3, 2), (1, 1), (1, 1, 0, 1)),
    ((2, 1, 8, 9), (3, 3), (2, 2), (1, 1, 1, 1)),
    ((1, 1, 9, 8), (2, 1), (3, 2), (0, 0, 0, 0)),  # gaps between windows
    ((1, 2, 4, 3), (2, 2), (2, 1), (3, 2, 0, 2)),  # windows of only padding
    ((1, 1, 3, 4), (3, 4), (1, 1), (2, 2, 3, 3)),
    ((1, 1, 2, 2), (1, 1), (5, 5), (0, 0, 0, 0)),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0, 0, 0)),
    ((1, 1, 2, 4), (3, 2), (1, 2), (0, 0, 0, 0)),  # no window at all
]


def _geometry(case: Any) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "padding"), case[1:], strict=True))


def _pool(case: Any) -> Any:
    _, kernel, stride, padding = case
    pads = ((0, 0), (0, 0), padding[:2], padding[2:])

    def formula(x: Any) -> Any:
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 1, *kernel), (1, 1, *stride), pads)

    return formula


def _dy_of(case: Any, x: np.ndarray, name: str) -> np.ndarray:
    result = card("pool").infer(Shape(x.shape, x.dtype), kind="max", count_include_pad=True, **_geometry(case))
    assert isinstance(result, Shape)
    return random(name, result.static, seed=1)


def _by_loops(case: Any, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Compute by the definition: the first largest element of every window, NaN above all, padding never."""
    _, kernel, stride, padding = case
    result = np.zeros(x.shape)
    for n, c, i, j in np.ndindex(*dy.shape):
        best = None
        for row in range(i * stride[0] - padding[0], i * stride[0] - padding[0] + kernel[0]):
            for column in range(j * stride[1] - padding[2], j * stride[1] - padding[2] + kernel[1]):
                if not (0 <= row < x.shape[2] and 0 <= column < x.shape[3]):
                    continue
                value = x[n, c, row, column]
                if best is None or (not np.isnan(best[0]) and (np.isnan(value) or value > best[0])):
                    best = (value, row, column)
        if best is not None:
            result[n, c, best[1], best[2]] += dy[n, c, i, j]
    return result


@pytest.mark.parametrize("case", _POOLS, ids=str)
def test_max_pool2d_backward(case: Any) -> None:
    x = random("f64", case[0])
    dy = _dy_of(case, x, "f64")
    got = run("max_pool2d_backward", x, dy, **_geometry(case))
    options: dict[str, Any] = {"kind": "max", "count_include_pad": True, **_geometry(case)}
    if x.size and dy.size and max(case[3]) < min(case[1]):  # JAX requires some of the image in every window
        check_twice(got, "pool", _pool(case), (x,), dy, **options)
    assert np.allclose(got, _by_loops(case, x, dy), rtol=1e-14)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("case", _POOLS, ids=str)
def test_ties_and_special_values(case: Any, name: str) -> None:
    """There are few different values, so most windows have ties; also NaN, windows of only -inf, 0 and -0."""
    pool = np.array([0.0, -0.0, 1.0, -1.0, -np.inf, -np.inf, -np.inf, np.inf, np.nan])
    x = np.random.default_rng(3).choice(pool, case[0]).astype(random(name, ()).dtype)
    x[:, :, : x.shape[2] // 2] = -np.inf
    dy = np.round(_dy_of(case, x, name) * 4)  # sums of integers are exact
    got = run("max_pool2d_backward", x, dy, **_geometry(case))
    with np.errstate(invalid="ignore"):
        assert np.array_equal(got.astype(np.float64), _by_loops(case, x.astype(np.float64), dy.astype(np.float64)))


def test_special_cotangents_reach_only_the_largest() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    dy = np.array([[[[np.nan, np.inf], [1, 2]]]], np.float32)
    got = run("max_pool2d_backward", x, dy, kernel=(2, 2), stride=(2, 2), padding=(0,) * 4)
    expected = np.zeros((4, 4), np.float32)
    expected[1::2, 1::2] = dy[0, 0]
    assert np.array_equal(got[0, 0], expected, equal_nan=True)


# --- convolution ------------------------------------------------------------------------------------

# x, w, stride, padding, dilation, groups
_CONVOLUTIONS: list[tuple[Any, ...]] = [
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 3, 7, 8), (4, 3, 3, 3), (2, 3), (1, 1, 2, 0), (1, 1), 1),
    ((1, 4, 9, 7), (6, 2, 2, 3), (3, 2), (0, 2, 1, 1), (2, 1), 2),
    ((2, 4, 7, 7), (4, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((2, 4, 8, 9), (8, 1, 2, 2), (2, 2), (3, 0, 0, 3), (3, 2), 4),
    ((1, 2, 5, 5), (3, 2, 1, 1), (3, 4), (0, 0, 0, 0), (1, 1), 1),  # positions that no window reads
    ((1, 1, 3, 4), (1, 1, 3, 4), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((0, 3, 6, 6), (4, 3, 2, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


def _attributes(case: Any) -> dict[str, Any]:
    return dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))


def _conv(case: Any) -> Any:
    _, _, stride, padding, dilation, groups = case

    def formula(x: Any, w: Any) -> Any:
        pads = (padding[:2], padding[2:])
        return jax.lax.conv_general_dilated(
            x, w, stride, pads, rhs_dilation=dilation, feature_group_count=groups, precision="highest"
        )

    return formula


def _operands(case: Any, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, w and dy."""
    x, w = random(name, case[0]), random(name, case[1], seed=1)
    return x, w, random(name, run("conv", x, w, **_attributes(case)).shape, seed=2)


@pytest.mark.parametrize("case", _CONVOLUTIONS, ids=str)
def test_conv2d_backward_input(case: Any) -> None:
    x, w, dy = _operands(case, "f64")
    got = run("conv2d_backward_input", dy, w, size=case[0][2:], **_attributes(case))
    check_twice(got, "conv", _conv(case), (x, w), dy, 0, 16, **_attributes(case))


@pytest.mark.parametrize("case", _CONVOLUTIONS, ids=str)
def test_conv2d_backward_weight(case: Any) -> None:
    x, w, dy = _operands(case, "f64")
    got = run("conv2d_backward_weight", x, dy, kernel=case[1][2:], **_attributes(case))
    check_twice(got, "conv", _conv(case), (x, w), dy, 1, 16, **_attributes(case))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("case", [_CONVOLUTIONS[2]], ids=str)
def test_narrow_floats_accumulate_wide(case: Any, name: str) -> None:
    x, w, dy = _operands(case, name)
    check_rounded_once("conv2d_backward_input", dy, w, size=case[0][2:], factor=4, **_attributes(case))
    check_rounded_once("conv2d_backward_weight", x, dy, kernel=case[1][2:], factor=4, **_attributes(case))


def test_no_window_has_no_gradient() -> None:
    """The kernel is one larger than the padded image, so the result of the convolution is empty."""
    dy = np.zeros((2, 4, 0, 3), np.float32)
    options: dict[str, Any] = {"stride": (2, 1), "padding": (1, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    w, x = random("f32", (4, 3, 5, 2)), random("f32", (2, 3, 3, 4))
    of_x = run("conv2d_backward_input", dy, w, size=(3, 4), **options)
    of_w = run("conv2d_backward_weight", x, dy, kernel=(5, 2), **options)
    assert of_x.shape == x.shape and not of_x.any() and of_w.shape == w.shape and not of_w.any()


def test_special_values_reach_only_their_window() -> None:
    dy = np.zeros((1, 1, 5, 1), np.float64)
    dy[0, 0, 2] = np.inf
    w = random("f64", (1, 1, 3, 1), low=1, high=2)
    options: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1, 0, 0), "dilation": (1, 1)}
    got = run("conv2d_backward_input", dy, w, size=(5, 1), **options)
    assert np.flatnonzero(np.isposinf(got)).tolist() == [1, 2, 3] and not np.isnan(got).any()
    of_w = run("conv2d_backward_weight", np.ones((1, 1, 5, 1)), dy, kernel=(3, 1), **options)
    assert np.isposinf(of_w).all()


@pytest.mark.parametrize(
    ("op", "operands", "attributes", "message"),
    [
        ("max_pool2d_backward", [(1, 1, 4, 4), (1, 1, 3, 2)], {"kernel": (2, 2), "stride": (2, 2)}, "must be f32"),
        ("conv2d_backward_input", [(1, 4, 3, 3), (4, 3, 2, 2)], {"size": (5, 4), "stride": (1, 1)}, "must be f32"),
        ("conv2d_backward_input", [(1, 4, 3, 3), (4, 3, 2, 2)], {"size": (4,), "stride": (1, 1)}, "height and width"),
        ("conv2d_backward_weight", [(1, 3, 4, 4), (1, 4, 3)], {"kernel": (2, 2), "stride": (1, 1)}, "rank 4"),
        ("conv2d_backward_weight", [(1, 3, 4, 4), (1, 4, 3, 3)], {"kernel": (0, 2), "stride": (1, 1)}, "is not in"),
    ],
)
def test_refusals(op: str, operands: Any, attributes: dict[str, Any], message: str) -> None:
    attributes = {"padding": (0, 0, 0, 0), **attributes}
    if op.startswith("conv"):
        attributes |= {"dilation": (1, 1), "groups": 1}
    with pytest.raises(ShapeError, match=message):
        run(op, *(random("f32", shape) for shape in operands), **attributes)


def test_groups_are_convolutions_of_their_own() -> None:
    case = ((2, 4, 6, 6), (4, 2, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2)
    x, w, dy = _operands(case, "f64")
    of_x = run("conv2d_backward_input", dy, w, size=(6, 6), **_attributes(case))
    of_w = run("conv2d_backward_weight", x, dy, kernel=(3, 3), **_attributes(case))
    alone = _attributes((*case[:5], 1))
    for group in (slice(0, 2), slice(2, 4)):
        agree(run("conv2d_backward_input", dy[:, group], w[group], size=(6, 6), **alone), of_x[:, group], factor=8)
        agree(run("conv2d_backward_weight", x[:, group], dy[:, group], kernel=(3, 3), **alone), of_w[group], factor=8)
