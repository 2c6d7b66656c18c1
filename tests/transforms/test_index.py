"""Derivatives and batches of gathers and scatters: repeated and out-of-range indices, and empty tensors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from tests.transforms.against_jax import check, graph_of
from tests.transforms.checks import check_second, check_vmap

RNG = np.random.default_rng(5)
# Tolerances by dtype, relative to the largest number.
ROOM = {"f64": 1e-14, "f16": 4e-3, "c64": 1e-6}


def numbers(*shape: int, kind: str = "f64") -> np.ndarray:
    """Return random numbers."""
    values = RNG.standard_normal(shape)
    if kind == "c64":
        values = values + 1j * RNG.standard_normal(shape)
    return values.astype({"f64": np.float64, "f16": np.float16, "c64": np.complex64}[kind])


def indices(*shape: int, low: int = -3, high: int = 9, kind: Any = np.int32) -> np.ndarray:
    """Return random indices, some of them out of range and some repeated."""
    return RNG.integers(low, high, shape).astype(kind)


# --- gathers ----------------------------------------------------------------------------------------

GATHERS: list[tuple[Any, ...]] = [
    ("f64", (5, 3), (7,), 0),
    ("f16", (5, 3), (7,), 0),
    ("c64", (5, 3), (7,), 0),
    ("f64", (2, 5, 3), (4, 2), 1),
    ("f64", (2, 5), (), 1),
    ("f64", (2, 3, 5), (0,), 2),
]


@pytest.mark.parametrize(("kind", "shape", "places", "axis"), GATHERS)
def test_gather(kind: str, shape: tuple[int, ...], places: tuple[int, ...], axis: int) -> None:
    x, i = numbers(*shape, kind=kind), indices(*places)
    take = lambda x, i: jnp.take(x, i, axis, mode="clip")  # noqa: E731
    check(lambda b, x, i: b.gather(x, i, axis=axis), take, x, i, tolerance=ROOM[kind])


def take(x: Any, i: Any) -> Any:
    """Return `gather` along the first axis, in JAX."""
    return jnp.take(x, i, 0, mode="clip")


def test_gather_of_the_largest_index() -> None:
    check(lambda b, x, i: b.gather(x, i), take, numbers(3, 2), np.array([2**63 - 1, -(2**63), 1, 1]))
    check(lambda b, x, i: b.embedding(x, i), take, numbers(3, 2), np.array([[127, -128], [1, 1]], np.int8))


@pytest.mark.parametrize(("n", "m"), [(5, 4), (4, 0)])
def test_gather_with_symbols(n: int, m: int) -> None:
    check(lambda b, x, i: b.gather(x, i), take, numbers(n, 3), indices(m), dims=[("n", 3), ("m",)])


@pytest.mark.parametrize(("kind", "shape", "places", "dims"), [
    ("f64", (5, 3), (4,), None),
    ("f64", (2, 5, 3), (2, 4), None),
    ("f16", (2, 5, 3), (2, 4), None),
    ("c64", (2, 5, 3), (2, 4), None),
    ("f64", (2, 3, 5, 2), (2, 3, 4, 2), None),
    ("f64", (2, 5, 3), (2, 4), [("b", "n", 3), ("b", "m")]),
    ("f64", (0, 5, 3), (0, 4), [("b", "n", 3), ("b", "m")]),
])  # fmt: skip
def test_gather_batched(kind: str, shape: tuple[int, ...], places: tuple[int, ...], dims: Any) -> None:
    axis, formula = len(shape) - 2, take
    for _ in range(axis):
        formula = jax.vmap(formula)
    x, i = numbers(*shape, kind=kind), indices(*places)
    check(lambda b, x, i: b.gather_batched(x, i, axis=axis), formula, x, i, tolerance=ROOM[kind], dims=dims)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_gather_nd(count: int) -> None:
    def formula(x: Any, i: Any) -> Any:
        chosen = tuple(jnp.clip(i[:, k], 0, x.shape[k] - 1) for k in range(count))
        return x[chosen] if count else jnp.broadcast_to(x, (6, *x.shape))

    check(lambda b, x, i: b.gather_nd(x, i), formula, numbers(3, 4, 2), indices(6, count, low=-1, high=5))


@pytest.mark.parametrize("axes", [{"x0": 0}, {"x0": 2}, {"x1": 0}, {"x1": 1}, {"x0": 1, "x1": 0}, {"x0": 3, "x1": 2}])
def test_vmap_of_gathers(axes: dict[str, int]) -> None:
    builds = (
        lambda b, x, i: b.gather(x, i, axis=2),
        lambda b, x, i: b.gather(x, i, axis=0),
        lambda b, x, i: b.gather_batched(x, i, axis=1),
        lambda b, x, i: b.gather_nd(x, i, batch_dims=1),
    )
    x, i = numbers(2, 5, 4), indices(2, 2)
    for build in builds:
        for out_axis in (0, -1):
            check_vmap(graph_of(build, [x, i]), {"x0": x, "x1": i}, axes, out_axis=out_axis)


def test_vmap_of_gradients() -> None:
    """A batch of lookup gradients equals that of jax.vmap."""
    x, many = numbers(5, 3), {"x1": indices(6, 4), "cotangent_output0": numbers(6, 4, 3)}
    graph = rlx.vjp(graph_of(lambda b, x, i: b.gather(x, i) * 2.0, [x, many["x1"][0]]), "x0")
    got = rlx.evaluate(rlx.vmap(graph, tuple(many), 6), {"x0": x, **many})[1]

    def gradient(i: Any, dy: Any) -> Any:
        return jax.vjp(lambda x: take(x, i) * 2.0, x)[1](dy)[0]

    with jax.enable_x64(True):
        expected = jax.vmap(gradient)(*many.values())
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)


# --- scatters ---------------------------------------------------------------------------------------


def scattered(reduction: str) -> Any:
    """Return `scatter_nd` in JAX, where negative indices would otherwise count from the end."""

    def formula(x: Any, i: Any, u: Any) -> Any:
        count = i.shape[-1]
        sizes = jnp.asarray(x.shape[:count], i.dtype)
        inside = jnp.where(((i >= 0) & (i < sizes)).all(-1, keepdims=True), i, sizes)
        at = x.at[tuple(inside[..., k] for k in range(count))]
        return getattr(at, {"mul": "multiply"}.get(reduction, reduction))(u, mode="drop")

    return formula


def build_scatter(reduction: str) -> Any:
    """Return `scatter_nd` as a graph."""
    return lambda b, x, i, u: b.scatter_nd(x, i, u, reduction=reduction)


def scatter_values(shape: tuple[int, ...], places: tuple[int, ...], kind: str = "f64") -> list[np.ndarray]:
    """Return operands of a `scatter_nd`."""
    i = indices(*places, low=-1, high=5)
    return [numbers(*shape, kind=kind), i, numbers(*places[:-1], *shape[places[-1] :], kind=kind)]


@pytest.mark.parametrize("reduction", ["set", "add", "max", "min"])
def test_scatter(reduction: str) -> None:
    for kind in ("f64", "f16", *(("c64",) if reduction in ("set", "add") else ())):
        values = scatter_values((4, 3), (9, 1), kind)
        check(build_scatter(reduction), scattered(reduction), *values, tolerance=ROOM[kind])
    check(build_scatter(reduction), scattered(reduction), *scatter_values((3, 4, 2), (3, 2, 2)))


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_ties_of_a_scatter_share_evenly(reduction: str) -> None:
    """Ties among updates and with the old values. A dropped update gets no share, even if equal to a row."""
    x, i = np.array([1.0, 2.0, 2.0, 5.0]), np.array([[0], [0], [0], [1], [2], [2], [7], [-2], [9]])
    u = np.array([2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 5.0, 1.0, 5.0])
    check(build_scatter(reduction), scattered(reduction), x, i, u)


def _check_products(x: np.ndarray, i: np.ndarray, u: np.ndarray, tolerance: float = 1e-12, dims: Any = None) -> None:
    """Compared with products with one update at a time, each at a distinct position, which JAX can differentiate."""

    def formula(x: Any, _: Any, u: Any) -> Any:
        for index, update in zip(i, u, strict=True):
            if all(0 <= k < size for k, size in zip(index, x.shape, strict=False)):
                x = x.at[tuple(index)].multiply(update, unique_indices=True)
        return x

    check(build_scatter("mul"), formula, x, i, u, tolerance=tolerance, dims=dims)


@pytest.mark.parametrize(("kind", "shape", "places"), [
    ("f64", (4, 3), (9, 1)), ("f16", (4, 3), (9, 1)), ("c64", (4, 3), (9, 1)), ("f64", (2, 3, 2), (8, 2)),
    ("f64", (3,), (4, 0)),
])  # fmt: skip
def test_products_of_a_scatter(kind: str, shape: tuple[int, ...], places: tuple[int, ...]) -> None:
    """With zeros among the updates, one or several per position, derivatives of every order are those of a polynomial."""
    x, i, u = scatter_values(shape, places, kind)
    u[::3] = x[0] = 0
    _check_products(x, i, u, tolerance=ROOM[kind])
    if kind == "f64":
        check_second(graph_of(build_scatter("mul"), [x, i, u]), {"x0": x, "x1": i, "x2": u})


@pytest.mark.parametrize("reduction", ["set", "max", "mul"])
@pytest.mark.parametrize(("n", "m"), [(4, 6), (3, 0), (0, 2)])
def test_scatter_with_symbols(reduction: str, n: int, m: int) -> None:
    """Updates of an empty tensor are dropped, and their cotangents are zeros."""
    x, i, u = scatter_values((n, 2), (m, 1))
    dims = [("n", 2), ("m", 1), ("m", 2)]
    if reduction == "mul":
        _check_products(x, i, u, dims=dims)
    else:  # JAX cannot gather from an empty tensor
        formula = scattered(reduction) if n else lambda x, *_: x
        check(build_scatter(reduction), formula, x, i, u, dims=dims)


@pytest.mark.parametrize("kind", ROOM)
def test_scatter_add(kind: str) -> None:
    def formula(u: Any, i: Any) -> Any:
        return jnp.zeros((5, 3), u.dtype).at[jnp.where(i < 0, 5, i)].add(u, mode="drop")

    values = numbers(4, 2, 3, kind=kind), indices(4, 2)
    check(lambda b, u, i: b.scatter_add(u, i, size=5), formula, *values, tolerance=ROOM[kind])


@pytest.mark.parametrize("reduction", ["set", "add", "mul", "max"])
@pytest.mark.parametrize(
    "axes", [{"x0": 1}, {"x1": 0}, {"x1": 2}, {"x2": 2}, {"x0": 0, "x2": 1}, {"x0": 2, "x1": 1, "x2": 0}]
)
def test_vmap_of_scatters(reduction: str, axes: dict[str, int]) -> None:
    for kind in (np.int8, np.uint32):
        low = 0 if kind is np.uint32 else -1
        values = [numbers(4, 3), indices(6, 1, low=low, high=6, kind=kind), numbers(6, 3)]
        graph = graph_of(build_scatter(reduction), values)
        check_vmap(graph, {f"x{i}": v for i, v in enumerate(values)}, axes, out_axis=-1)


def test_vmap_of_a_batch_that_the_indices_cannot_count() -> None:
    """Indices have 8 bits, and the batch has more entries than they can count."""
    x, i, u = numbers(3), indices(2, 1, low=-1, high=5, kind=np.int8), numbers(2)
    check_vmap(graph_of(build_scatter("add"), [x, i, u]), {"x0": x, "x1": i, "x2": u}, {"x1": 0, "x2": 0}, size=300)
    i = indices(2, low=0, high=5, kind=np.uint8)
    check_vmap(graph_of(lambda b, u, i: b.scatter_add(u, i, size=3), [u, i]), {"x0": u, "x1": i}, {"x1": 0}, size=300)
