"""Random graphs under the transforms: of the whole vocabulary, and programs with nested regions."""

from __future__ import annotations

from functools import cache

import numpy as np

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.graph import Graph
from rlx.transforms.base import tensor_graph
from rlx.transforms.vjp import Vjp
from tests.conformance.cases import Case, op_names
from tests.conformance.random_graphs import Grower, seeded
from tests.drawing import drawn, graph_seed
from tests.transforms.cases import direction, floats, one_of_each, reversible
from tests.transforms.checks import check_jvp, check_second, check_vjp, check_vmap
from tests.transforms.random_programs import Program

_LEAST_OPS, _MORE_OPS = 5, 20
# The number of graphs per run.
_GRAPHS = 8


@cache
def _cases() -> dict[str, list[Case]]:
    """A grower with the samples of every op, in f64 if possible, so that rounding hides nothing."""
    usable = {op: [c for c in one_of_each(op) if not c.symbols and reversible(c)] for op in op_names()}
    return {op: found for op, found in usable.items() if found}


class _Wide(Grower):
    def cases(self) -> dict[str, list[Case]]:
        return _cases()


def _grown(seed: int) -> tuple[Graph, dict[str, np.ndarray], float]:
    """Return a graph, values for it, and its coarsest precision."""
    choose = seeded(seed)
    grower = _Wide(choose)
    made = grower.grow(_LEAST_OPS + choose(_MORE_OPS))
    kinds = [dtype(array.dtype) for array in grower.arrays.values()]
    return made.graph, made.values, max((k.eps for k in kinds if k.is_inexact), default=0.0)


def _moves(graph: Graph) -> bool:
    return bool(floats(graph)) and any(o.shape.dtype.is_inexact for o in graph.outputs)


@drawn("number", range(30), of_each=_GRAPHS)
def test_graphs(number: int, seed: int) -> None:
    _check_graph(graph_seed(seed, number))


def test_a_dead_op_that_another_one_reads_twice() -> None:
    _check_graph(182)


def _check_graph(seed: int) -> None:
    graph, values, eps = _grown(seed)
    if _moves(graph):
        check_vjp(graph, values, tolerance=max(64 * eps, 1e-9))
        _check_clean_up(graph, values, max(4 * eps, 1e-11))
    if values:
        check_vmap(graph, values, dict.fromkeys(values, 0), size=2, tolerance=max(16 * eps, 1e-11))


def _check_clean_up(graph: Graph, values: dict[str, np.ndarray], tolerance: float) -> None:
    """The simplification after a transform changes no result, except for the order of sums in products."""
    transform = Vjp(wrt=tuple(floats(graph)))
    raw, clean = transform.apply(tensor_graph(graph)), transform(graph)
    rng = np.random.default_rng(0)
    directions = {
        a.name: direction(np.zeros(a.shape.static, a.shape.dtype.numpy), rng)
        for a in clean.arguments
        if a.name not in values
    }
    given = {**values, **directions}
    for got, expected in zip(rlx.evaluate(clean, given), rlx.evaluate(raw, given), strict=True):
        kind = np.complex128 if got.dtype.kind == "c" else np.float64
        got, expected = got.astype(kind), expected.astype(kind)
        size = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * size)


@drawn("number", range(30), of_each=_GRAPHS)
def test_programs_with_regions(number: int, seed: int) -> None:
    bounded = number % 5 != 0
    program = Program(graph_seed(seed, number), bounded=bounded)
    graph, values = program.graph, program.values
    check_jvp(graph, values)
    if bounded:
        check_vjp(graph, values)
        check_second(graph, values)
    other = {name: np.asarray(np.flip(v) if v.ndim else v * 0.5 + 1, v.dtype) for name, v in values.items()}
    rows = {name: [v, other[name]] for name, v in values.items()}
    check_vmap(graph, values, dict.fromkeys(values, 0), size=2, fresh=rows)
    one = list(values)[number % len(values)]
    check_vmap(graph, values, {one: values[one].ndim}, size=2, fresh=rows, out_axis=-1)
