"""With `--full`: all samples of all ops with a linalg rule, run with MLIR alone and compared with the evaluator."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rlx.ir.op.signature import functions
from rlx.targets.linalg import claimed_ops, lower_module
from tests.conformance.cases import cases
from tests.conformance.failures import Failures
from tests.conformance.functions import merged
from tests.conformance.judge import judge
from tests.conformance.values import value_sets
from tests.targets.linalg.upstream import Program, legalise, run_apart


@pytest.mark.parametrize("op", sorted(op for op in claimed_ops() if "." not in op))
def test_samples(op: str, full: bool) -> None:
    """All samples of an op agree, in a separate process, because a failing compiler may end its process."""
    if not full:
        pytest.skip("with --full only")
    run_apart("tests.targets.linalg.test_samples_without_iree", op)


def check(op: str) -> None:
    """Run all samples of an op, with sizes of all kinds, on plain and special values."""
    chosen = [(c, bound) for c in cases(op) for bound in ((True, False) if c.symbols else (True,))]
    graphs = [c.graph(c.bindings()[0] if bound else None) for c, bound in chosen]
    module = merged(graphs)
    legalise(module)
    program, failures = Program(lower_module(module)), Failures()
    for i, ((case, bound), graph, function) in enumerate(zip(chosen, graphs, functions(module), strict=True)):
        shapes = [o.shape for o in graph.outputs]
        for sizes in case.bindings()[:1] if bound else case.bindings():
            for values in value_sets(case, sizes):
                verdict = judge(case, graph, values, sizes, function)
                results = program.call(f"f{i}", [np.array(a, order="C") for a in values.arrays], shapes)
                problems = verdict.problems(results)
                failures.expect(str(case), not problems, f"{values.name} {dict(sizes)}: {'; '.join(problems)}")
    failures.check()


if __name__ == "__main__":
    check(sys.argv[1])
