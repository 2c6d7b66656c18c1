"""Every op: what XLA computes is what the evaluator computes, on plain and special values.

XLA compiles for fixed sizes, and cases with symbols run with their first ones alone.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import cases, op_names
from tests.conformance.compiled import contiguous, is_worth_compiling
from tests.conformance.compiled_xla import compile_graphs
from tests.conformance.failures import Failures
from tests.conformance.judge import judge
from tests.conformance.values import value_sets


@pytest.mark.parametrize("op", op_names())
def test_compiled(op: str) -> None:
    failures = Failures()
    for case in filter(is_worth_compiling, cases(op)):
        bindings = case.bindings()[0]
        (program,) = compile_graphs([case.graph(bindings)])
        if program.problem is not None:
            failures.add(case, program.problem)
            continue
        with failures.of(case):
            for values in value_sets(case, bindings):
                verdict = judge(case, program.graph, values, bindings, program.function, "xla")
                arguments = contiguous(values.arrays)
                for problem in verdict.problems(program.run(arguments)):
                    failures.add(case, f"{values.name}: {problem}")
                kept = all(a.tobytes() == b.tobytes() for a, b in zip(arguments, values.arrays, strict=True))
                failures.expect(case, kept, f"{values.name}: an argument was changed")
    failures.check()
