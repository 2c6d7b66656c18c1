"""The evaluator's results for a case, and their comparison with another implementation's results."""

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

# Kinds that may return either of 0 and -0.
_KINDS_WITHOUT_SIGN_OF_ZERO = ("max", "min", "relu")
_OPS_WITHOUT_SIGN_OF_ZERO = ("clamp",)


@dataclass(frozen=True)
class Verdict:
    """The evaluator's results for one set of values, and other acceptable results.

    Attributes:
        comparison: The comparison of results.
        expected: The evaluator's results.
        alternatives: Other acceptable results.
        noise: Returns the effect of rounding. It is expensive, so it is only called if results differ.
        nan_is_optional: Whether results may have other values where the evaluator has NaN.
    """

    comparison: Comparison
    expected: Sequence[np.ndarray]
    alternatives: Sequence[np.ndarray | None]
    noise: Callable[[], Sequence[np.ndarray | None]]
    nan_is_optional: bool = False

    def problems(self, results: Sequence[np.ndarray]) -> list[str]:
        """Return the problems of another implementation's results."""
        if len(results) != len(self.expected):
            return [f"{len(results)} results instead of {len(self.expected)}"]
        if self.nan_is_optional:
            results = [np.where(np.isnan(e), e, r) for r, e in zip(results, self.expected, strict=True)]
        exactly = [None] * len(results)
        return self._problems(results, exactly) and self._problems(results, self.noise())

    def _problems(self, results: Sequence[np.ndarray], noise: Sequence[np.ndarray | None]) -> list[str]:
        told = zip(results, self.expected, noise, self.alternatives, strict=True)
        found = [self.comparison.mismatch(*entry) for entry in told]
        return [f"result {i} {problem}" for i, problem in enumerate(found) if problem]


# Attention may skip keys of weight 0.
_SKIPPING = ("attention", "cached_attention")


def comparison_of(case: Case, implementation: str) -> Comparison:
    """Return the comparison for an implementation's results of a case."""
    kind = case.sample.attributes.get("kind")
    moving = case.card.spec.family in MOVING_FAMILIES
    signed = (moving or is_elementwise(case)) and kind not in _KINDS_WITHOUT_SIGN_OF_ZERO
    signed = signed and case.op not in _OPS_WITHOUT_SIGN_OF_ZERO
    function = FUNCTIONS[implementation].get(str(kind), 1.0) if case.op == "activation" else 1.0
    return Comparison(max(case.sample.tolerance, function), moves_values(case), signed)


def judge(
    case: Case, graph: Graph, values: Values, bindings: Bindings, function: Any, implementation: str = "iree"
) -> Verdict:
    """Evaluate a case, for comparison with other implementations.

    Args:
        case: The case.
        graph: The graph of the case.
        values: The inputs of the graph.
        bindings: Sizes of its symbols.
        function: The ops that the other implementation computes, from which the effect of rounding is derived.
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

    return Verdict(comparison_of(case, implementation), expected, alternatives, noise, case.op in _SKIPPING)
