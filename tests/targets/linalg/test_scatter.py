"""Scatters, compiled for this machine: as IREE's own op, and as the loop for other compilers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from tests.targets.linalg.helpers import Case, assert_agrees, case, run

_RANDOM = np.random.default_rng(5)
_REDUCTIONS = ("set", "add", "mul", "max", "min")


def _scatter(
    x_shape: tuple[int, ...], places: tuple[int, ...], count: int, dtype: Any = np.float32, **given: Any
) -> Case:
    """A case with many updates for each position, and with indices that are too small and too large."""
    dims, index_dtype = given.pop("dims", None), given.pop("index_dtype", np.int32)
    high = max((*x_shape[:count], 1)) + 2
    indices = _RANDOM.integers(0 if np.dtype(index_dtype).kind == "u" else -2, high, (*places, count))
    x, updates = (_RANDOM.integers(-3, 4, shape) for shape in (x_shape, (*places, *x_shape[count:])))
    return case("scatter_nd", x.astype(dtype), indices.astype(index_dtype), updates.astype(dtype), dims=dims, **given)


def _check(cases: list[Case]) -> None:
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result)


def test_every_reduction() -> None:
    cases = [_scatter((7, 5), (30,), 1, reduction=reduction) for reduction in _REDUCTIONS]
    cases += [_scatter((7, 3), (12,), 1, dtype, reduction="add") for dtype in (np.float16, np.uint32, np.bool_)]
    _check(cases)


def test_tuples_and_sizes() -> None:
    cases = [_scatter((4, 5, 6), (3, 9), count, reduction="add") for count in (0, 2)]
    cases += [_scatter((4, 5, 6), (60,), count, reduction="set") for count in (1, 3)]
    cases += [_scatter((6,), (20,), 1, index_dtype=kind, reduction="set") for kind in (np.int8, np.uint32)]
    cases += [_scatter((5, 2), (0,), 1, reduction="add"), _scatter((0, 2), (3,), 1, reduction="set")]
    symbolic = [("n", "w"), ("m", 1), ("m", "w")]
    for reduction in ("set", "add", "mul"):
        # An empty table has no updates, for any declared size.
        cases += [_scatter((n, 3), (8,), 1, reduction=reduction, dims=symbolic) for n in (0, 1, 5)]
        cases += [_scatter((5, 3), (0,), 1, reduction=reduction, dims=symbolic)]
    _check(cases)


def test_what_is_dropped_changes_nothing() -> None:
    outside, updates = np.array([[-1], [3], [2**31 - 1], [-(2**31)]], np.int32), np.full((4, 2), np.nan, np.float32)
    x = np.array([[np.inf, -0.0], [np.nan, 0.0], [-np.inf, 1.0]], np.float32)
    cases = [case("scatter_nd", x, outside, updates, reduction=reduction) for reduction in _REDUCTIONS]
    z = np.array([[complex(np.inf, -0.0), complex(-0.0, np.nan)]], np.complex64)
    cases += [case("scatter_nd", z, outside[:1], z, reduction=reduction) for reduction in _REDUCTIONS[:3]]
    for one, (result,) in zip(cases, run(cases), strict=True):
        assert result.tobytes() == one.arrays[0].tobytes(), str(one)


def test_many_updates() -> None:
    _check([_scatter((50000, 8), (10000,), 1, reduction=reduction) for reduction in ("set", "add")])


def test_scatters_into_tables_of_constants() -> None:
    """Each scatter has a separate table, for any computation of the table from constants, and in any dtype."""
    graph, outputs = rlx.Graph(), []
    indices = graph.input("i", (6, 1), "i32")
    values: dict[str, Any] = {"i": np.array([[0], [1], [1], [2], [4], [4]], np.int32)}
    for name in ("f32", "f16", "bf16", "i8", "f64"):
        kind = dtype(name)
        updates = graph.input(name, (6, 3), name)
        values[name] = _RANDOM.integers(-3, 4, (6, 3)).astype(kind.numpy)
        numbers = np.arange(15).reshape(5, 3)
        tables = [
            graph.constant(numbers.astype(kind.numpy)),
            graph.constant(np.zeros((5, 3), kind.numpy)),
            graph.cast(graph.constant(numbers.astype(np.float16)), kind),
            graph.iota((5, 3), 0, kind),
            graph.cast(graph.iota((5, 3), 0, "i32"), kind),
            graph.cast(graph.cast(graph.iota((5, 3), 0, "i32"), "f32"), kind),
            graph.cast(graph.constant(numbers.astype(np.int32)), kind) * 2,
        ]
        for table in tables:
            outputs += [graph.scatter_nd(table, indices + i, updates, reduction="add") for i in range(2)]
    graph.set_outputs(outputs)
    for level in (0, 2):
        results = rlx.Session("cpu").compile(graph, opt=level).run(values)
        for i, (got, expected) in enumerate(zip(results, rlx.evaluate(graph, values), strict=True)):
            np.testing.assert_array_equal(got, expected, err_msg=f"output {i} at level {level}")


@pytest.mark.parametrize("dims", [(5, 3), ("n", 3)])
def test_scatters_into_the_same_constant(dims: Any) -> None:
    """Scatters into equal constants have separate tables, as in gradients of lookups in tables of one shape."""
    graph, outputs = rlx.Graph(), []
    indices, like = graph.input("i", (6, 1), "i32"), graph.input("like", dims)
    for name in ("f32", "f16"):
        updates = graph.input(name, (6, 3), name)
        table = graph.expand(graph.constant(0.0, name), like.shape)
        for i, reduction in enumerate(("add", "add", "max", "set", "set")):
            outputs.append(graph.scatter_nd(table, indices + i, updates * float(i + 1), reduction=reduction))
    graph.set_outputs(outputs)
    values: dict[str, Any] = {"i": np.array([[0], [1], [1], [2], [4], [4]], np.int32)}
    values |= {name: _RANDOM.integers(-3, 4, (6, 3)).astype(kind) for name, kind in (("f32", "f4"), ("f16", "f2"))}
    values["like"] = np.zeros((5, 3), np.float32)
    for got, expected in zip(rlx.Session("cpu").compile(graph).run(values), rlx.evaluate(graph, values), strict=True):
        np.testing.assert_array_equal(got, expected)
