"""Random loops: the kernel, run with NumPy, and sometimes compiled, computes what the evaluator does."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op import opview
from rlx.kernels.cpu_model import cpu_model
from rlx.kernels.declaration import case_of
from rlx.kernels.registry import find_kernel
from rlx.passes.rewrite import collect
from tests.conformance.compiled import compile_graphs, contiguous
from tests.kernels.random_loops import random_loop

_LOOPS, _COMPILED = 60, 12


def _arrays(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    low, high = -1, 6  # some places are outside of the table
    return {a.name: random.integers(low, high, a.shape.static).astype(a.shape.dtype.numpy) for a in graph.inputs}


def test_with_numpy(seed: int) -> None:
    taken = 0
    for number in range(seed * _LOOPS, seed * _LOOPS + _LOOPS):
        graph = random_loop(number)
        arrays = _arrays(graph, number)
        (node,) = [op for op in collect(graph.module) if opview.name_of(op) == "scan"]
        case: Any = case_of(node, cpu_model("x86-64-v3"))
        chosen = find_kernel("scan")
        if not chosen.takes(case):
            continue
        taken += 1
        given = dict(zip(graph.function.entry_block.arguments, arrays.values(), strict=True))
        operands = opview.operands_of(node, [given[v] for v in node.operands])
        results = chosen.run_case(case, operands, [given[v] for v in case.loop.captures])
        for got, expected in zip(results, evaluate(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"loop {number}")
    assert taken > _LOOPS // 2


def test_compiled(seed: int) -> None:
    numbers = range(seed * _COMPILED, seed * _COMPILED + _COMPILED)
    graphs = [random_loop(number) for number in numbers]
    for number, graph, program in zip(numbers, graphs, compile_graphs(graphs, kernels="all"), strict=True):
        assert program.problem is None, f"loop {number}: {program.problem}"
        arrays = _arrays(graph, number)
        for got, expected in zip(program.run(contiguous(list(arrays.values()))), evaluate(graph, arrays), strict=True):
            np.testing.assert_array_equal(got, expected, err_msg=f"loop {number}")
