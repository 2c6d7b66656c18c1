"""Every op, in every dtype of its samples, converted to StableHLO and back: dtypes and numbers are preserved."""

from __future__ import annotations

import pytest

import rlx
from rlx.ir.op import registry
from rlx.targets.stablehlo import claimed_ops, lower_module
from tests.conformance.cases import case_shares, op_names, op_shares
from tests.conformance.compiled import Program
from tests.conformance.compiled_xla import legalised, with_entry
from tests.conformance.failures import Failures
from tests.conformance.functions import merged
from tests.conformance.judge import judge
from tests.conformance.values import value_sets
from tests.drawing import of_which

# Ops that are lowered directly. All other ops are decomposed into these first.
LOWERED = {op for op in op_names() if not registry.card(op).composite or op in claimed_ops()}


@of_which("share")
@pytest.mark.parametrize(("op", "share"), [(op, share) for op, share in op_shares() if op in LOWERED])
def test_there_and_back(op: str, share: int) -> None:
    failures, cases = Failures(), case_shares(op)[share]
    sizes = [case.bindings()[0] for case in cases]
    programs = [Program(case.graph(s)) for case, s in zip(cases, sizes, strict=True)]
    lowered = [made.lir for p in programs if (made := legalised(p)) is not None]
    assert len(lowered) == len(cases), [p.problem for p in programs if p.problem]
    back = rlx.from_stablehlo(str(with_entry(lower_module(merged(lowered)))))
    shapes = iter(o.shape for o in back.outputs)
    for case, program in zip(cases, programs, strict=True):
        wanted = [o.shape for o in program.graph.outputs]
        failures.expect(case, [next(shapes) for _ in wanted] == wanted, "has other dtypes or sizes")
    sets = [list(value_sets(case, s)) for case, s in zip(cases, sizes, strict=True)]
    for turn in range(max(map(len, sets))):
        # A graph without further values is evaluated on its last ones again, and the result is ignored.
        values = [own[min(turn, len(own) - 1)] for own in sets]
        arrays = [array for v in values for array in v.arrays]
        given = {a.name: array for a, array in zip(back.inputs, arrays, strict=True)}
        found = iter(rlx.evaluate(back, given | dict(back.weights)))
        for case, s, program, v, own in zip(cases, sizes, programs, values, sets, strict=True):
            results = [next(found) for _ in program.graph.outputs]
            if turn < len(own):
                with failures.of(case):
                    for problem in judge(case, program.graph, v, s, program.function, "xla").problems(results):
                        failures.add(case, f"{v.name}: {problem}")
    failures.check()
