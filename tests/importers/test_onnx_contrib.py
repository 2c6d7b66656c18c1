"""Ops of ONNX Runtime's own, judged by it: on the evaluator, and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.conformance.compiled import compile_graphs
from tests.drawing import drawn
from tests.importers.onnx_contrib import Node, nodes

SHARES = 10


def run_by_onnxruntime(model: bytes | str, inputs: dict[str, Any]) -> list[Any]:
    """What ONNX Runtime gives for a model on the CPU."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)


def check(got: Any, wanted: Any) -> None:
    """Integers may differ by 1, where a float lies between two."""
    for mine, theirs in zip(got, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        tolerance: Any = {"rtol": 0, "atol": 1} if theirs.dtype.kind in "iu" else {"rtol": 1e-5, "atol": 2e-5}
        np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), **tolerance)


def imported(node: Node) -> tuple[rlx.Graph, dict[str, Any]]:
    g = rlx.from_onnx(node.model())
    return g, {i.name: node.inputs[i.name] for i in g.inputs}


def test_evaluated() -> None:
    for number, node in enumerate(nodes()):
        g, inputs = imported(node)
        try:
            check(rlx.evaluate(g, inputs), run_by_onnxruntime(node.model(), node.inputs))
        except Exception as problem:
            problem.add_note(f"case {number}, {node.op}")
            raise


@drawn("share", range(SHARES))
def test_compiled(share: int) -> None:
    chosen = [imported(node._replace(constants=())) for node in list(nodes())[share::SHARES]]
    for program, (g, inputs) in zip(compile_graphs([g for g, _ in chosen]), chosen, strict=True):
        assert program.problem is None
        check(program.run([inputs[a.name] for a in g.arguments]), rlx.evaluate(g, inputs))
