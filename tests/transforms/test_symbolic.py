"""Graphs with symbols: their derivatives and batches, at every size, are those of the graph of that size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph import Graph
from tests.conformance.cases import Case, cases, op_names
from tests.conformance.failures import Failures
from tests.conformance.values import random_values
from tests.transforms.cases import direction, floats, one_of_each, reversible

_LARGEST = 13
_BATCH = 2
# The gradient of a sum over a symbolic axis may be summed in another order, and the widest dtype of an op may be f32.
_TOLERANCE = 1e-6


def _symbolic(op: str) -> list[Case]:
    return [case for case in one_of_each(op) if case.symbols]


OPS = [op for op in op_names() if any(case.symbols for case in cases(op))]


def _transforms(case: Case, graph: Graph) -> Iterator[tuple[str, Any]]:
    """What there is to do with a graph: a function of the graph and of the size of a batch."""
    names = floats(graph)
    if names and any(o.shape.dtype.is_inexact for o in graph.outputs):
        yield "jvp", lambda g, _: rlx.jvp(g, names)
        if reversible(case):
            yield "vjp", lambda g, _: rlx.vjp(g, names)
    if graph.arguments:
        yield "vmap", lambda g, size: rlx.vmap(g, [a.name for a in g.arguments], size)


@pytest.mark.parametrize("op", OPS)
def test_symbolic(op: str) -> None:
    failures = Failures()
    for case in _symbolic(op):
        whole = case.graph()
        for what, transform in _transforms(case, whole):
            with failures.of(f"{case}, {what}"):
                made = transform(whole, "batch_size")
                for sizes in case.bindings():
                    if max(sizes.values()) <= _LARGEST:
                        _compare(made, transform(case.graph(sizes), _BATCH), _values(case, sizes, what == "vmap"))
    failures.check()


def _values(case: Case, sizes: dict[str, int], batched: bool) -> dict[str, np.ndarray]:
    """Values; of a batch the second entry is the first backwards, which is as good for every op."""
    values = random_values(case, sizes).by_name()
    return {name: np.stack([v, np.flip(v)]) for name, v in values.items()} if batched else values


def _compare(symbolic: Graph, static: Graph, values: dict[str, np.ndarray]) -> None:
    assert [a.name for a in symbolic.arguments] == [a.name for a in static.arguments]
    rng = np.random.default_rng(0)
    directions = {
        a.name: direction(np.zeros(a.shape.static, a.shape.dtype.numpy), rng)
        for a in static.arguments
        if a.name not in values
    }
    got, expected = (rlx.evaluate(graph, {**values, **directions}) for graph in (symbolic, static))
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        kind = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(kind), b.astype(kind), rtol=_TOLERANCE, atol=_TOLERANCE * 1e-3)
