"""Cases of derivatives and batching: every sample of every card, in f64 where it takes that, and c64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx.ir.graph.graph import Graph
from rlx.support.errors import ShapeError
from tests.conformance.cases import Case, cases
from tests.conformance.values import random_values

# What no derivative goes through: whole numbers and truths.
_PREFERRED = ("f64", "c64")


def smooth_cases(op: str) -> Iterator[Case]:
    """One case for each sample that holds floats, in the widest dtype that it takes.

    A sample may name f32 alone only to save time; its operands take f64 all the same.
    """
    for case in one_of_each(op):
        graph = case.graph(case.bindings()[0])
        inputs = [a.shape.dtype.is_inexact for a in graph.arguments]
        outputs = [o.shape.dtype.is_inexact for o in graph.outputs]
        # A storage dtype rounds so coarsely that a difference quotient says nothing.
        coarse = any(entry.shape.dtype.storage for entry in (*graph.arguments, *graph.outputs))
        if any(inputs) and any(outputs) and not coarse:
            yield case


def one_of_each(op: str) -> Iterator[Case]:
    """One case for each sample."""
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
    """Whether an op takes the dtype of a case."""
    try:
        case.graph(case.bindings()[0])
    except ShapeError:
        return False
    return True


def reversible(case: Case) -> bool:
    """Whether it is known how far to go back: a while loop without a bound has forward mode only."""
    return case.op != "while" or case.sample.attributes.get("max_iterations") is not None


def graph_and_values(case: Case) -> tuple[Graph, dict[str, np.ndarray]]:
    """The op alone at its first sizes, and random values for it."""
    bindings = case.bindings()[0]
    return case.graph(bindings), random_values(case, bindings).by_name()


def floats(graph: Graph) -> list[str]:
    """Names of the inputs that derivatives go through."""
    return [a.name for a in graph.arguments if a.shape.dtype.is_inexact]


def direction(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Random numbers shaped as an array."""
    if array.dtype.kind == "c":
        return (rng.standard_normal(array.shape) + 1j * rng.standard_normal(array.shape)).astype(array.dtype)
    return rng.standard_normal(array.shape).astype(array.dtype)


def inner(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """`Re(sum(conj(a)·b))`, and the sum of the sizes of its terms."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    terms = np.real(np.conj(a.astype(wide)) * b.astype(wide))
    return float(terms.sum()), float(np.abs(terms).sum())


def precision(graph: Graph) -> float:
    """The gap between 1 and the next number, in the coarsest dtype that a graph takes or gives."""
    shapes = [entry.shape for entry in (*graph.arguments, *graph.outputs)]
    return max((s.dtype.eps for s in shapes if s.dtype.is_inexact), default=0.0)
