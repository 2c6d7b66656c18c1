"""The kernels of the library: compiled for CPUs with and without AVX2, and run with NumPy, they compute what evaluators do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.kernels.cpu_model import cpu_model, cpu_models
from rlx.kernels.declaration import case_of
from rlx.kernels.registry import kernels_of, load
from rlx.passes import run
from rlx.passes.rewrite import collect
from rlx.passes.runner import clone_module, run_on_module
from tests.conformance.cases import Case, cases
from tests.conformance.compiled import Program, compile_graphs, contiguous
from tests.conformance.failures import Failures
from tests.conformance.judge import judge
from tests.conformance.levels import LEVELS, skip_if_not_run
from tests.conformance.values import random_values, value_sets
from tests.drawing import drawn, of_which, shares
from tests.kernels.samples import kernel_cases, ops

_SHARES = 8
SHARES = [(op, share) for op in ops() for share in range(_SHARES)]


def _share(op: str, share: int) -> list[Case]:
    return shares(kernel_cases(op), _SHARES, lambda case: case.dtype)[share]


@drawn("level", (*LEVELS, "x86-64", "aarch64"), weights={"aarch64": 0.15})
@of_which("share")
@pytest.mark.parametrize(("op", "share"), SHARES)
def test_compiled(op: str, share: int, level: str) -> None:
    chosen = [(case, list(case.bindings())) for case in _share(op, share)]
    graphs = [case.graph() for case, _ in chosen]
    programs = compile_graphs(graphs, level=level, kernels="all")
    failures = Failures()
    for (case, bindings), program in zip(chosen, programs, strict=True):
        failures.expect(str(case), program.problem is None, str(program.problem))
        if program.problem is None and program.lacks is None:
            with failures.of(str(case)):
                _check(case, program, bindings, failures)
    failures.check()
    skip_if_not_run(level, programs)


def _check(case: Case, program: Program, bindings: list[Any], failures: Failures) -> None:
    assert any(opview.kernel_of(op) for op in collect(program.module)), "no kernel was chosen"
    roundings = _decomposed(program.graph)
    for sizes in bindings:
        for values in value_sets(case, sizes):
            verdict = judge(case, program.graph, values, sizes, roundings.function)
            for problem in verdict.problems(program.run(contiguous(values.arrays))):
                failures.add(str(case), f"{values.name} {dict(sizes)}: {problem}")


def _decomposed(graph: Graph) -> Graph:
    """Return a graph with the op's decomposition, from which the effect of rounding is derived."""
    return run(graph, "rlx-decompose{for=rlx-to-linalg}")


@drawn("cpu", ("x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "aarch64"))
@of_which("share")
@pytest.mark.parametrize(("op", "share"), SHARES)
def test_with_numpy(op: str, share: int, cpu: str) -> None:
    failures = Failures()
    for case in _share(op, share):
        sizes = case.bindings()[0]
        values = random_values(case, sizes)
        if sum(array.size for array in values.arrays) > 5000:  # it runs one operation of NumPy at a time
            continue
        with failures.of(str(case)):
            graph = case.graph(sizes)
            (node,) = [found for found in collect(graph.module) if opview.name_of(found) == op]
            results = _run(node, graph, cpu, values.arrays)
            roundings = _decomposed(graph)
            verdict = judge(case, graph, values, sizes, roundings.function)
            for problem in verdict.problems(results):
                failures.add(str(case), problem)
    failures.check()


def _run(node: Any, graph: Graph, cpu: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run the kernel of an op with NumPy on the arguments of its graph."""
    chosen_case = case_of(node, cpu_model(cpu))
    chosen = next(made for made in kernels_of(opview.name_of(node)) if made.accepts(chosen_case))
    given = dict(zip(graph.function.entry_block.arguments, arrays, strict=True))
    constants = [found for found in collect(graph.module) if opview.name_of(found) == "constant"]
    given |= {c.results[0]: np.asarray(opview.attributes_of(c)["value"]) for c in constants}
    operands = opview.operands_of(node, [given[v] for v in node.operands])
    if chosen_case.loop is not None:
        return chosen.run_case(chosen_case, operands, [given[v] for v in chosen_case.loop.captures])
    result: Any = chosen.run(*operands, cpu=cpu, **opview.attributes_of(node))
    return list(result) if isinstance(result, tuple) else [np.asarray(result)]


@drawn("cpu", cpu_models())
@of_which("share")
@pytest.mark.parametrize(("op", "share"), SHARES)
def test_code_of_each_cpu(op: str, share: int, cpu: str) -> None:
    """Code can be emitted for each CPU whose vectors and registers kernels take into account, whatever a program has."""
    failures = Failures()
    for case in [*_share(op, share), *list(cases(op))[share::_SHARES]]:
        with failures.of(str(case)):
            module = clone_module(case.graph().module)
            run_on_module(module, f"rlx-iree-kernels{{cpu={cpu} choice=all}}")
            if any(opview.kernel_of(found) for found in collect(module)):
                passes = f"rlx-decompose{{for=rlx-to-linalg}},rlx-to-linalg,rlx-iree-emit-kernels{{cpu={cpu}}}"
                run_on_module(module, passes, verify_each=False)
    failures.check()


@pytest.mark.parametrize("bias", [(1,), (24,), (1, 24), (24, 1)])
@pytest.mark.parametrize("activation", ["gelu", None])
def test_products_with_biases_that_are_repeated(bias: tuple[int, ...], activation: str | None) -> None:
    g = Graph("product")
    y: Any = g.input("x", (24, 20)) @ g.input("w", (20, 24)) + g.input("b", bias)
    y = y + g.input("r", (24, 24)) if activation is None else g.gelu(y)
    g.set_outputs([y])
    rng = np.random.default_rng(0)
    values = {a.name: rng.standard_normal(a.shape.static).astype(np.float32) for a in g.inputs}
    (result,) = rlx.Session("cpu").compile(g, kernels="all").run(values)
    np.testing.assert_allclose(result, evaluate(g, values)[0], rtol=1e-5, atol=1e-5)


def test_each_kernel_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    own = [made for made in load().values() if made.op in ops()]
    assert own and not [made.name for made in own if f"`{made.op}`" not in page or f"`{made.name}`" not in page]
