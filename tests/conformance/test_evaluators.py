"""Every op: the evaluator's results match inference, symbolic or static, and arguments are not changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.op import attributes
from tests.conformance.cases import Bindings, Case, case_shares, cases, op_shares, plain_op_names
from tests.conformance.failures import Failures
from tests.conformance.values import value_sets
from tests.drawing import of_which


@pytest.mark.parametrize("op", plain_op_names())
def test_attributes_are_stored(op: str) -> None:
    failures = Failures()
    for case in cases(op):
        for bindings in (None, case.bindings()[0]):
            given = attributes.complete(case.card.spec, case.attributes(bindings))
            graph = case.graph(bindings)
            read = attributes.read(case.card.spec, graph.function.entry_block.operations[0].operation)
            failures.expect(case, list(read) == list(given), f"has attributes {list(read)}, not {list(given)}")
            for name, value in given.items():
                same = _same(read[name], value)
                failures.expect(case, same, f"attribute '{name}' is {value!r}, and was read back as {read[name]!r}")
    failures.check()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


@of_which("share")
@pytest.mark.parametrize(("op", "share"), op_shares())
def test_inference_and_evaluation(op: str, share: int) -> None:
    failures = Failures()
    for case in case_shares(op)[share]:
        with failures.of(case):
            for bindings in case.bindings():
                _check(case, bindings, failures)
    failures.check()


def _check(case: Case, bindings: Bindings, failures: Failures) -> None:
    symbolic, static = case.graph(), case.graph(bindings)
    inferred = [output.shape.bind(bindings) for output in symbolic.outputs]
    given = [output.shape for output in static.outputs]
    failures.expect(case, inferred == given, f"{bindings}: inferred {inferred} with symbols, {given} without")
    for values in value_sets(case, bindings):
        copies = [array.copy() for array in values.arrays]
        for array in values.arrays:
            array.flags.writeable = False
        results = evaluate(static, values.by_name())  # raises if shapes or dtypes differ from the inferred ones
        again = evaluate(symbolic, values.by_name())
        same = all(a.tobytes() == b.tobytes() for a, b in zip(results, again, strict=True))
        failures.expect(case, same, f"{bindings}, {values.name}: other results with symbols than without")
        kept = all(a.tobytes() == b.tobytes() for a, b in zip(values.arrays, copies, strict=True))
        failures.expect(case, kept, f"{bindings}, {values.name}: an argument was changed")
        shared = any(np.shares_memory(r, a) for r in results for a in values.arrays)
        failures.expect(case, not shared, f"{bindings}, {values.name}: a result is memory of an argument")
