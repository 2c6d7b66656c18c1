"""Every composite op: its decomposition, down to primitives, has the same meaning as the op."""

from __future__ import annotations

import pytest

from rlx.ir.op import registry
from rlx.ir.op.signature import functions
from rlx.ir.text.modules import verify_module
from tests.conformance.cases import Case, case_shares, composite_groups, op_shares
from tests.conformance.failures import Failures
from tests.conformance.functions import decompose, evaluate_function, merged, primitives
from tests.conformance.judge import judge
from tests.conformance.values import value_sets
from tests.drawing import of_which

COMPOSITES = [(op, share) for op, share in op_shares() if registry.card(op).composite]


@of_which("share")
@pytest.mark.parametrize(("op", "share"), COMPOSITES)
@of_which("op", groups=composite_groups())
def test_decomposition(op: str, share: int) -> None:
    failures = Failures()
    for case in case_shares(op)[share]:
        with failures.of(case):
            _check(case, failures)
    failures.check()


def _check(case: Case, failures: Failures) -> None:
    """Decompose with symbolic sizes, then evaluate at every size."""
    graph = case.graph()
    module = merged([graph])
    decompose(module, primitives())
    verify_module(module)
    function = functions(module)[0]
    declared = [str(t) for t in function.type.results]
    failures.expect(case, declared == [str(o.shape.type) for o in graph.outputs], f"the result becomes {declared}")
    for bindings in case.bindings():
        for values in value_sets(case, bindings):
            verdict = judge(case, graph, values, bindings, function)
            for problem in verdict.problems(evaluate_function(function, values.arrays, bindings)):
                failures.add(case, f"{values.name} {bindings}: {problem}")
