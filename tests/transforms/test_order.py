"""Derivatives and batches of ops that sort, scan along an axis, pad and draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.drawing import drawn
from tests.transforms.against_jax import check, graph_of
from tests.transforms.checks import check_second, check_vmap

RNG = np.random.default_rng(6)
# Tolerances by dtype, relative to the largest number.
ROOM: dict[Any, float] = {np.float64: 1e-14, np.float16: 4e-3, np.complex64: 1e-6}
FLOATS = (np.float64, np.float16)


def numbers(*shape: int, kind: Any = np.float64) -> np.ndarray:
    """Return random numbers."""
    return RNG.standard_normal(shape).astype(kind)


def few(*shape: int, kind: Any = np.float64) -> np.ndarray:
    """Return random numbers, many of them equal."""
    return RNG.integers(0, 4, shape).astype(kind)


# --- order ------------------------------------------------------------------------------------------


@drawn("kind", FLOATS, of_each=2)
@pytest.mark.parametrize(("axis", "descending"), [(0, False), (1, True), (2, False)])
def test_sort(axis: int, descending: bool, kind: Any) -> None:
    """Sorting is stable, so tangents move with their numbers."""

    def formula(x: Any) -> Any:
        return jnp.take_along_axis(x, jnp.argsort(x, axis, stable=True, descending=descending), axis)

    for x in (numbers(3, 7, 2, kind=kind), few(3, 7, 2, kind=kind)):
        check(lambda b, x: b.sort(x, axis=axis, descending=descending), formula, x, tolerance=ROOM[kind])


@drawn("kind", FLOATS, of_each=2)
@pytest.mark.parametrize("k", [0, 4, 7])
def test_topk(k: int, kind: Any) -> None:
    for x in (numbers(3, 7, kind=kind), few(3, 7, kind=kind)):
        check(lambda b, x: b.topk(x, k)[0], lambda x: jax.lax.top_k(x, k)[0], x, tolerance=ROOM[kind])


def test_order_with_symbols() -> None:
    x, dims = few(5, 3), [("n+2", 3)]
    check(lambda b, x: b.sort(x, axis=0), lambda x: jnp.sort(x, 0), x, dims=dims)
    check(lambda b, x: b.topk(b.transpose(x), 2)[0], lambda x: jax.lax.top_k(x.T, 2)[0], x, dims=dims)


def test_positions_hang_on_nothing() -> None:
    """A value taken at the position of the maximum has the tangent of that element."""

    def build(b: Any, x: Any) -> Any:
        chosen = (b.argmax(x, -1, keep_dims=True), b.argmin(x, -1, keep_dims=True), b.argsort(x, -1))
        return b.concat([b.gather_batched(x, c, axis=1) for c in chosen], axis=1) * 2.0

    def formula(x: Any) -> Any:
        return 2 * jnp.concatenate([x.max(1, keepdims=True), x.min(1, keepdims=True), jnp.sort(x, 1)], 1)

    check(build, formula, numbers(4, 6))


# --- running sums, products, maxima -----------------------------------------------------------------


def running(op: str, exclusive: bool = False) -> Callable[[Any, int], Any]:
    """Return a running sum or product in JAX."""
    function, neutral = {"cumsum": (jnp.cumsum, 0.0), "cumprod": (jnp.cumprod, 1.0)}[op]
    if not exclusive:
        return function

    def formula(x: Any, axis: int) -> Any:
        before = jax.lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)
        first = jnp.full_like(jax.lax.slice_in_dim(x, 0, 1, axis=axis), neutral)
        return jnp.concatenate([first, function(before, axis)], axis)

    return formula


@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
@drawn("kind", [*FLOATS, np.complex64], of_each=2)
@pytest.mark.parametrize(("axis", "exclusive"), [(0, False), (1, False), (0, True)])
def test_running_sums_and_products(op: str, axis: int, exclusive: bool, kind: Any) -> None:
    def build(b: Any, x: Any) -> Any:
        return getattr(b, op)(x, axis=axis, exclusive=exclusive)

    x = numbers(5, 6, kind=kind)
    if kind is np.complex64:
        x = x * np.exp(1j * numbers(5, 6)).astype(kind)
    check(build, lambda x: running(op, exclusive)(x, axis), x, tolerance=ROOM[kind])


@pytest.mark.parametrize("exclusive", [False, True])
def test_products_with_zeros(exclusive: bool) -> None:
    """With no zeros, one, two, or one at either end, derivatives of every order are those of a polynomial."""
    x = numbers(5, 5)
    x[1, 2] = x[2, 1] = x[2, 3] = x[3, 0] = x[4, 4] = 0
    build = lambda b, x: b.cumprod(x, axis=1, exclusive=exclusive)  # noqa: E731
    check(build, lambda x: running("cumprod", exclusive)(x, 1), x)
    check_second(graph_of(build, [x]), {"x0": x})


def maxima(x: Any) -> Any:
    """Running maxima equal separate reductions, in which ties share evenly."""
    return jnp.stack([jnp.max(x[:, : i + 1], 1) for i in range(x.shape[1])], 1)


@drawn("kind", FLOATS, of_each=2)
def test_running_maxima(kind: Any) -> None:
    rising = np.arange(6.0)
    rows = np.stack([rising, -rising, 0 * rising, np.floor(rising / 3), *few(2, 6), *numbers(2, 6)]).astype(kind)
    check(lambda b, x: b.cummax(x, axis=1), maxima, rows, tolerance=ROOM[kind])
    check(lambda b, x: b.cummax(x, axis=0), lambda x: maxima(x.T).T, rows.T.copy(), tolerance=ROOM[kind])
    least = np.array([[-np.inf, -np.inf, 3, -np.inf]], kind)
    check(lambda b, x: b.cummax(x, axis=1), maxima, least, tolerance=ROOM[kind])


def test_a_tangent_of_a_running_maximum_is_not_rounded() -> None:
    """Without ties, each tangent is one of the inputs, whatever preceded it."""
    x, tangent = np.array([3.0, 1.0, 4.0, 2.0, 5.0]), np.array([1e30, 1.0, 1e-30, 7.0, 2.0])
    graph = rlx.jvp(graph_of(lambda b, x: b.cummax(x, axis=0), [x]), "x0")
    got = rlx.evaluate(graph, {"x0": x, "tangent_x0": tangent})[1]
    np.testing.assert_array_equal(got, tangent[[0, 0, 2, 2, 4]])


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax"])
def test_running_with_symbols(op: str) -> None:
    formula = maxima if op == "cummax" else lambda x: running(op)(x, 1)
    check(lambda b, x: getattr(b, op)(x, axis=1), formula, numbers(3, 6), dims=[("m", "n")])


@pytest.mark.parametrize("op", ["cumsum", "cumprod", "cummax", "sort"])
@pytest.mark.parametrize("dims", [(3, 0), ("m", "n")])
def test_running_along_nothing(op: str, dims: Any) -> None:
    empty = np.zeros((3, 0))
    graph = graph_of(lambda b, x: getattr(b, op)(x, axis=1), [empty], [dims])
    for derivative, name in ((rlx.vjp, "cotangent_output0"), (rlx.jvp, "tangent_x0")):
        assert rlx.evaluate(derivative(graph, "x0"), {"x0": empty, name: empty})[1].shape == (3, 0)


# --- padding ----------------------------------------------------------------------------------------

MODES: dict[str, Any] = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@drawn("kind", FLOATS, of_each=2)
@pytest.mark.parametrize("mode", MODES)
def test_pad(mode: str, kind: Any) -> None:
    given = {"constant_values": 3.0} if mode == "constant" else {}
    for padding in (((2, 1), (0, 3)), ((0, 2), (3, 0))):
        check(
            lambda b, x, padding=padding: b.pad(x, padding, mode=mode, value=3.0),
            lambda x, padding=padding: jnp.pad(x, padding, MODES[mode], **given),
            numbers(4, 5, kind=kind),
            tolerance=ROOM[kind],
        )


@pytest.mark.parametrize("mode", MODES)
def test_pad_with_symbols(mode: str) -> None:
    check(
        lambda b, x: b.pad(x, [("n", 1), (0, 2)], mode=mode),
        lambda x: jnp.pad(x, [(3, 1), (0, 2)], MODES[mode]),
        numbers(5, 4),
        dims=[("n+2", 4)],
    )


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_triangular(diagonal: int) -> None:
    for upper, function in ((False, jnp.tril), (True, jnp.triu)):
        check(
            lambda b, x, upper=upper: b.triangular(x, upper=upper, diagonal=diagonal),
            lambda x, function=function: function(x, diagonal),
            numbers(2, 4, 3),
        )


# --- random numbers ---------------------------------------------------------------------------------


def test_random_numbers_hang_on_nothing() -> None:
    x, seed, cotangent = numbers(3, 5), np.array(7), numbers(3, 5)
    graph = graph_of(lambda b, x, s: b.concat([x * b.rng_normal((3, 5), s, dtype="f64")] * 2), [x, seed])
    twice, got = rlx.evaluate(
        rlx.vjp(graph, "x0"), {"x0": x, "x1": seed, "cotangent_output0": np.concatenate([cotangent, 0 * cotangent])}
    )
    np.testing.assert_allclose(got, cotangent * twice[:3] / x, rtol=1e-14)


@pytest.mark.parametrize("axes", [{"x1": 0}, {"x0": 1}, {"x0": 0, "x1": 0}])
def test_vmap_of_draws(axes: dict[str, int]) -> None:
    """Each seed of a batch gives its own numbers; one seed for all entries gives each the same."""
    values = {"x0": numbers(4, 6), "x1": np.array(3)}
    fresh = {"x0": [numbers(4, 6) for _ in range(3)], "x1": [np.array(s) for s in (11, -(2**62), 0)]}
    builds: list[Callable[..., Any]] = [
        lambda b, x, s: b.sample(x, s),
        lambda b, x, s: b.sample(x, s, top_k=3),
        lambda b, x, s: b.sample(x, s, top_p=0.7),
        lambda b, x, s: b.sample(x, s, temperature=0.0),
        lambda b, x, s: x + b.rng_uniform((4, 6), s, -1.0, 3.0, dtype="f64"),
        lambda b, x, s: x * b.rng_normal((4, 6), s, dtype="f64"),
    ]
    for build in builds:
        graph = graph_of(build, list(values.values()))
        check_vmap(graph, values, axes, fresh={name: fresh[name] for name in axes})
