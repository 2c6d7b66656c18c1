"""Cases for derivatives and batching: every sample of every card, in c64 and (if possible) f64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.support.errors import ShapeError
from tests.conformance.cases import Case, cases
from tests.conformance.values import random_values

# Types without derivatives: integers and booleans.
_PREFERRED = ("f64", "c64")


def smooth_cases(op: str) -> Iterator[Case]:
    """Return a case for each sample with floats, in the widest dtype that the op takes.

    A sample may name only f32 to save time, although its operands take f64. Functions that are known to have no derivative
    are left out.
    """
    for case in one_of_each(op):
        if case.sample.attributes.get("no_derivative"):
            continue
        graph = case.graph(case.bindings()[0])
        inputs = [a.shape.dtype.is_inexact for a in graph.arguments]
        outputs = [o.shape.dtype.is_inexact for o in graph.outputs]
        # A storage dtype is too coarse for difference quotients.
        coarse = any(entry.shape.dtype.storage for entry in (*graph.arguments, *graph.outputs))
        if any(inputs) and any(outputs) and not coarse:
            yield case


def one_of_each(op: str) -> Iterator[Case]:
    """Return one case for each sample."""
    seen: dict[int, list[Case]] = {}
    for case in cases(op):
        seen.setdefault(case.index, []).append(case)
    for found in seen.values():
        names = [c.dtype for c in found]
        wide = Case(op, found[0].index, found[0].sample, "f64")
        if takes(wide):
            yield wide
        else:
            yield next((c for c in found if c.dtype in _PREFERRED), found[0])
        if "f64" in names and "c128" in names:
            yield found[names.index("c128")]


def takes(case: Case) -> bool:
    """Return whether an op takes the dtype of a case."""
    try:
        case.graph(case.bindings()[0])
    except ShapeError:
        return False
    return True


def reversible(case: Case) -> bool:
    """Return whether reverse mode exists: a while loop without a bound has forward mode only."""
    return case.op != "while" or case.sample.attributes.get("max_iterations") is not None


def graph_and_values(case: Case) -> tuple[Graph, dict[str, np.ndarray]]:
    """Return a graph of the op at its first sizes, and random values for it."""
    bindings = case.bindings()[0]
    return case.graph(bindings), random_values(case, bindings).by_name()


def floats(graph: Graph) -> list[str]:
    """Return the names of the differentiable inputs."""
    return [a.name for a in graph.arguments if a.shape.dtype.is_inexact]


def direction(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return random numbers with the shape of an array."""
    if array.dtype.kind == "c":
        return (rng.standard_normal(array.shape) + 1j * rng.standard_normal(array.shape)).astype(array.dtype)
    return rng.standard_normal(array.shape).astype(array.dtype)


def inner(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return `Re(sum(conj(a)·b))`, and the sum of the sizes of its terms."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    terms = np.real(np.conj(a.astype(wide)) * b.astype(wide))
    return float(terms.sum()), float(np.abs(terms).sum())


def precision(graph: Graph) -> float:
    """Return the gap between 1 and the next number in the coarsest dtype of a graph's boundary."""
    shapes = [entry.shape for entry in (*graph.arguments, *graph.outputs)]
    return max((s.dtype.eps for s in shapes if s.dtype.is_inexact), default=0.0)
