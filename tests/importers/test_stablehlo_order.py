"""`rlx.from_stablehlo` of sorts, top-k and total order, and RLX's sorts, for all bit patterns of storage dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.conformance import compiled_xla
from tests.conformance.compiled import compile_graphs
from tests.conformance.levels import at_any_level, skip_if_not_run
from tests.drawing import drawn
from tests.importers.modules import values

STORED = [d for d in DTYPES if d.storage]
FLOATS = [d for d in STORED if d.is_float]
ORDERS: dict[str, Callable[[Any], Any]] = {
    "sort": lax.sort,
    "descending": lambda x: jnp.sort(x, descending=True),
    "argsort": jnp.argsort,
    "two keys": lambda x: lax.sort((jnp.repeat(x[::2], 2), x), num_keys=2)[1],
    "top_k": lambda x: lax.top_k(x, x.size)[0],
    "top_k positions": lambda x: lax.top_k(x, x.size)[1],
}
TOTAL: dict[str, Callable[[Any], Any]] = {
    name: lambda x, p=primitive: p.bind(*jnp.broadcast_arrays(x[:, None], x))
    for name, primitive in (("lt_to", lax.lt_to_p), ("le_to", lax.le_to_p), ("eq_to", lax.eq_to_p))
}


def shuffled(kind: DType) -> np.ndarray:
    return np.random.default_rng(3).permutation(1 << kind.bits).astype(np.uint8).view(kind.numpy)


def numbers(x: np.ndarray) -> np.ndarray:
    """Return values as f64, because NumPy does not recognise NaN in all dtypes."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def imported(function: Any, x: np.ndarray) -> rlx.Graph:
    return rlx.from_stablehlo(jax.jit(function).lower(x).as_text())


def of_equal_rank(kind: DType, x: np.ndarray) -> np.ndarray:
    """Keep only one NaN of each sign: XLA widens most floats to sort them, which makes NaN of one sign equal."""
    if not kind.is_float or not np.isnan(numbers(x)).any():
        return x
    is_nan = np.isnan(numbers(x))
    first = [np.flatnonzero(is_nan & (np.signbit(numbers(x)) == sign))[:1] for sign in (False, True)]
    return x[np.sort(np.concatenate([np.flatnonzero(~is_nan), *first]))]


@pytest.mark.parametrize("kind", [d for d in FLOATS if d.float_format and d.float_format.special != "fnuz"], ids=str)
def test_imported_order_is_that_of_jax(kind: DType) -> None:
    """A format without a sign bit is ordered by its codes; a signed order would reverse the upper half."""
    x = of_equal_rank(kind, shuffled(kind))
    for name, function in (ORDERS | TOTAL).items():
        if kind.packed and name.startswith("top_k"):
            continue  # XLA's CPU client cannot compile it
        (found,) = values(imported(function, x), x)
        wanted = np.asarray(jax.jit(function)(x))
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(numbers(found), numbers(wanted), err_msg=name)


@pytest.mark.parametrize("kind", [d for d in FLOATS if d.float_format and d.float_format.special == "fnuz"], ids=str)
def test_imported_order_ends_with_a_nan_that_has_no_sign(kind: DType) -> None:
    """XLA widens the NaN code to -NaN and sorts it first, which contradicts JAX's documentation. The reference is NumPy."""
    x = shuffled(kind)
    ascending = np.argsort(numbers(x), kind="stable")
    wanted = {
        "sort": x[ascending],
        "descending": x[ascending[::-1]],
        "argsort": ascending,
        "top_k": x[ascending[::-1]],
        "top_k positions": ascending[::-1],
    }
    for name, order in wanted.items():
        (found,) = values(imported(ORDERS[name], x), x)
        np.testing.assert_array_equal(numbers(found), numbers(order), err_msg=name)
    (rank,) = values(imported(lambda x: TOTAL["lt_to"](x).sum(0), x), x)
    np.testing.assert_array_equal(rank, np.argsort(ascending))


def imported_and_own(kind: DType) -> list[rlx.Graph]:
    """Return graphs of all orders of one array: imported, and built."""
    x = shuffled(kind)
    functions = ORDERS if kind.is_float else {}
    graphs = [imported(function, x) for function in (functions | (TOTAL if kind.is_float else {})).values()]
    graph = rlx.Graph("own")
    y = graph.input("x", x.shape, kind)
    results = [graph.sort(y), graph.sort(y, descending=True), graph.argsort(y), graph.argsort(y, descending=True)]
    graph.set_outputs([*results, *graph.topk(y, x.size), graph.argmax(y, 0), graph.argmin(y, 0)])
    return [*graphs, graph]


@pytest.mark.parametrize("kind", STORED, ids=str)
def test_own_order_is_that_of_numpy(kind: DType) -> None:
    """NaN of any sign is the largest, and both zeros are equal."""
    x = shuffled(kind)
    key = numbers(x) + 0.0
    ascending = np.argsort(key, kind="stable")
    descending = len(x) - 1 - np.argsort(key[::-1], kind="stable")[::-1]
    orders = [x[ascending], x[descending], ascending, descending, x[descending], descending]
    found = values(imported_and_own(kind)[-1], x)
    for got, wanted in zip(found, [*orders, np.array(np.argmax(key)), np.array(np.argmin(key))], strict=True):
        np.testing.assert_array_equal(numbers(got), numbers(wanted))


@at_any_level()
@drawn("kind", STORED, of_each=3, ids=str)
def test_compiled_order_is_that_of_the_evaluator(kind: DType, level: str) -> None:
    x, graphs = shuffled(kind), imported_and_own(kind)
    programs = compile_graphs(graphs, level=level)
    assert not [p.problem for p in programs if p.problem]
    skip_if_not_run(level, programs)
    by_xla = [results for _, results in sorted(compiled_xla.Joint(graphs).run([[x]] * len(graphs)), key=lambda r: r[0])]
    for graph, program, others in zip(graphs, programs, by_xla, strict=True):
        for got in (program.run([x]), others):
            for a, b in zip(got, values(graph, x), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(numbers(a), numbers(b))
