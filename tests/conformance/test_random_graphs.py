"""Random graphs: compiled code, decompositions, clean-up and text preserve the evaluator's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlx
from rlx import mlir
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op.signature import functions
from rlx.ir.text.modules import verify_module
from tests.conformance import compiled, compiled_xla
from tests.conformance.compiled import contiguous
from tests.conformance.failures import Failures
from tests.conformance.functions import decompose, evaluate_function, merged, noise_of, primitives
from tests.conformance.levels import LEVELS, skip_if_not_run
from tests.conformance.random_graphs import SIZES, Choose, Grower, RandomGraph, seeded
from tests.conformance.tolerance import Comparison, flushed
from tests.drawing import graph_seed, of_which

_BATCHES, _GRAPHS = 8, 3
_SYMBOLIC_BATCHES, _SYMBOLIC_GRAPHS = 3, 2  # XLA compiles them for each of their sizes
_REARRANGED_BATCHES = 6
_LEAST_OPS, _MOST_OPS = 5, 30
# Samples have a larger tolerance where they lose digits, and an error may pass through several of them here.
_FACTOR = 4.0
_AMPLITUDE = 8.0


def _values(made: RandomGraph, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    return {name: make(sizes) for name, make in made.draws.items()}


def _refuses(graph: Graph, values: dict[str, np.ndarray]) -> bool:
    """Return whether an op refuses the sizes, for example a kernel that is larger than the image."""
    try:
        evaluate(graph, values)
    except rlx.ShapeError:
        return True
    return False


def _problems(
    graph: Graph, function: Any, values: dict[str, np.ndarray], sizes: dict[str, int], results: Sequence[np.ndarray]
) -> list[str]:
    expected = evaluate(graph, values)
    alternatives = evaluate(graph, {name: flushed(array) for name, array in values.items()})
    noise = noise_of(function, list(values.values()), sizes, _AMPLITUDE)
    told = zip(results, expected, noise, alternatives, strict=True)
    found = [Comparison(_FACTOR).mismatch(*entry) for entry in told]
    return [f"output {i} {problem}" for i, problem in enumerate(found) if problem]


@of_which("level")
@pytest.mark.parametrize(
    ("implementation", "level"),
    [*((compiled, level) for level in LEVELS), (compiled_xla, None)],
    ids=[*(f"iree-{level}" for level in LEVELS), "xla"],
)
@of_which("batch")
@pytest.mark.parametrize(
    ("batch", "symbolic", "rearranges"),
    [
        *((b, False, False) for b in range(_BATCHES)),
        *((b, True, False) for b in range(_SYMBOLIC_BATCHES)),
        *((b, b % 3 == 2, True) for b in range(_REARRANGED_BATCHES)),
    ],
)
def test_compiled(
    batch: int, symbolic: bool, rearranges: bool, implementation: Any, level: str | None, seed: int
) -> None:
    failures = Failures()
    number = _SYMBOLIC_GRAPHS if symbolic else _GRAPHS
    seeds = [graph_seed(seed, 1000 * symbolic + 2000 * rearranges + batch * number + i) for i in range(number)]
    grown = []
    for own in seeds:
        choose = seeded(own)
        grower = Grower(choose, symbolic=symbolic, rearranges=rearranges)
        grown.append(grower.grow(_LEAST_OPS + choose(_MOST_OPS - _LEAST_OPS)))
    programs = implementation.compile_graphs([m.graph for m in grown], level=level, last_rungs=True)
    for own, made, program in zip(seeds, grown, programs, strict=True):
        label = f"graph {own}"
        if program.problem is not None:
            failures.add(label, f"{program.problem}\n{made.graph}")
            continue
        for sizes in SIZES if symbolic else ({},):
            with failures.of(label):
                values = _values(made, sizes)
                if program.lacks is not None or _refuses(made.graph, values):
                    continue
                results = program.run(contiguous(list(values.values())))
                for problem in _problems(made.graph, program.function, values, sizes, results):
                    culprit = _first_wrong_op(made, values, sizes, implementation, level)
                    failures.add(label, f"{sizes}: {problem}\n    first wrong: {culprit}\n{made.graph}")
    failures.check()
    skip_if_not_run(level, programs)


def _first_wrong_op(
    made: RandomGraph, values: dict[str, np.ndarray], sizes: dict[str, int], implementation: Any, level: str | None
) -> str:
    """Return the first op whose result is wrong if it is the only output."""
    count = len(made.graph.function.entry_block.operations) - 1
    prefixes = []
    for i in range(count):
        graph = made.graph.clone()
        op = graph.function.entry_block.operations[i].operation
        graph.set_outputs([graph.tensor(v) for v in op.results])
        prefixes.append(graph)
    programs = implementation.compile_graphs(prefixes, level=level, last_rungs=True)
    for i, (graph, program) in enumerate(zip(prefixes, programs, strict=True)):
        op = graph.function.entry_block.operations[i]
        if program.problem is not None:
            return f"{op}: {program.problem}"
        results = program.run(contiguous(list(values.values())))
        if problems := _problems(graph, program.function, values, sizes, results):
            return f"{op}: {problems[0]}"
    return "no single op: only together are they wrong"


# --- without a compiler -----------------------------------------------------------------------------


@st.composite
def _grown(draw: Any) -> tuple[RandomGraph, bool]:
    choose: Choose = lambda bound: draw(st.integers(0, bound - 1))  # noqa: E731
    symbolic = draw(st.booleans())
    return Grower(choose, symbolic=symbolic).grow(draw(st.integers(_LEAST_OPS, _MOST_OPS))), symbolic


@settings(max_examples=14)
@given(_grown())
def test_text_clean_up_and_decomposition(grown: tuple[RandomGraph, bool]) -> None:
    made, symbolic = grown
    graph = made.graph
    graph.verify()
    again = rlx.parse(str(graph))
    assert str(again) == str(graph)
    clean = graph.clone()
    with mlir.entered():
        mlir.passmanager.PassManager.parse("builtin.module(canonicalize,cse)").run(clean.module.operation)
    clean.verify()
    module = merged([graph])
    decompose(module, primitives())
    verify_module(module)
    function = functions(module)[0]
    for sizes in SIZES if symbolic else ({},):
        values = _values(made, sizes)
        if _refuses(graph, values):
            continue
        expected = evaluate(graph, values)
        for other in (again, Graph.from_module(clean.module)):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(evaluate(other, values), expected, strict=True))
        results = evaluate_function(function, list(values.values()), sizes)
        assert _problems(graph, function, values, sizes, results) == []
