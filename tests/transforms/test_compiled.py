"""Compiled derivatives and batched graphs of every op: IREE and XLA give the evaluator's results.

Compilation takes most of the time, so each kind of an op occurs once, static and in f32; the evaluator tests its rules
in every shape and dtype. Ops that are decomposed before differentiation are tested by the ops of their decompositions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op import registry
from tests.conformance.cases import Case, cases, op_names
from tests.conformance.compiled import Program, compile_graphs, contiguous
from tests.conformance.compiled_xla import Joint
from tests.conformance.failures import Failures
from tests.conformance.functions import noise_of
from tests.conformance.judge import comparison_of
from tests.conformance.levels import at_any_level, skip_if_not_run
from tests.conformance.tolerance import Comparison, flushed
from tests.conformance.values import random_values
from tests.drawing import drawn, shares
from tests.transforms.cases import direction, floats, reversible, takes

# As for random graphs: errors may propagate through several ops, and noise locates discontinuities.
_FACTOR, _AMPLITUDE = 4.0, 8.0
_PART, _SHARES = 48, 30
SECOND_ORDER = (
    "activation", "binary", "matmul", "conv", "softmax", "layer_norm", "attention", "reduce", "gather", "scatter_add",
    "cumprod", "dense_solve", "sort", "scan", "while", "if",
)  # fmt: skip


@dataclass
class Derived:
    """A graph made by a transform, and arrays for it.

    Attributes:
        case: The original case.
        what: The transform.
        graph: The graph.
        values: Its arguments.
    """

    case: Case
    what: str
    graph: Graph
    values: dict[str, np.ndarray]

    def __str__(self) -> str:
        return f"{self.what} of {self.case}"

    @property
    def arrays(self) -> list[np.ndarray]:
        return contiguous([self.values[a.name] for a in self.graph.arguments])


def _chosen(op: str) -> Iterator[Case]:
    """Return one case for each kind of an op, in f32 if possible."""
    seen: set[Any] = set()
    for case in cases(op):
        attributes = case.sample.attributes
        kinds = [attributes.get(a.name) for a in case.card.spec.attributes if a.kind == "enum"]
        key = (*kinds, getattr(case.sample.build, "__name__", None))
        if key not in seen:
            seen.add(key)
            wide = Case(op, case.index, case.sample, "f32")
            yield wide if takes(wide) else case


def _transformed(case: Case, what: str) -> Iterator[Derived]:
    sizes = case.bindings()[0]
    graph, values = case.graph(sizes), random_values(case, sizes).by_name()
    names = floats(graph)
    moves = names and any(o.shape.dtype.is_inexact for o in graph.outputs)
    made: dict[str, Callable[[], Graph]] = {
        "jvp": lambda: rlx.jvp(graph, names),
        "vjp": lambda: rlx.vjp(graph, names),
        "jvp of vjp": lambda: _second(graph, names),
    }
    if what == "vmap" and values:
        batch = {name: np.stack([v, np.flip(v)]) for name, v in values.items()}
        yield Derived(case, what, rlx.vmap(graph, list(values), 2), batch)
    elif what != "vmap" and moves and (what == "jvp" or reversible(case)):
        derived = made[what]()
        rng = np.random.default_rng(0)
        directions = {
            a.name: direction(np.zeros(a.shape.static, a.shape.dtype.numpy), rng)
            for a in derived.arguments
            if a.name not in values
        }
        yield Derived(case, what, derived, {**values, **directions})


def _second(graph: Graph, names: list[str]) -> Graph:
    pulled = rlx.vjp(graph, names)
    return rlx.jvp(pulled, floats(pulled))


def _entries(ops: Sequence[str], transform: str, share: int) -> Iterator[Derived]:
    every = [case for op in ops for case in _chosen(op)]
    for case in shares(every, _SHARES, lambda case: case.op)[share]:
        yield from _transformed(case, transform)


def _problems(entry: Derived, program: Program, results: Sequence[np.ndarray], implementation: str) -> list[str]:
    arrays, expected = entry.arrays, evaluate(entry.graph, entry.values)
    comparison = Comparison(max(_FACTOR, comparison_of(entry.case, implementation).factor))
    exactly = [comparison.mismatch(*pair) for pair in zip(results, expected, strict=True)]
    if not any(exactly):
        return []
    noise = noise_of(program.function, arrays, {}, _AMPLITUDE)
    alternatives = evaluate(entry.graph, {name: flushed(array) for name, array in entry.values.items()})
    found = [comparison.mismatch(*told) for told in zip(results, expected, noise, alternatives, strict=True)]
    return [f"output {i} {problem}" for i, problem in enumerate(found) if problem]


def _check_iree(entries: Iterator[Derived], level: str) -> None:
    failures = Failures()
    every: list[Program] = []
    while part := list(islice(entries, _PART)):
        programs = compile_graphs([entry.graph for entry in part], level=level)
        for entry, program in zip(part, programs, strict=True):
            failures.expect(entry, program.problem is None, str(program.problem))
            if program.problem is None and program.lacks is None:
                with failures.of(entry):
                    for problem in _problems(entry, program, program.run(entry.arrays), "iree"):
                        failures.add(entry, problem)
        every += programs
    failures.check()
    skip_if_not_run(level, every)


def _check_xla(entries: Iterator[Derived]) -> None:
    failures = Failures()
    while part := list(islice(entries, _PART)):
        joint = Joint([entry.graph for entry in part])
        for entry, program in zip(part, joint.programs, strict=True):
            failures.expect(entry, program.problem is None, str(program.problem))
        for i, results in joint.run([entry.arrays for entry in part]):
            with failures.of(part[i]):
                for problem in _problems(part[i], joint.programs[i], results, "xla"):
                    failures.add(part[i], problem)
    failures.check()


def _ops() -> list[str]:
    """Return the ops whose own rule is used for derivatives or batches; others are decomposed into these."""
    return [op for op in op_names() if _has_rules(op)]


def _has_rules(op: str) -> bool:
    card = registry.card(op)
    rules = ("jvp", "vjp", "vmap", "pushforward", "pullback")
    return card.spec.stage != "hir" and (not card.composite or any(map(card.has, rules)))


one_share = drawn("share", range(_SHARES), ids="share{}".format)
transforms = pytest.mark.parametrize("transform", ["jvp", "vjp", "vmap"])


@at_any_level()
@one_share
@transforms
def test_iree(transform: str, share: int, level: str) -> None:
    _check_iree(_entries(_ops(), transform, share), level)


@one_share
@transforms
def test_xla(transform: str, share: int) -> None:
    _check_xla(_entries(_ops(), transform, share))


@at_any_level()
@one_share
def test_second_order_iree(share: int, level: str) -> None:
    _check_iree(_entries(SECOND_ORDER, "jvp of vjp", share), level)


@one_share
def test_second_order_xla(share: int) -> None:
    _check_xla(_entries(SECOND_ORDER, "jvp of vjp", share))
