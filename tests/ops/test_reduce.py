"""Reductions, softmax, running sums and sorting, against JAX, SciPy and exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from tests.drawing import drawn
from tests.ops.references import FLOATS, INTEGERS, agree, in_jax, random, run, samples_of

NAN, INF = np.nan, np.inf


def _magnitudes(x: np.ndarray, axes: Any) -> np.ndarray:
    """Return the sum of absolute values, to which the rounding errors of a sum are proportional."""
    eps = np.finfo(np.float64).eps if x.dtype == np.float64 else np.finfo(np.float32).eps
    return eps * np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)).sum(axes)


@pytest.mark.parametrize("name", (*FLOATS, "c64"))
@pytest.mark.parametrize("kind", ["sum", "mean", "prod"])
def test_reduce_of_floats(kind: str, name: str) -> None:
    x = random(name, (3, 50, 4), low=0.5 if kind == "prod" else -3, high=1.4 if kind == "prod" else 3)
    for axes in ((1,), (0, 2), (0, 1, 2), ()) if name == "f32" else ((1,),):
        got = run("reduce", x, kind=kind, axes=axes)
        reference = in_jax(lambda v, axes=axes: getattr(jnp, kind)(v, axis=axes), x)
        room = np.abs(got.astype(np.complex128)) * 50 * 6e-8 if kind == "prod" else _magnitudes(x, axes)
        agree(got, reference, noise=room, factor=2)


@pytest.mark.parametrize("name", FLOATS)
def test_sum_is_correctly_rounded(name: str) -> None:
    """The result is the exact rational sum, rounded once."""
    x = random(name, (40, 25), low=-100, high=100)
    x[:, 0] = 3e4 if name == "f16" else 1e6  # digits that a narrow accumulator would lose
    exact = [float(sum(map(Fraction, map(float, row)))) for row in x]
    agree(
        run("reduce", x, kind="sum", axes=(1,)), np.array(exact).astype(x.dtype), factor=0.25, noise=_magnitudes(x, 1)
    )


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("name", INTEGERS)
def test_reduce_of_integers_wraps(kind: str, name: str) -> None:
    x = samples_of(name)[:160].reshape(8, 20)
    got = run("reduce", x, kind=kind, axes=(1,))
    reference = in_jax(
        lambda v: getattr(jnp, kind)(v, axis=1, **({"dtype": v.dtype} if kind in ("sum", "prod") else {})), x
    )
    agree(got, reference, factor=0)


_COUNTING = {"sum": np.sum, "prod": np.prod, "cumsum": np.cumsum, "cumprod": np.cumprod}


@pytest.mark.parametrize("op", [*_COUNTING, "mean"])
@pytest.mark.parametrize("name", (*INTEGERS, "bool"))
def test_what_is_added_up_of_integers_and_bools(op: str, name: str) -> None:
    """Bools are summed as 0 and 1 in i32; sums of integers keep the dtype. Means, like quotients, are f32, for i64 f64."""
    x = (np.arange(6) % 3 != 1) if name == "bool" else np.array([5, 7, 11, 13, 2, 1]).astype(dtype(name).numpy)
    if name == "i64":
        x[0] = 2**53 - 1  # more digits than f32 has
    graph = Graph("added")
    graph.set_outputs([getattr(graph, op)(graph.input("x", (6,), name), 0)])
    (got,) = evaluate(graph, {"x": x})
    if op == "mean":
        assert got.dtype == (np.float64 if name in ("i64", "u64") else np.float32)
        np.testing.assert_allclose(got, np.mean(x.astype(np.float64)), rtol=1e-7 if name != "i64" else 1e-15)
    else:
        kind = np.dtype(np.int32) if name == "bool" else x.dtype
        assert got.dtype == kind and np.array_equal(got, _COUNTING[op](x, axis=0, dtype=kind))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_max_and_min_propagate_nan(kind: str, name: str) -> None:
    x = samples_of(name)[:200].reshape(10, 20)
    x[0] = np.abs(np.nan_to_num(x[0], posinf=1)) + 1
    got = run("reduce", x, kind=kind, axes=(1,))
    with np.errstate(invalid="ignore"):
        agree(got, getattr(np, kind)(x.astype(np.float64), axis=1).astype(x.dtype), factor=0)
    assert np.isnan(got).any() and not np.isnan(got).all()


def test_bool_reductions_are_any_and_all() -> None:
    x = random("bool", (5, 6))
    assert np.array_equal(run("reduce", x, kind="max", axes=(1,)), x.any(1))
    assert np.array_equal(run("reduce", x, kind="min", axes=(0,)), x.all(0))
    empty = np.zeros((2, 0), bool)
    assert run("reduce", empty, kind="max", axes=(1,)).tolist() == [False, False]
    assert run("reduce", empty, kind="min", axes=(1,)).tolist() == [True, True]


@pytest.mark.parametrize("name", (*FLOATS, "i8", "u32", "i64"))
def test_reductions_over_nothing(name: str) -> None:
    x = np.zeros((2, 0, 3), dtype(name).numpy)
    limits = (-INF, INF) if name in FLOATS else (dtype(name).min, dtype(name).max)
    expected = {"sum": 0, "prod": 1, "max": limits[0], "min": limits[1]} | ({"mean": NAN} if name in FLOATS else {})
    for kind, value in expected.items():
        got = run("reduce", x, kind=kind, axes=(1,))
        agree(got, np.full((2, 3), value, x.dtype))


@pytest.mark.parametrize(
    ("row", "total", "product", "greatest"),
    [
        ([INF, 1.0, -2.0], INF, -INF, INF),
        ([INF, -INF, 1.0], NAN, -INF, INF),
        ([INF, 0.0, 1.0], INF, NAN, INF),
        ([NAN, INF, 1.0], NAN, NAN, NAN),
        ([-INF, -INF, -1.0], -INF, -INF, -1.0),
        ([0.0, -0.0, -0.0], 0.0, 0.0, 0.0),
        ([3e38, 3e38, -3e38], 3e38, -INF, 3e38),
    ],
)
def test_reductions_of_special_values(row: list[float], total: float, product: float, greatest: float) -> None:
    x = np.array([row], np.float32)
    for kind, value in (("sum", total), ("prod", product), ("max", greatest)):
        agree(run("reduce", x, kind=kind, axes=(1,)), np.array([value], np.float32))


# --- softmax ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(name: str, axis: int) -> None:
    x = random(name, (7, 30), low=-30, high=30)
    got = run("softmax", x, axis=axis)
    agree(got, special.softmax(x.astype(np.float64), axis=axis).astype(x.dtype), factor=0.5)
    narrow = 40 * dtype(name).eps * got.astype(np.float64)  # JAX subtracts and adds in the dtype itself
    agree(got, in_jax(lambda v: jax.nn.softmax(v, axis=axis), x), noise=narrow)


def test_softmax_of_special_values() -> None:
    x = np.array([[0, -INF, 0], [-INF, -INF, -INF], [NAN, 0, 0], [INF, 0, 0], [3e38, 3e38, -3e38]], np.float32)
    expected = np.array([[0.5, 0, 0.5], [NAN] * 3, [NAN] * 3, [NAN] * 3, [0.5, 0.5, 0]], np.float32)
    got = run("softmax", x, axis=1)
    agree(got[:3], expected[:3])
    agree(got[4:], expected[4:])
    assert np.isnan(got[3]).any()  # exp(inf - inf)
    assert run("softmax", x[:0], axis=1).shape == (0, 3)
    assert run("softmax", x[:, :0], axis=1).shape == (5, 0)


# --- running sums -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", (*FLOATS, "c64", *INTEGERS))
@pytest.mark.parametrize("axis", [0, 1])
def test_cumsum(name: str, axis: int) -> None:
    x = random(name, (9, 40), low=-100, high=100)
    got = run("cumsum", x, axis=axis)
    if dtype(name).is_integer:
        agree(got, in_jax(lambda v: jnp.cumsum(v, axis=axis, dtype=v.dtype), x), factor=0)
    else:
        wide = np.clongdouble if name == "c64" else np.longdouble
        room = np.cumsum(np.abs(x.astype(wide)), axis).astype(np.float64) * np.finfo(np.float64).eps
        agree(got, np.cumsum(x.astype(wide), axis).astype(x.dtype), factor=0.25, noise=room)
    exclusive = run("cumsum", x, axis=axis, exclusive=True)
    assert not exclusive.take(0, axis).any()
    shifted = np.delete(exclusive, 0, axis)
    assert shifted.tobytes() == np.delete(got, -1, axis).tobytes()


def test_cumsum_of_special_values() -> None:
    x = np.array([[1, INF, 1, -INF, 1], [1, NAN, 1, 1, 1], [3e38, 3e38, -3e38, 0, 0]], np.float32)
    expected = np.array([[1, INF, INF, NAN, NAN], [1, NAN, NAN, NAN, NAN], [3e38, INF, 3e38, 3e38, 3e38]], np.float32)
    agree(run("cumsum", x, axis=1), expected)
    agree(run("cumsum", x, axis=1, exclusive=True)[:, 1:], expected[:, :-1])
    assert run("cumsum", x[:, :0], axis=1).shape == (3, 0)


# --- sorting ----------------------------------------------------------------------------------------


@drawn("name", (*FLOATS, *INTEGERS, "bool"), of_each=4)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_argmax_and_argmin(axis: int, op: str, name: str) -> None:
    x = samples_of(name)[:200]
    x = np.concatenate([x, random(name, (200 - len(x),))]).reshape(20, 10)
    x[:, 3] = x[:, 7]  # ties
    got = run(op, x, axis=axis)
    assert got.dtype == np.int32
    # NumPy's argmax takes the first NaN, else the first of the largest; so does JAX's, except for denormals.
    assert np.array_equal(got, getattr(np, op)(x.astype(np.float64) if name == "bf16" else x, axis))
    assert np.array_equal(got[None] if axis == 0 else got[:, None], run(op, x, axis=axis, keep_dims=True))
    few = random(name, (6, 30), low=0, high=3)
    assert np.array_equal(run(op, few, axis=axis), in_jax(lambda v: getattr(jnp, op)(v, axis=axis), few))


@pytest.mark.parametrize("name", (*FLOATS, *INTEGERS))
def test_topk(name: str) -> None:
    few = random(name, (6, 30), low=0, high=5)  # ties are in index order
    if name in FLOATS:
        few = np.floor(few)
    values, indices = run("topk", few, k=12)
    reference = in_jax(lambda v: jax.lax.top_k(v, 12), few)
    assert np.array_equal(values, reference[0]) and np.array_equal(indices, reference[1])
    assert indices.dtype == np.int32 and values.dtype == few.dtype
    assert [r.shape for r in run("topk", few, k=0)] == [(6, 0)] * 2
    every = run("topk", few, k=30)
    assert np.array_equal(np.sort(every[1], -1), np.tile(np.arange(30), (6, 1)))


def test_topk_of_special_values() -> None:
    x = np.array([[1, NAN, INF, -INF, NAN, -0.0, 0.0, 1]], np.float32)
    values, indices = run("topk", x, k=8)
    assert indices[0].tolist() == [1, 4, 2, 0, 7, 5, 6, 3]  # NaN counts as the largest, 0 and -0 are equal
    assert values.tobytes() == np.take_along_axis(x, indices, -1).tobytes()
    extreme = np.array([[0, -(2**63), 2**63 - 1, 2**63 - 2, -(2**63) + 1]])
    assert run("topk", extreme, k=5)[1][0].tolist() == [2, 3, 0, 4, 1]


def test_programs_find_the_extremes_of_integers() -> None:
    """The largest of negative integers and the smallest of positive ones: a neutral element of 0 would be the result."""
    g = Graph("extremes")
    arrays: dict[str, np.ndarray] = {}
    outputs, expected = {}, {}
    for name in INTEGERS:
        kind, is_signed = dtype(name), dtype(name).is_signed
        values = np.array([[3, 2, 1], [1, 3, 1]]).astype(kind.numpy)
        for low, array in (("min", values), ("max", -values if is_signed else values)):
            x = g.input(f"{name}_{low}", (2, 3), kind)
            arrays[f"{name}_{low}"] = array.astype(kind.numpy)
            for axes in ((1,), (0,), (0, 1)):
                label = f"{name} {low} {axes}"
                outputs[label] = getattr(g, low)(x, axes)
                expected[label] = getattr(np, low)(array.astype(np.int64), axis=axes)
    g.set_outputs(outputs)
    results = rlx.Session().compile(g, kernels="off").run_named(arrays)
    for label, result in results.items():
        assert np.array_equal(result.astype(np.int64), expected[label]), label
