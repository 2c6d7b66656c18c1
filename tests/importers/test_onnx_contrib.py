"""ONNX Runtime's own ops, with it as the reference: on the evaluator, and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.conformance.compiled import compile_graphs
from tests.drawing import drawn
from tests.importers.onnx_contrib import Node, floats, nodes, scalar

SHARES = 10


def run_by_onnxruntime(model: bytes | str, inputs: dict[str, Any]) -> list[Any]:
    """Return ONNX Runtime's results for a model on the CPU."""
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)


def check(got: Any, wanted: Any, atol: float = 2e-5) -> None:
    """Integers may differ by 1, if a float is between two."""
    for mine, theirs in zip(got, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        tolerance: Any = {"rtol": 0, "atol": 1} if theirs.dtype.kind in "iu" else {"rtol": 1e-5, "atol": atol}
        np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), **tolerance)


def imported(node: Node) -> tuple[rlx.Graph, dict[str, Any]]:
    g = rlx.from_onnx(node.model())
    return g, {i.name: node.inputs[i.name] for i in g.inputs}


def test_evaluated() -> None:
    for number, node in enumerate(nodes()):
        g, inputs = imported(node)
        try:
            check(rlx.evaluate(g, inputs), run_by_onnxruntime(node.model(), node.inputs), node.atol)
        except Exception as problem:
            problem.add_note(f"case {number}, {node.op}")
            raise


@pytest.mark.parametrize("rotated", [0, 1])
@pytest.mark.parametrize("room", [0, 8])
def test_prompts_with_padding_behind_them(room: int, rotated: int) -> None:
    """For a sequence that is shorter than the rows, its own rows are correct, and the others are finite."""
    tables = [floats(16, 8), floats(16, 8)] if rotated else []
    operands = [floats(3, 4, 64), floats(3, 4, 32), floats(3, 4, 32), floats(3, 2, room, 16), floats(3, 2, room, 16)]
    lengths = np.array([4, 2, 1], np.int32)
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotated}
    for constants in ((6,), ()) if not room else ((6,),):
        node = Node(
            "GroupQueryAttention", [*operands, lengths - 1, scalar(4, np.int32), *tables], attributes, 3, constants
        )
        g, inputs = imported(node)
        mine, theirs = rlx.evaluate(g, inputs), run_by_onnxruntime(node.model(), node.inputs)
        assert np.isfinite(mine[0]).all()
        for row, length in enumerate(lengths):
            check([mine[0][row, :length]], [theirs[0][row, :length]])
            check([m[row, :, :length] for m in mine[1:]], [t[row, :, :length] for t in theirs[1:]])


def test_a_norm_without_a_mean_gives_none() -> None:
    operands = [floats(2, 3, 8), floats(2, 3, 8), floats(8)]
    for wanted in (1, 2):
        node = Node("SkipSimplifiedLayerNormalization", operands, results=4, skipped=(3 - wanted,))
        with pytest.raises(rlx.UnsupportedError, match="mean"):
            rlx.from_onnx(node.model())


def test_an_order_of_blocks_keeps_their_zero_points() -> None:
    """ONNX Runtime does not accept zero points with an order. An identity order gives the same result as no order."""
    cases = [n for n in nodes() if n.op == "MatMulNBits" and len(n.operands) == 4]
    for node in cases:
        order = (np.arange(node.attributes["K"]) // node.attributes["block_size"]).astype(np.int32)
        ordered = node._replace(operands=[*node.operands, order], constants=(1, 2, 3, 4))
        g, inputs = imported(ordered)
        check(rlx.evaluate(g, inputs), run_by_onnxruntime(node.model(), inputs))
    assert cases


@drawn("share", range(SHARES))
def test_compiled(share: int) -> None:
    some = list(nodes())[share::SHARES]
    chosen = [imported(node._replace(constants=())) for node in some]
    for program, (g, inputs), node in zip(compile_graphs([g for g, _ in chosen]), chosen, some, strict=True):
        assert program.problem is None
        check(program.run([inputs[a.name] for a in g.arguments]), rlx.evaluate(g, inputs), node.atol)
