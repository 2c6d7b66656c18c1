"""Graphs with symbols: derivatives and batches equal those of the graph at every concrete size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.graph import Graph
from tests.conformance.cases import Case, cases, composite_groups, op_names
from tests.conformance.failures import Failures
from tests.conformance.values import random_values
from tests.drawing import drawn, of_which
from tests.transforms.cases import direction, floats, one_of_each, reversible

_LARGEST = 13
_BATCH = 2
# The gradient of a sum over a symbolic axis may be summed in another order, and the widest dtype of an op may be f32.
_TOLERANCE = 1e-6


def _symbolic(op: str) -> list[Case]:
    return [case for case in one_of_each(op) if case.symbols]


OPS = [op for op in op_names() if any(case.symbols for case in cases(op))]


def _transform(name: str, case: Case, graph: Graph) -> Any:
    """Return a function of the graph and a batch size; None if the graph has no such transform."""
    names = floats(graph)
    if name == "vmap":
        return (lambda g, size: rlx.vmap(g, [a.name for a in g.arguments], size)) if graph.arguments else None
    if not names or not any(o.shape.dtype.is_inexact for o in graph.outputs):
        return None
    if name == "jvp":
        return lambda g, _: rlx.jvp(g, names)
    return (lambda g, _: rlx.vjp(g, names)) if reversible(case) else None


@pytest.mark.parametrize("op", OPS)
@drawn("name", ["jvp", "vjp", "vmap"])
@of_which("op", groups=composite_groups())
def test_symbolic(op: str, name: str) -> None:
    failures, count = Failures(), 0
    for case in _symbolic(op):
        whole = case.graph()
        transform = _transform(name, case, whole)
        if transform is None:
            continue
        count += 1
        with failures.of(case):
            made = transform(whole, "batch_size")
            for sizes in case.bindings():
                if max(sizes.values()) <= _LARGEST:
                    _compare(made, transform(case.graph(sizes), _BATCH), _values(case, sizes, name == "vmap"))
    if not count:
        pytest.skip("has no such derivative")
    failures.check()


def _values(case: Case, sizes: dict[str, int], batched: bool) -> dict[str, np.ndarray]:
    """Return values. The second entry of a batch is the reversed first, which is equally valid for every op."""
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
