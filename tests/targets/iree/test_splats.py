"""Reductions of splat tensors, compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from tests.conformance.compiled import compile_graphs


def _ones(g: Any, dtype: Any, value: Any, *shape: Any) -> Any:
    return g.expand(g.constant(np.asarray(value, dtype)), shape)


CASES: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{kind} {np.dtype(dtype)}": lambda g, x, k=kind, d=dtype: g.cast(g.reduce(k, _ones(g, d, 2, 10), (0,)), "f32")
        for kind in ("sum", "prod", "max")
        for dtype in (np.float32, np.int32, np.int8, np.float64)
    },
    "rows": lambda g, x: g.sum(_ones(g, np.float32, 2, 4, 10), (1,)),
    "columns": lambda g, x: g.sum(_ones(g, np.float32, 2, 10, 4), (0,)),
    "mean": lambda g, x: g.mean(_ones(g, np.float32, 2, 10), (0,)),
    "of one element": lambda g, x: g.sum(g.expand(x[1], (10,)), (0,)),
    "of functions": lambda g, x: g.sum(g.exp(g.mul(_ones(g, np.float32, 0.5, 10), _ones(g, np.float32, 2, 10))), (0,)),
    "running": lambda g, x: g.cumsum(_ones(g, np.float32, 2, 4), 0),
    "pool": lambda g, x: g.reshape(g.avg_pool(_ones(g, np.float32, 2, 1, 1, 8), (2,), 2, 0), (4,)),
    "product": lambda g, x: g.matmul(_ones(g, np.float32, 2, 4, 6), _ones(g, np.float32, 2, 6)),
    "two axes": lambda g, x: g.sum(g.transpose(_ones(g, np.float32, 2, 3, 5), (1, 0)), (0, 1)),
}


def test_compiled() -> None:
    x, graphs = np.arange(4, dtype=np.float32), []
    for build in CASES.values():
        g: Any = rlx.Graph("main")
        given = g.input("x", (4,))
        g.set_outputs([g.add(given, build(g, given))])
        graphs.append(g)
    for name, g, program in zip(CASES, graphs, compile_graphs(graphs), strict=True):
        assert program.problem is None, (name, program.problem)
        np.testing.assert_allclose(program.run([x])[0], rlx.evaluate(g, {"x": x})[0], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("size", ["n", 70_000])
def test_of_open_and_of_large_sizes(size: Any) -> None:
    """Sizes for which no earlier pass computes the result."""
    g: Any = rlx.Graph("main")
    x = g.input("x", (size,))
    g.set_outputs([g.sum(x) / g.sum(g.full(x.shape.dims, 1.0))])
    values = np.full(70_000, 3.0, np.float32)
    np.testing.assert_allclose(rlx.Session("cpu").compile(g).run({"x": values})[0], 3.0, rtol=1e-4)
