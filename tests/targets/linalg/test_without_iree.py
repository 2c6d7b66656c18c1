"""The result of `rlx-to-linalg` is upstream MLIR, and runs with MLIR alone."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.targets.linalg import claimed_ops
from tests.conformance.cases import cases
from tests.ops.references import agree
from tests.targets.linalg import upstream

_UPSTREAM = {"builtin", "func", "arith", "math", "complex", "linalg", "tensor", "scf"}
_ROOM = np.array(1e-5)


@pytest.mark.parametrize("op", sorted(op for op in claimed_ops() if "." not in op))
def test_only_upstream_dialects(op: str) -> None:
    """All ops with a rule are lowered to upstream dialects, in all dtypes, with and without symbols."""
    graphs = [g for c in cases(op) for g in [c.graph(), *(c.graph(b) for b in c.bindings()[:1] if b)]]
    module = upstream.lowered(graphs)
    with mlir.entered():
        assert module.operation.verify()
    dialects = set()

    def visit(found: object) -> object:
        dialects.add(found.name.split(".")[0])  # type: ignore[attr-defined]
        return mlir.ir.WalkResult.ADVANCE

    mlir.walk(module, visit)
    assert dialects <= _UPSTREAM


def test_arguments_say_what_they_are() -> None:
    graph = rlx.Graph("step")
    x, w, count = graph.input("x", (4,)), graph.param("w", (4,)), graph.state("count", (4,), "u8", init=200)
    graph.set_outputs({"y": x * w})
    graph.update(count, count + count)
    text = str(rlx.passes.run(graph, "rlx-to-linalg").module)
    assert 'tensor<4xf32> {rlx.kind = "param", rlx.name = "w"}' in text
    assert 'tensor<4xi8> {rlx.init = -5.600000e+01 : f64, rlx.kind = "state", rlx.name = "count"}' in text
    assert 'rlx.updates = "count"}' in text


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The results of all cases, from a separate process."""
    path = tmp_path_factory.mktemp("upstream") / "results.npz"
    upstream.run_apart("tests.targets.linalg.upstream", str(path))
    with np.load(path) as stored:
        return dict(stored)


@pytest.mark.parametrize("name", upstream.CASES)
def test_runs(name: str, results: dict[str, np.ndarray]) -> None:
    wanted = rlx.evaluate(upstream.graph_of(name), upstream.CASES[name][1])
    for i, expected in enumerate(wanted):
        agree(results[f"{name}.{i}"], expected, noise=_ROOM)
