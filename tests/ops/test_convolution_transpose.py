"""Transposed convolution against its formula, the transpose of RLX's convolution, JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import decomposition, evaluate_decomposition
from rlx.ir.op.registry import card
from tests.ops.references import FLOATS, agree, in_jax, random, run

_LAYOUTS = {3: ("NCH", "OIH", "NCH"), 4: ("NCHW", "OIHW", "NCHW"), 5: ("NCHWD", "OIHWD", "NCHWD")}
_CASES: list[tuple[Any, ...]] = [
    # x, w, stride, padding, output_padding, dilation, groups
    ((2, 3, 4, 3), (3, 2, 3, 2), (2, 1), (1, 0, 0, 1), (1, 0), (1, 1), 1),
    ((2, 4, 5), (4, 3, 4), (2,), (1, 1), (0,), (1,), 2),
    ((2, 4, 5), (4, 3, 2), (3,), (0, 0), (0,), (1,), 1),
    ((1, 4, 3), (4, 1, 3), (3,), (5, 0), (2,), (2,), 4),
    ((1, 2, 6), (2, 2, 3), (4,), (0, 9), (3,), (6,), 1),
    ((1, 2, 2, 3, 2), (2, 3, 2, 1, 2), (2, 2, 1), (0,) * 6, (0, 1, 0), (1, 1, 2), 1),
    ((2, 2, 4, 4), (2, 2, 1, 1), (2, 2), (0,) * 4, (1, 1), (1, 1), 1),
    ((0, 2, 4), (2, 3, 3), (2,), (0, 0), (0,), (1,), 1),
]


def _generated() -> Iterator[tuple[Any, ...]]:
    """Yield cases in one and two dimensions with all kinds of edges, with kernels that share factors with the stride or not."""
    rng = np.random.default_rng(7)
    for stride in range(1, 5):
        for dilation in range(1, 5):
            for kernel in (1, 2, 3, 5):
                groups, count = int(rng.integers(1, 3)), int(rng.integers(1, 3))
                sizes = rng.integers(1, 5, count) + kernel * dilation
                edges = rng.integers(0, dilation * (kernel - 1) + 3, 2 * count)
                x, w = (2, 2 * groups, *map(int, sizes)), (3 * groups, 2, *(kernel,) * count)
                yield x, w, (stride,) * count, tuple(map(int, edges)), (dilation,) * count, groups


@pytest.mark.parametrize(
    ("case", "name"), [(c, "f32") for c in _CASES] + [(_CASES[0], d) for d in FLOATS if d != "f32"], ids=str
)
def test_conv_transpose_is_the_scatter_of_its_formula(case: Any, name: str) -> None:
    x_shape, w_shape, stride, padding, extra, dilation, groups = case
    x, w = random(name, x_shape, seed=1), random(name, w_shape, seed=2)
    got = run(
        "conv_transpose", x, w, stride=stride, padding=padding, output_padding=extra, dilation=dilation, groups=groups
    )
    expected = _scattered(x.astype(np.float64), w.astype(np.float64), *case[2:])
    agree(got, expected.astype(x.dtype), noise=np.finfo(np.float64).eps)


def _scattered(x: Any, w: Any, stride: Any, padding: Any, extra: Any, dilation: Any, groups: int) -> np.ndarray:
    """Add every product of an element and a tap at its position."""
    kernel, sizes, per_group = w.shape[2:], x.shape[2:], w.shape[1]
    before, after = padding[::2], padding[1::2]
    out = [
        (n - 1) * s - b - a + d * (k - 1) + e + 1
        for n, s, b, a, d, k, e in zip(sizes, stride, before, after, dilation, kernel, extra, strict=True)
    ]
    result = np.zeros((x.shape[0], per_group * groups, *out))
    for i in np.ndindex(*sizes):
        for tap in np.ndindex(*kernel):
            place = [p * s + t * d - b for p, s, t, d, b in zip(i, stride, tap, dilation, before, strict=True)]
            if any(p < 0 or p >= o for p, o in zip(place, out, strict=True)):
                continue
            for c in range(x.shape[1]):
                first = c // (x.shape[1] // groups) * per_group
                products = x[:, c, *i][:, None] * w[c, :, *tap]
                result[:, first : first + per_group, *place] += products
    return result


@pytest.mark.parametrize("case", list(_generated()), ids=str)
def test_conv_transpose_is_the_transpose_of_conv(case: Any) -> None:
    """`<conv(x, w), y> = <x, conv_transpose(y, w)>`, for the evaluator and the decomposition."""
    x_shape, w_shape, stride, padding, dilation, groups = case
    x, w = random("f64", x_shape, seed=1), random("f64", w_shape, seed=2)
    forward = run("conv", x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    y = random("f64", forward.shape, seed=3)
    # The positions at the end that the strides of the convolution left over.
    grown = zip(x_shape[2:], w_shape[2:], stride, padding[::2], padding[1::2], dilation, strict=True)
    extra = tuple((n + b + a - d * (k - 1) - 1) % s for n, k, s, b, a, d in grown)
    window = {"stride": stride, "padding": padding, "output_padding": extra, "dilation": dilation, "groups": groups}
    got = run("conv_transpose", y, w, **window)
    assert got.shape == x.shape
    assert np.allclose(np.vdot(forward, y), np.vdot(x, got), rtol=1e-12)
    decomposed = evaluate_decomposition(card("conv_transpose"), (y, w), window)
    agree(decomposed, got, noise=100 * np.finfo(np.float64).eps)


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_conv_transpose_in_jax(case: Any) -> None:
    """The reference is a convolution of the dilated input with the reversed kernel."""
    x_shape, w_shape, stride, padding, extra, dilation, groups = case
    x, w = random("f64", x_shape, seed=1), random("f64", w_shape, seed=2)
    spans = [d * (k - 1) for d, k in zip(dilation, w_shape[2:], strict=True)]
    pads = [(n - b, n - a + e) for n, b, a, e in zip(spans, padding[::2], padding[1::2], extra, strict=True)]

    def reference(x: Any, w: Any) -> Any:
        grouped = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
        kernel = jax.numpy.flip(grouped.reshape(-1, w.shape[0] // groups, *w.shape[2:]), range(2, w.ndim))
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (1,) * len(stride),
            pads,
            lhs_dilation=stride,
            rhs_dilation=dilation,
            dimension_numbers=_LAYOUTS[x.ndim],
            feature_group_count=groups,
            precision="highest",
        )

    got = run(
        "conv_transpose", x, w, stride=stride, padding=padding, output_padding=extra, dilation=dilation, groups=groups
    )
    agree(got, in_jax(reference, x, w), noise=100 * np.finfo(np.float64).eps)


def test_special_values_reach_only_their_window() -> None:
    x = np.zeros((1, 1, 5), np.float32)
    x[0, 0, 1], x[0, 0, 3] = np.nan, np.inf
    w = np.ones((1, 1, 3), np.float32)
    rest: Any = {"padding": (1, 0), "output_padding": (1,), "dilation": (1,), "groups": 1}
    got = run("conv_transpose", x, w, stride=(3,), **rest)
    assert np.flatnonzero(np.isnan(got)).tolist() == [2, 3, 4]
    assert np.flatnonzero(np.isinf(got)).tolist() == [8, 9, 10]


def test_nothing_to_scatter_gives_zeros() -> None:
    x, w = np.zeros((1, 2, 0), np.float32), random("f32", (2, 3, 4))
    got = run("conv_transpose", x, w, stride=(1,), padding=(0, 0), output_padding=(0,), dilation=(1,), groups=1)
    assert got.shape == (1, 3, 3) and not got.any()


@pytest.mark.parametrize(("kernel", "convolutions"), [((4, 4), 1), ((2, 2), 1), ((4, 3), 2), ((3, 3), 4)])
def test_phases_with_as_many_taps_are_one_convolution(kernel: tuple[int, int], convolutions: int) -> None:
    x, w = np.zeros((1, 2, 3, 3), np.float32), np.zeros((2, 3, *kernel), np.float32)
    window = {"stride": (2, 2), "padding": (1,) * 4, "output_padding": (0, 0), "dilation": (1, 1), "groups": 1}
    graph, _ = decomposition(card("conv_transpose"), (x, w), window)
    assert str(graph).count("rlx.conv(") == convolutions


def test_as_users_write_it() -> None:
    x, w = random("f32", (1, 2, 3, 4), seed=1), random("f32", (2, 3, 3, 3), seed=2)
    g = rlx.Graph("transposed")
    image = g.input("x", rlx.Shape(x.shape, "f32"))
    g.set_outputs(
        [
            g.conv_transpose(image, w),
            g.conv_transpose(image, w, 2, 1, 1),
            rlx.ops.conv_transpose(image, w, (2, 1), [(0, 1), (2, 0)], dilation=2),
        ]
    )
    geometries = [
        ((1, 1), (0,) * 4, (0, 0), (1, 1), 1),
        ((2, 2), (1,) * 4, (1, 1), (1, 1), 1),
        ((2, 1), (0, 1, 2, 0), (0, 0), (2, 2), 1),
    ]
    for got, geometry in zip(rlx.evaluate(g, {"x": x}), geometries, strict=True):
        expected = _scattered(x.astype(np.float64), w.astype(np.float64), *geometry)
        agree(got, expected.astype(np.float32), noise=np.finfo(np.float64).eps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": "same"}, "not a number"),
        ({"padding": 4}, "too few for padding 4 and 4"),
        ({"padding": -1}, "is not in"),
        ({"output_padding": -1}, "'output_padding': -1 is not in"),
        ({"output_padding": (1, 2, 3)}, "2 entries"),
        ({"stride": 0}, "'stride': 0 is not in"),
        ({"groups": 0}, "'groups': 0 is not in"),
        ({"groups": 3}, "3 groups"),
        ({"w": (3, 2, 2, 2)}, "needs w"),
        ({"w": (2, 2, 2)}, "rank"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    g = rlx.Graph("refused")
    x = g.input("x", rlx.Shape((1, 2, 4, 4), "f32"))
    w = np.ones(options.get("w", (2, 2, 2, 2)), np.float32)
    with pytest.raises(rlx.ShapeError, match=message):
        g.conv_transpose(x, w, **{k: v for k, v in options.items() if k != "w"})
