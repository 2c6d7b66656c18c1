"""Every op: XLA computes what the evaluator computes, on plain and special values.

XLA compiles for fixed sizes, and cases with symbols run only with their first sizes.
"""

from __future__ import annotations

import numpy as np
import pytest

from rlx.targets.stablehlo import claimed_ops
from tests.conformance.cases import Case, case_shares, composite_groups, op_shares
from tests.conformance.compiled import contiguous
from tests.conformance.compiled_xla import Joint
from tests.conformance.failures import Failures
from tests.conformance.judge import judge
from tests.conformance.values import Values, value_sets
from tests.drawing import of_which


@of_which("share")
@pytest.mark.parametrize(("op", "share"), op_shares())
@of_which("op", groups=composite_groups(claimed_ops()))
def test_compiled(op: str, share: int) -> None:
    failures, cases = Failures(), case_shares(op)[share]
    sizes = [case.bindings()[0] for case in cases]
    joint = Joint([case.graph(bindings) for case, bindings in zip(cases, sizes, strict=True)])
    for case, program in zip(cases, joint.programs, strict=True):
        failures.expect(case, program.problem is None, str(program.problem))
    sets = [list(value_sets(case, bindings)) for case, bindings in zip(cases, sizes, strict=True)]
    for turn in range(max(map(len, sets))):
        # A program without more values runs again on its last ones; these results are ignored.
        values = [own[min(turn, len(own) - 1)] for own in sets]
        arguments = [contiguous(own.arrays) for own in values]
        for i, results in joint.run(arguments):
            if turn < len(sets[i]):
                with failures.of(cases[i]):
                    program = joint.programs[i]
                    verdict = judge(cases[i], program.graph, values[i], sizes[i], program.function, "xla")
                    for problem in verdict.problems(results):
                        failures.add(cases[i], f"{values[i].name}: {problem}")
                    _check_unchanged(cases[i], values[i], arguments[i], failures)
    failures.check()


def _check_unchanged(case: Case, values: Values, arguments: list[np.ndarray], failures: Failures) -> None:
    kept = all(a.tobytes() == b.tobytes() for a, b in zip(arguments, values.arrays, strict=True))
    failures.expect(case, kept, f"{values.name}: an argument was changed")
