"""Repeated runs of programs with states, compared with the evaluator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import rlx
from rlx.ir.graph.evaluate import evaluate_function


class Reference:
    """An evaluator for a program with states, with the values of its parameters."""

    def __init__(self, graph: rlx.Graph, **params: np.ndarray):
        self.graph, self.params = graph, params
        self.states = {
            a.name: np.full(a.shape.static, a.init, a.shape.dtype.numpy) for a in graph.arguments if a.kind == "state"
        }

    def run(self, values: dict[str, np.ndarray]) -> list[np.ndarray]:
        arrays = [{**values, **self.params, **self.states}[a.name] for a in self.graph.arguments]
        given = evaluate_function(self.graph.function, arrays, {})
        results = []
        for value, output in zip(given, self.graph.results, strict=True):
            if output.updates is None:
                results.append(value)
            else:
                self.states[output.updates] = value
        return results


def check_steps(compiled: Any, reference: Reference, steps: Iterable[dict[str, np.ndarray]], **tolerance: Any) -> None:
    """Run both, and compare results and states after every step."""
    for values in steps:
        check_all(compiled, reference, compiled.run(values), reference.run(values), **tolerance)


def check_all(compiled: Any, reference: Reference, results: Any, expected: Any, **tolerance: Any) -> None:
    """Compare the results of a run, and the states."""
    for got, wanted in zip(results, expected, strict=True):
        check(got, wanted, **tolerance)
    for name, wanted in reference.states.items():
        check(compiled.state(name), wanted, name, **tolerance)


def check(got: np.ndarray, wanted: np.ndarray, what: str = "", *, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Compare arrays of one dtype."""
    assert got.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc" and wanted.dtype.name != "bfloat16":
        np.testing.assert_array_equal(got, wanted, err_msg=what)
    else:
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol, err_msg=what)
