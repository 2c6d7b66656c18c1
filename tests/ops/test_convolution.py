"""Convolution against JAX and, in one dimension, SciPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import rlx
from tests.ops.references import FLOATS, INTEGERS, agree, in_jax, random, run, samples_of

_LAYOUTS = {3: ("NCH", "OIH", "NCH"), 4: ("NCHW", "OIHW", "NCHW"), 5: ("NCHWD", "OIHWD", "NCHWD")}
_CASES: list[tuple[Any, ...]] = [
    ((2, 3, 6, 5), (4, 3, 3, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 4, 9), (6, 2, 3), (2,), (1, 2), (1,), 2),
    ((2, 4, 9), (6, 2, 3), (3,), (0, 4), (2,), 2),
    ((1, 2, 5, 4, 3), (3, 2, 2, 2, 2), (1, 2, 1), (1, 0, 0, 1, 1, 1), (2, 1, 1), 1),
    ((2, 4, 7, 7), (4, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4),
    ((2, 4, 7, 8), (8, 1, 3, 1), (2, 3), (2, 0, 0, 1), (2, 2), 4),
    ((1, 1, 1, 3), (1, 1, 1, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((0, 3, 6), (4, 3, 2), (1,), (0, 0), (1,), 1),
    ((2, 3, 1), (4, 3, 2), (1,), (0, 0), (1,), 1),
]


@pytest.mark.parametrize(
    ("case", "name"), [(c, "f32") for c in _CASES] + [(_CASES[5], d) for d in FLOATS if d != "f32"], ids=str
)
def test_conv(case: Any, name: str) -> None:
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w = random(name, x_shape, seed=1), random(name, w_shape, seed=2)
    pads = list(zip(padding[::2], padding[1::2], strict=True))

    def reference(a: Any, b: Any) -> Any:
        return jax.lax.conv_general_dilated(
            a,
            b,
            stride,
            pads,
            rhs_dilation=dilation,
            dimension_numbers=_LAYOUTS[len(x_shape)],
            feature_group_count=groups,
            precision="highest",
        )

    wide = np.float64 if name == "f64" else np.float32
    expected = in_jax(reference, x.astype(wide), w.astype(wide)).astype(x.dtype)
    room = in_jax(reference, np.abs(x).astype(np.float64), np.abs(w).astype(np.float64)) * np.finfo(wide).eps
    got = run("conv", x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    agree(got, expected, noise=room)


def test_conv_is_scipys_correlation() -> None:
    from scipy import signal

    x, w = random("f64", (1, 1, 20), seed=1), random("f64", (1, 1, 5), seed=2)
    attributes = {"stride": (1,), "dilation": (1,), "groups": 1}
    valid = run("conv", x, w, padding=(0, 0), **attributes)
    agree(valid[0, 0], signal.correlate(x[0, 0], w[0, 0], "valid"), factor=8)
    same = run("conv", x, w, padding=(2, 2), **attributes)
    agree(same[0, 0], signal.correlate(x[0, 0], w[0, 0], "same"), factor=8)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation"),
    [((7,), 3, 1, 1), ((8,), 4, 1, 2), ((6, 5), 2, 1, 1), ((7, 8), 3, 2, 1), ((5,), 2, 3, 2), ((4, 3, 5), 3, 2, 1)],
)
def test_same_padding_is_jaxs(size: tuple[int, ...], kernel: int, stride: int, dilation: int) -> None:
    count = len(size)
    x, w = random("f64", (2, 2, *size), seed=1), random("f64", (3, 2, *(kernel,) * count), seed=2)
    options = {"rhs_dilation": (dilation,) * count, "dimension_numbers": _LAYOUTS[2 + count]}
    expected = in_jax(lambda a, b: jax.lax.conv_general_dilated(a, b, (stride,) * count, "SAME", **options), x, w)
    shapes: list[Any] = [x.shape]
    if stride == 1:  # then the padding does not depend on sizes
        shapes.append(("n", 2, *(f"size{i}" for i in range(count))))
    for shape in shapes:
        g = rlx.Graph("same")
        image = g.input("x", rlx.Shape(shape, "f64"))
        g.set_outputs([g.conv(image, w, stride, "same", dilation)])
        assert stride > 1 or g.outputs[0].shape.dims[2:] == image.shape.dims[2:]
        agree(rlx.evaluate(g, {"x": x})[0], expected, noise=100 * np.finfo(np.float64).eps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": "some"}, "'same' or 'valid'"),
        ({"padding": (1, 2, 3)}, "2 entries"),
        ({"padding": [(1, 2), (3,)]}, "4 entries"),
        ({"padding": 1.5}, "an integer or a list"),
        ({"padding": -1}, "is not in"),
        ({"padding": "same", "stride": 0}, "'stride': 0 is not in"),
        ({"padding": "same", "stride": 2}, "static"),
        ({"dilation": (1, 0)}, "'dilation': 0 is not in"),
        ({"groups": 0}, "'groups': 0 is not in"),
        ({"groups": 2}, "2 groups"),
        ({"w": (3, 2, 2), "padding": "same"}, "rank"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    g = rlx.Graph("refused")
    x = g.input("x", rlx.Shape((1, 2, "h", 5), "f32"))
    w = np.ones(options.get("w", (3, 2, 2, 2)), np.float32)
    with pytest.raises(rlx.ShapeError, match=message):
        g.conv(x, w, **{k: v for k, v in options.items() if k != "w"})


def test_special_values_reach_only_their_window() -> None:
    x = np.zeros((1, 1, 9), np.float32)
    x[0, 0, 2], x[0, 0, 6] = np.nan, np.inf
    w = np.ones((1, 1, 3), np.float32)
    got = run("conv", x, w, stride=(1,), padding=(1, 1), dilation=(1,), groups=1)
    assert np.flatnonzero(np.isnan(got)).tolist() == [1, 2, 3]
    assert np.flatnonzero(np.isinf(got)).tolist() == [5, 6, 7]
    negative = run("conv", x, -w, stride=(1,), padding=(0, 0), dilation=(1,), groups=1)
    assert np.flatnonzero(np.isneginf(negative)).tolist() == [4, 5, 6]


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_conv_wraps(name: str) -> None:
    x = np.resize(samples_of(name, high=100, seed=1), (2, 4, 9))
    w = np.resize(samples_of(name, high=100, seed=2), (6, 2, 3))
    got = run("conv", x, w, stride=(2,), padding=(1, 2), dilation=(2,), groups=2)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2))).astype(object)
    modulus = 1 << 8 * x.dtype.itemsize
    for n, o, i in np.ndindex(*got.shape):
        window = padded[n, 2 * (o // 3) : 2 * (o // 3) + 2, 2 * i : 2 * i + 5 : 2]
        assert int(got[n, o, i]) % modulus == int((window * w[o].astype(object)).sum()) % modulus
