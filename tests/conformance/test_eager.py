"""Every op in eager mode returns the result of its evaluated graph, bit for bit."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from rlx.ir.graph.eager import EAGER, eager, lifted
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.op.card import as_results
from tests.conformance.cases import Case, cases, op_names
from tests.conformance.failures import Failures
from tests.conformance.values import random_values


def test_gives_what_graphs_give() -> None:
    for op in op_names():
        failures = Failures()
        for case in cases(op):
            with failures.of(case):
                _check(case, failures)
        failures.check()


def _check(case: Case, failures: Failures) -> None:
    bindings = case.bindings()[0]
    values = random_values(case, bindings)
    expected = evaluate(case.graph(bindings), values.by_name())
    number = count()

    def tensor(_: Any) -> Any:
        return lifted(values.arrays[next(number)], "an operand")

    operands: list[Any] = []
    with eager():
        for entry in case.sample.operands:
            if isinstance(entry, list):
                operands.append([tensor(e) for e in entry])
            else:
                operands.append(None if entry is None else tensor(entry))
        results = as_results(case.emit(EAGER, operands, case.attributes(bindings)))  # type: ignore[arg-type]
    same = [np.asarray(r).tobytes() for r in results] == [e.tobytes() for e in expected]
    failures.expect(case, same, f"{bindings}: other results than its graph")
