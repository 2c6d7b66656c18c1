"""The rules of every op: derivatives compared with differences and each other, batching with a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlx.ir.graph.graph import Graph
from rlx.ir.op import registry
from tests.conformance.cases import Case, composite_groups, op_names
from tests.conformance.failures import Failures
from tests.drawing import drawn, of_which
from tests.transforms.cases import graph_and_values, one_of_each, precision, reversible, smooth_cases
from tests.transforms.checks import check_jvp, check_second, check_vjp, check_vmap

# By convention, the gradient of these differs from that of their values: rounding is straight-through.
STRAIGHT_THROUGH = (
    "fake_quantize", "fake_quantize_lsq", "fake_quantize_backward", "fake_quantize_lsq_backward_x",
    "fake_quantize_lsq_backward_scale", "stop_gradient", "custom_fn",
)  # fmt: skip


def conventional(case: Case) -> bool:
    """Return whether the derivative is conventional, so that differences do not show it."""
    attributes = case.sample.attributes
    if case.op == "cast":  # a narrowing cast is rounding
        return attributes["dtype"].name in ("f16", "bf16")
    if attributes.get("activations", "f32") != "f32":  # rounded to integers
        return True
    return case.op in STRAIGHT_THROUGH or attributes.get("kind") == "round"


# Each run of the slowest tests takes a fifth of an op's cases. Ops with fewer cases repeat some.
_FIFTHS = 5
one_fifth = drawn("fifth", range(_FIFTHS), ids="fifth{}".format)
one_composite = of_which("op", groups=composite_groups())


def _run(
    op: str,
    cases: Callable[[str], Iterator[Case]],
    check: Callable[[Case, Graph, Any], None],
    fifth: int | None = None,
) -> None:
    failures, count = Failures(), 0
    chosen = list(cases(op))
    if fifth is not None:
        chosen = chosen[fifth % max(1, len(chosen)) :: _FIFTHS]
    for case in chosen:
        count += 1
        with failures.of(case):
            check(case, *graph_and_values(case))
    if not count:
        pytest.skip("has no floats that depend on floats")
    failures.check()


@pytest.mark.parametrize("op", op_names())
@one_fifth
@one_composite
def test_jvp(op: str, fifth: int) -> None:
    def check(case: Case, graph: Graph, values: Any) -> None:
        fine = precision(graph) < 1e-10
        step, tolerance = (1e-6, 1e-6) if fine else (2e-3, 3e-3)
        if not conventional(case):
            check_jvp(graph, values, step=step, tolerance=tolerance * case.sample.tolerance)

    _run(op, smooth_cases, check, fifth)


@pytest.mark.parametrize("op", op_names())
@one_fifth
@one_composite
def test_vjp(op: str, fifth: int) -> None:
    def check(case: Case, graph: Graph, values: Any) -> None:
        if reversible(case):
            check_vjp(graph, values, tolerance=max(64 * precision(graph), 1e-12))

    _run(op, smooth_cases, check, fifth)


@pytest.mark.parametrize("op", op_names())
@one_fifth
@one_composite
def test_second_order(op: str, fifth: int) -> None:
    def check(case: Case, graph: Graph, values: Any) -> None:
        if precision(graph) < 1e-10 and not conventional(case) and reversible(case):
            check_second(graph, values)

    _run(op, smooth_cases, check, fifth)


@pytest.mark.parametrize("op", [name for name in op_names() if registry.SPECS[name].operands])
@one_fifth
@one_composite
def test_vmap(op: str, fifth: int) -> None:
    def check(case: Case, graph: Graph, values: Any) -> None:
        names = [a.name for a in graph.arguments if a.name in values]
        tolerance = max(16 * precision(graph), 1e-12)
        offsets = [a.name for a, o in zip(graph.arguments, case.operands, strict=False) if o.ascending]
        fresh = {name: [values[name], values[name] - 1, values[name]] for name in offsets}
        check_vmap(graph, values, dict.fromkeys(names, 0), tolerance=tolerance, fresh=fresh)
        for i, name in enumerate(names):
            rank = graph.arguments[i].shape.rank
            check_vmap(
                graph,
                values,
                {name: rank},
                tolerance=tolerance,
                size=2,
                out_axis=-1,
                fresh={n: rows[:2] for n, rows in fresh.items()},
            )

    _run(op, one_of_each, check, fifth)
