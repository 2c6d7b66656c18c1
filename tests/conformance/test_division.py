"""Division by a number is a division: compilers may multiply by the inverse, which can round to another integer."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rlx
from tests.conformance import compiled, compiled_xla
from tests.drawing import drawn, of_which

_SCALE = 0.037
_FUNCTIONS: dict[str, Callable[[rlx.Graph, Any, Any], Any]] = {
    "div": lambda g, x, s: x / g.cast(s, x.dtype),
    "round": lambda g, x, s: g.round(x / g.cast(s, x.dtype)),
    "quantize": lambda g, x, s: g.quantize(x, s, 3),
    "quantize_per_channel": lambda g, x, s: g.quantize_per_channel(g.reshape(x, (1, -1)), g.reshape(s, (1,)), 0),
    "fake_quantize": lambda g, x, s: g.fake_quantize(x, g.cast(s, x.dtype), scale_mode="fixed"),
    "fake_quantize_lsq": lambda g, x, s: g.fake_quantize_lsq(x, g.cast(s, x.dtype)),
}


def _near_ties(kind: Any) -> np.ndarray:
    """Return numbers whose quotient by the scale is next to the middle of two integers, on either side, or exactly there."""
    middles = ((np.arange(-130, 130) + 0.5) * np.float32(_SCALE).astype(np.float64)).astype(kind)
    sides = [np.nextafter(middles, kind(bound)) for bound in (-np.inf, np.inf)]
    return np.concatenate([middles, *sides])


@of_which("backend")
@pytest.mark.parametrize("backend", [compiled, compiled_xla], ids=["iree", "xla"])
@drawn("known", [True, False], ids=lambda known: "constant" if known else "operand")
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_quotients_are_the_nearest_numbers(name: str, known: bool, backend: ModuleType) -> None:
    x, scale = _near_ties(rlx.dtype(name).numpy.type), np.array(_SCALE, np.float32)
    graphs = []
    for function in _FUNCTIONS.values():
        g = rlx.Graph()
        operand = g.input("x", x.shape, name)
        g.set_outputs([function(g, operand, g.constant(scale) if known else g.input("scale", ()))])
        graphs.append(g)
    arguments = [x] if known else [x, scale]
    programs = backend.compile_graphs(graphs)
    for told, graph, program in zip(_FUNCTIONS, graphs, programs, strict=True):
        assert program.problem is None, program.problem
        (expected,) = rlx.evaluate(graph, dict(zip(("x", "scale"), arguments, strict=False)))
        (got,) = program.run(arguments)
        assert np.array_equal(got, expected), f"{told}: {np.count_nonzero(got != expected)} of {got.size} differ"
