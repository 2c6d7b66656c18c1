"""Pairs of ops that a compiler fuses: each result is used directly by the other op.

Single ops and random graphs omit most pairs, and code generator bugs often need a specific pair. A run has a fourteenth
of the pairs with each implementation, with either static or dynamic rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from tests.conformance import compiled, compiled_xla
from tests.conformance.compiled import Program, contiguous
from tests.conformance.failures import Failures
from tests.conformance.functions import noise_of
from tests.conformance.tolerance import Comparison
from tests.conformance.values import generator
from tests.drawing import drawn, of_which

_SHARES = 14
_COLUMNS = 6
_ROWS = 5
Rows = int | str

# From an f32 tensor [rows, 6] to another one.
_PRODUCERS: dict[str, Callable[[Graph, Any, Rows], Any]] = {
    "itself": lambda g, x, rows: x,
    "times a row": lambda g, x, rows: x * g.input("w", (_COLUMNS,)),
    "times a column": lambda g, x, rows: x * g.input("w", (rows, 1)),
    "times a tensor": lambda g, x, rows: x * g.input("w", (rows, _COLUMNS)),
    "times its mean": lambda g, x, rows: x * g.mean(x),
    "exp": lambda g, x, rows: g.exp(x),
    "cast": lambda g, x, rows: g.cast(g.cast(x, "f16"), "f32"),
    "transposed": lambda g, x, rows: g.transpose(g.input("w", (_COLUMNS, rows))) + x,
    "where": lambda g, x, rows: g.where(x > 0.0, x, 0.5),
    "gathered": lambda g, x, rows: g.gather(g.input("w", (9, _COLUMNS)), g.input("i", (rows,), "i32")),
    "joined": lambda g, x, rows: g.concat([x[:, :4], x[:, 2:4]], 1),
    "strided": lambda g, x, rows: g.slice(g.input("w", (rows, 12)), (0, 1), (rows, 12), (1, 2)),
    "expanded": lambda g, x, rows: g.expand(g.input("w", (_COLUMNS,)), x.shape),
    "product": lambda g, x, rows: x @ g.input("w", (_COLUMNS, _COLUMNS)),
    "softmax": lambda g, x, rows: g.softmax(x),
}
_CONSUMERS: dict[str, Callable[[Graph, Any, Rows], Any]] = {
    "sum": lambda g, x, rows: g.sum(x),
    "sum of columns": lambda g, x, rows: g.sum(x, 0),
    "sum of rows": lambda g, x, rows: g.sum(x, 1),
    "mean, kept": lambda g, x, rows: g.mean(x, keep_dims=True),
    "largest": lambda g, x, rows: g.max(x),
    "largest of rows": lambda g, x, rows: g.max(x, 1),
    "product of columns": lambda g, x, rows: g.prod(x, 0),
    "softmax of rows": lambda g, x, rows: g.softmax(x, 1),
    "softmax of columns": lambda g, x, rows: g.softmax(x, 0),
    "running sum": lambda g, x, rows: g.cumsum(x, 1),
    "argmax": lambda g, x, rows: g.argmax(x, 1),
    "topk": lambda g, x, rows: g.topk(x, 2),
    "left of a product": lambda g, x, rows: x @ g.input("v", (_COLUMNS, 3)),
    "right of a product": lambda g, x, rows: g.input("v", (4, rows)) @ x,
    "both sides of a product": lambda g, x, rows: x @ g.transpose(x),
    "layer_norm": lambda g, x, rows: g.layer_norm(x, g.input("v", (_COLUMNS,)), g.input("u", (_COLUMNS,))),
    "gather": lambda g, x, rows: g.gather(x, g.input("v", (4,), "i32"), axis=1),
    "transpose": lambda g, x, rows: g.transpose(x),
    "reshape": lambda g, x, rows: g.reshape(x, (-1,)) if isinstance(rows, int) else g.reshape(x, (rows, 2, 3)),
    "compared with its mean": lambda g, x, rows: x > g.mean(x, 1, keep_dims=True),
}
# The producers of one module, joined with `+`: compiling many small modules takes longer.
_THREE = ["+".join(list(_PRODUCERS)[i : i + 3]) for i in range(0, len(_PRODUCERS), 3)]


def _graph(producer: str, consumer: str, rows: Rows) -> Graph:
    graph = Graph("main")
    made = _PRODUCERS[producer](graph, graph.input("x", (rows, _COLUMNS)), rows)
    results = _CONSUMERS[consumer](graph, made, rows)
    graph.set_outputs(list(results) if isinstance(results, tuple) else [results])
    return graph


@of_which("implementation")
@pytest.mark.parametrize("implementation", [compiled, compiled_xla], ids=["iree", "xla"])
@pytest.mark.parametrize("producers", _THREE)
@drawn("share", range(_SHARES), ids="share{}".format)
@drawn("first", ["static", "dynamic"])
def test_pairs(producers: str, first: str, share: int, implementation: Any) -> None:
    failures = Failures()
    consumers = list(_CONSUMERS)[share::_SHARES]
    rows_of = [(consumer, _ROWS if i % 2 == (first == "dynamic") else "n") for i, consumer in enumerate(consumers)]
    pairs: list[tuple[str, str, Rows]] = [(p, *entry) for p in producers.split("+") for entry in rows_of]
    graphs = [_graph(*pair) for pair in pairs]
    programs = implementation.compile_graphs(graphs, last_rungs=True)
    for (producer, consumer, rows), graph, program in zip(pairs, graphs, programs, strict=True):
        label = f"{producer}, {consumer}, {rows} rows"
        if program.problem is not None:
            failures.add(label, program.problem)
            continue
        for count in (_ROWS,) if rows == _ROWS else (_ROWS, 1, 40):
            with failures.of(label):
                for problem in _problems(graph, program, count):
                    failures.add(label, f"{count} rows: {problem}")
    failures.check()


def _problems(graph: Graph, program: Program, count: int) -> list[str]:
    sizes = {"n": count} if graph.symbols else {}
    rng = generator(str(graph), count)
    values = {
        a.name: rng.uniform(-2, 2, a.shape.bind(sizes).static).astype(a.shape.dtype.numpy) for a in graph.arguments
    }
    noise = noise_of(program.function, list(values.values()), sizes)
    results = program.run(contiguous(list(values.values())))
    told = zip(results, evaluate(graph, values), noise, strict=True)
    return [problem for problem in (Comparison(2).mismatch(*entry) for entry in told) if problem]
