"""What the evaluator says of a case, and how another implementation's results compare with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from tests.conformance.cases import Bindings, Case
from tests.conformance.functions import internal_error, noise_of
from tests.conformance.tolerance import FUNCTIONS, Comparison, flushed
from tests.conformance.values import MOVING_FAMILIES, Values, is_elementwise, moves_values

# Of 0 and -0 these return either.
_KINDS_WITHOUT_SIGN_OF_ZERO = ("max", "min", "relu")
_OPS_WITHOUT_SIGN_OF_ZERO = ("clamp",)


@dataclass(frozen=True)
class Verdict:
    """The evaluator's results for one set of values, and what else counts as right.

    Attributes:
        comparison: How results are compared.
        expected: The evaluator's results.
        alternatives: Others that are as good.
        noise: Tells what rounding may do; dear, so it is only asked when results differ.
    """

    comparison: Comparison
    expected: Sequence[np.ndarray]
    alternatives: Sequence[np.ndarray | None]
    noise: Callable[[], Sequence[np.ndarray | None]]

    def problems(self, results: Sequence[np.ndarray]) -> list[str]:
        """What is wrong with another implementation's results."""
        if len(results) != len(self.expected):
            return [f"{len(results)} results instead of {len(self.expected)}"]
        exactly = [None] * len(results)
        return self._problems(results, exactly) and self._problems(results, self.noise())

    def _problems(self, results: Sequence[np.ndarray], noise: Sequence[np.ndarray | None]) -> list[str]:
        told = zip(results, self.expected, noise, self.alternatives, strict=True)
        found = [self.comparison.mismatch(*entry) for entry in told]
        return [f"result {i} {problem}" for i, problem in enumerate(found) if problem]


def comparison_of(case: Case, implementation: str) -> Comparison:
    """How an implementation's results of a case are compared."""
    kind = case.sample.attributes.get("kind")
    moving = case.card.spec.family in MOVING_FAMILIES
    signed = (moving or is_elementwise(case)) and kind not in _KINDS_WITHOUT_SIGN_OF_ZERO
    signed = signed and case.op not in _OPS_WITHOUT_SIGN_OF_ZERO
    function = FUNCTIONS[implementation].get(str(kind), 1.0) if case.op == "activation" else 1.0
    return Comparison(max(case.sample.tolerance, function), moves_values(case), signed)


def judge(
    case: Case, graph: Graph, values: Values, bindings: Bindings, function: Any, implementation: str = "iree"
) -> Verdict:
    """Evaluate a case, to compare other implementations with.

    Args:
        case: The case.
        graph: Its graph.
        values: Its inputs.
        bindings: Sizes of its symbols.
        function: What the other implementation computes, as ops: from it is told what rounding may do.
        implementation: A key of `FUNCTIONS`.
    """
    expected = evaluate(graph, values.by_name())
    without_denormals = [flushed(array) for array in values.arrays]
    alternatives: Sequence[Any] = [None] * len(expected)
    if any(a.tobytes() != b.tobytes() for a, b in zip(without_denormals, values.arrays, strict=True)):
        alternatives = evaluate(graph, {f"x{i}": a for i, a in enumerate(without_denormals)})

    def noise() -> Sequence[np.ndarray | None]:
        if not is_elementwise(case):
            return noise_of(function, values.arrays, bindings)
        kind = case.sample.attributes.get("kind")
        return [internal_error(case.op, kind, values.arrays, result) for result in expected]

    return Verdict(comparison_of(case, implementation), expected, alternatives, noise)
