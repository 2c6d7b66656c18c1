"""Reductions against the NumPy and SciPy functions of the same names."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError
from tests.functions.test_spectral import built
from tests.ops.references import random

EDGES = np.asarray([[1.0, np.nan, 2.0], [np.inf, -1.0, 3.0], [-np.inf] * 3, [0.0, -0.0, 5e15]], np.float32)
ARRAYS = {
    "f32": random("f32", (2, 3, 4)) + np.float32(1e3),
    "edges": EDGES,
    "i32": np.arange(-5, 7, dtype=np.int32).reshape(3, 4),
    "i8": np.asarray([[-128, 127, 0], [3, 3, -1]], np.int8),
    "u8": np.asarray([[0, 255, 7], [3, 3, 1]], np.uint8),
    "bool": np.asarray([[True, False], [False, False]]),
    "f64": random("f64", (3, 4)),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "var": np.var,
    "std": np.std,
    "any": np.any,
    "all": np.all,
    "count_nonzero": np.count_nonzero,
    "median": np.median,
    "average": np.average,
    "logsumexp": logsumexp,
}


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_what_numpy_gives(name: str, array: str) -> None:
    x = ARRAYS[array]
    exact = x.astype(np.float64)
    for options in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = np.asarray(FUNCTIONS[name](exact, **options))
            (got,) = built(lambda g, t, o=options: getattr(g, name)(t, **o), x)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("q", [0, 0.3, 0.5, 1])
def test_quantiles(q: float) -> None:
    x = random("f32", (5, 4, 3))
    cases: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}]
    for options in cases:
        (got,) = built(lambda g, t, o=options: g.quantile(t, q, **o), x)
        np.testing.assert_allclose(got, np.quantile(x.astype(np.float64), q, **options), rtol=1e-6)


def test_degrees_of_freedom() -> None:
    x = random("f32", (3, 4))
    for ddof in (0, 1, 0.5, 4):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = np.var(x.astype(np.float64), axis=1, ddof=ddof)
            np.testing.assert_allclose(built(lambda g, t, d=ddof: g.var(t, 1, d), x)[0], expected, rtol=1e-6)
            symbolic = built(lambda g, t, d=ddof: g.var(t, 1, d), x, dims=[(3, "n")])[0]
        np.testing.assert_allclose(symbolic, expected, rtol=1e-6)


@pytest.mark.parametrize("array", ["f32", "i32", "i8", "u8"])
def test_along_an_axis(array: str) -> None:
    x = ARRAYS[array]
    np.testing.assert_array_equal(built(lambda g, t: g.diff(t, 2, axis=0), x)[0], np.diff(x, 2, axis=0))
    np.testing.assert_array_equal(built(lambda g, t: g.ptp(t, axis=-1), x)[0], np.ptp(x, axis=-1))
    np.testing.assert_array_equal(built(lambda g, t: g.cummin(t, 1), x)[0], np.minimum.accumulate(x, 1))


def test_of_bools_and_of_edges() -> None:
    bools = ARRAYS["bool"]
    np.testing.assert_array_equal(built(lambda g, t: g.diff(t), bools)[0], np.diff(bools))
    np.testing.assert_array_equal(built(lambda g, t: g.cummin(t, 1), EDGES)[0], np.minimum.accumulate(EDGES, 1))
    empty = np.zeros((2, 0), np.float32)
    assert built(lambda g, t: g.any(t, 1), empty)[0].tolist() == [False, False]
    assert built(lambda g, t: g.all(t, 1), empty)[0].tolist() == [True, True]
    assert built(lambda g, t: g.logsumexp(t, 1), empty)[0].tolist() == [-np.inf, -np.inf]


def test_the_gradient_of_logsumexp_is_that_of_jax() -> None:
    jax = pytest.importorskip("jax")
    from jax.scipy.special import logsumexp as theirs

    import rlx

    for x in (EDGES, random("f32", (4, 3)), np.asarray([[1e30, 1e30, -np.inf]], np.float32)):
        graph = Graph()
        t = graph.param("x", Shape(x.shape, rlx.f32))
        graph.set_outputs(graph.sum(graph.logsumexp(t, 1)))
        got = evaluate(rlx.grad(graph, ["x"]), {"x": x})[-1]
        expected = np.asarray(jax.grad(lambda v: theirs(v, axis=1).sum())(x))
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_weights() -> None:
    x, w = random("f32", (3, 4)), np.asarray([1, 2, 3, 4], np.float32)
    got = built(lambda g, t: g.average(t, axis=1, weights=w), x)[0]
    np.testing.assert_allclose(got, np.average(x.astype(np.float64), axis=1, weights=w), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.quantile(x, 2), "from 0 to 1"),
        (lambda g, x: g.var(x, 5), "out of range"),
        (lambda g, x: g.average(x, weights=[1.0]), "have neither"),
        (lambda g, x: g.diff(x, -1), "from 0 on"),
    ],
)
def test_mistakes_name_the_call(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        built(call, ARRAYS["f32"])


SPECIAL_VALUES = np.array([[0.5, -2.0, np.nan], [np.inf, 0.25, -np.inf]], np.float32)
NAMES: dict[str, Any] = {
    "nansum": lambda m, x: m.nansum(x[:, 1:2]),
    "nanmean": lambda m, x: m.nanmean(x, axis=0)[1:2],
    "nanmax": lambda m, x: m.nanmax(x, axis=1),
    "nanmin": lambda m, x: m.nanmin(x, axis=0),
    "nanprod": lambda m, x: m.nanprod(x[0]),
    "deg2rad": lambda m, x: m.deg2rad(x),
    "rad2deg": lambda m, x: m.rad2deg(x),
    "sinc": lambda m, x: m.sinc(x[:, 1:2] * 0.5),
    "heaviside": lambda m, x: m.heaviside(x - 0.5, np.float32(0.5)),
    "isclose": lambda m, x: m.isclose(x, x[::-1] + 1e-6, rtol=1e-3),
    "isclose nan": lambda m, x: m.isclose(x, x, equal_nan=True),
    "allclose": lambda m, x: m.allclose(x[:, 1], x[:, 1]),
    "array_equal": lambda m, x: m.array_equal(x, x),
    "rot90": lambda m, x: m.rot90(x, 3),
    "rot90 back": lambda m, x: m.rot90(x, -2, axes=(1, 0)),
}


@pytest.mark.parametrize("name", NAMES)
def test_more_names_of_numpy(name: str) -> None:
    call = NAMES[name]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(built(call, SPECIAL_VALUES)[0], call(np, SPECIAL_VALUES), rtol=1e-6)


def test_names_of_scipy_and_pytorch() -> None:
    x = np.array([0.0, 0.25, 0.5, 1.0], np.float32)
    special: Any = pytest.importorskip("scipy.special")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(built(lambda g, x: g.logit(x), x)[0], special.logit(x), rtol=1e-6)
        np.testing.assert_allclose(built(lambda g, x: g.xlogy(x, x), x)[0], special.xlogy(x, x), rtol=1e-6)
    np.testing.assert_allclose(built(lambda g, x: g.lerp(x, 2.0, 0.5), x)[0], (x + 2) / 2)
    np.testing.assert_allclose(built(lambda g, x: g.frac(x * 3 - 2), x)[0], np.modf(x * 3 - 2)[0])


def test_several_quantiles_are_along_a_new_axis() -> None:
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    for q in ([0, 0.3, 1], (0.5,), np.array([0.1, 0.9])):
        (got,) = built(lambda g, t, q=q: g.quantile(t, q, axis=1), x)
        np.testing.assert_allclose(got, np.quantile(x.astype(np.float64), q, axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.rot90(x, 1.5), "rot90: k is a number of right angles, an integer, got 1.5"),
        (lambda g, x: g.rot90(x, axes=(0,)), r"rot90: axes are two axes of the tensor, got \(0,\) for f32\[2, 3\]"),
        (lambda g, x: g.rot90(x, axes=(0, 0)), "rot90: axes .* name an axis twice"),
    ],
)
def test_turns_that_are_none_are_refused(call: Any, message: str) -> None:
    g: Any = Graph()
    with pytest.raises(ShapeError, match=message):
        call(g, g.input("x", (2, 3)))
