"""Long sums without a GPU: numbers of one sign, where the error of sequential addition grows with their count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from tests.conformance.compiled import compile_graphs
from tests.conformance.levels import at_any_level, skip_if_not_run

COUNT = 400_000
# By name: the function, and the allowed relative error.
SUMS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "sum": (lambda g, x: g.sum(x), 1e-6),
    "axis 0": (lambda g, x: g.sum(g.reshape(x, (COUNT // 4, 4)), 0), 1e-6),
    "axis 1": (lambda g, x: g.sum(g.reshape(x, (4, COUNT // 4)), 1), 1e-6),
    "mean": (lambda g, x: g.mean(x), 1e-6),
    "dot": (lambda g, x: g.dot(x, x), 1e-6),
    "norm": (lambda g, x: g.norm(x), 1e-6),
    "logsumexp": (lambda g, x: g.logsumexp(x), 1e-6),
    "var": (lambda g, x: g.var(g.iota((COUNT,), dtype="f32") * 1e-3), 1e-5),
    "loss": (lambda g, x: g.mse_loss(x, g.zeros_like(x)), 1e-6),
    "of bf16": (lambda g, x: g.sum(g.cast(x, "bf16")), 1e-2),
    "of complex numbers": (lambda g, x: g.abs(g.sum(g.complex(x, x))), 1e-6),
    "a convolution": (lambda g, x: g.conv1d(g.reshape(x, (1, 1, COUNT)), g.reshape(x, (1, 1, COUNT))), 1e-6),
}


def graph(size: int | str) -> rlx.Graph:
    """All sums of one input; with a symbol for the size, only those that do not need the size."""
    g: Any = rlx.Graph("sums")
    x = g.input("x", (size,))
    names = SUMS if isinstance(size, int) else ("sum", "mean", "norm", "logsumexp")
    g.set_outputs({name: SUMS[name][0](g, x) for name in names})
    return g


@pytest.mark.parametrize("size", [COUNT, "n"], ids=str)
@at_any_level()
def test_long_sums_are_accurate(size: int | str, level: str) -> None:
    g = graph(size)
    programs = compile_graphs([g], level=level)
    skip_if_not_run(level, programs)
    x = np.full(COUNT, 0.1, np.float32)
    for output, found, wanted in zip(g.results, programs[0].run([x]), rlx.evaluate(g, {"x": x}), strict=True):
        np.testing.assert_allclose(
            np.asarray(found, np.float64),
            np.asarray(wanted, np.float64),
            rtol=SUMS[output.name][1],
            err_msg=output.name,
        )


def test_long_sums_of_c_programs() -> None:
    g: Any = rlx.Graph("sums")
    x = g.input("x", (COUNT,))
    g.set_outputs([g.sum(x), g.mean(x)])
    found = rlx.Session("c").compile(g).run({"x": np.full(COUNT, 0.1, np.float32)})
    np.testing.assert_allclose(found, [COUNT / 10, 0.1], rtol=1e-6)
