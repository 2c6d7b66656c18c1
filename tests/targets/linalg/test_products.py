"""Batched products whose operands are transposed, split and merged first, which compilers fuse into packing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from tests.conformance.compiled import compile_graphs, contiguous
from tests.conformance.failures import Failures
from tests.drawing import drawn

_BATCH, _INNER = 2, 128

# `[2, rows, 128]` from an input of another shape.
_ARRANGED: dict[str, Callable[[Graph, int], Any]] = {
    "split": lambda g, m: g.reshape(g.input("x", (_BATCH * m, _INNER)), (_BATCH, m, _INNER)),
    "transposed, then split": lambda g, m: g.reshape(
        g.transpose(g.input("x", (_INNER, _BATCH * m))), (_BATCH, m, _INNER)
    ),
    "transposed, then split and joined": lambda g, m: g.reshape(
        g.transpose(g.input("x", (2, _BATCH * m, 64)), (1, 0, 2)), (_BATCH, m, _INNER)
    ),
    "split, transposed, then joined": lambda g, m: g.reshape(
        g.transpose(g.reshape(g.input("x", (2, _BATCH * m, 64)), (2, _BATCH, m, 64)), (1, 2, 0, 3)),
        (_BATCH, m, _INNER),
    ),
    "added up": lambda g, m: g.sum(g.input("x", (_BATCH, m, 3, _INNER)), 2),
    "normalised": lambda g, m: g.layer_norm(
        g.input("x", (_BATCH, m, _INNER)), g.constant(np.ones(_INNER, "f4")), g.constant(np.zeros(_INNER, "f4"))
    ),
    "computed, then split": lambda g, m: g.reshape(g.tanh(g.input("x", (_BATCH * m, _INNER))), (_BATCH, m, _INNER)),
}


def _graph(arranged: str, rows: int, columns: int, *, on_the_left: bool) -> Graph:
    graph = Graph("main")
    x = _ARRANGED[arranged](graph, rows)
    if on_the_left:
        graph.set_outputs([x @ graph.input("y", (_BATCH, _INNER, columns))])
    else:
        graph.set_outputs([graph.input("y", (_BATCH, columns, _INNER)) @ graph.transpose(x, (0, 2, 1))])
    return graph


def _stretched(rows: int, columns: int) -> Graph:
    """Sums over rows, with more batches than the other operand."""
    graph = Graph("main")
    x = graph.sum(graph.input("x", (_BATCH, 3, rows, 5, 6)), 3)
    graph.set_outputs([x @ graph.input("y", (_BATCH, 1, 6, columns))])
    return graph


@drawn("arranged", _ARRANGED, of_each=2)
def test_products_of_arranged_batches(arranged: str) -> None:
    sizes = [(rows, columns) for rows in (3, 9, 30) for columns in (4, 33)]
    _check([_graph(arranged, *pair, on_the_left=left) for pair in sizes for left in (True, False)])


def test_products_of_stretched_batches() -> None:
    _check([_stretched(rows, columns) for rows in (1, 3, 15) for columns in (1, 32)])


def _check(graphs: list[Graph]) -> None:
    failures, rng = Failures(), np.random.default_rng(1)
    for graph, program in zip(graphs, compile_graphs(graphs), strict=True):
        label = ", ".join(str(a.shape) for a in graph.arguments)
        assert program.problem is None, f"{label}: {program.problem}"
        values = {a.name: rng.standard_normal(a.shape.static).astype(np.float32) for a in graph.arguments}
        with failures.of(label):
            results = program.run(contiguous(list(values.values())))
            for got, expected in zip(results, evaluate(graph, values), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    failures.check()
