"""Products of real numbers whose elements are used together with complex numbers compile, with any fusion in IREE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from tests.conformance.compiled import compile_graphs, contiguous
from tests.drawing import drawn
from tests.ops.references import random

_USES: dict[str, Callable[..., Any]] = {
    "made complex": lambda g, x, w, z, u: g.complex(x @ w, g.imag(z)),
    "cast": lambda g, x, w, z, u: g.cast(x @ w, "c64"),
    "times complex": lambda g, x, w, z, u: (x @ w) * z,
    "times a real part": lambda g, x, w, z, u: (x @ w) * g.real(z),
    "times a size": lambda g, x, w, z, u: g.relu(x @ w) * (g.abs(z) + 1.0),
    "chooses": lambda g, x, w, z, u: g.where(x @ w > 0.0, z, 1.0),
    "transposed": lambda g, x, w, z, u: g.complex(g.transpose(x @ w), 1.0),
    "expanded": lambda g, x, w, z, u: g.cast(g.expand(x @ w, (2, *z.shape)), "c64"),
    "batched": lambda g, x, w, z, u: g.complex(g.reshape(x, (1, *x.shape)) @ g.reshape(w, (1, *w.shape)), 0.0),
    "dot_general": lambda g, x, w, z, u: g.complex(g.dot_general(w, x, (0,), (1,)), 0.0),
    "narrow": lambda g, x, w, z, u: g.cast(g.cast(x, "f16") @ g.cast(w, "f16"), "c64"),
    "convolution": lambda g, x, w, z, u: g.cast(
        g.conv(g.reshape(x, (1, 1, *x.shape)), g.constant(np.ones((3, 1, 1, 1), np.float32))), "c64"
    ),
    "of a real part": lambda g, x, w, z, u: g.real(u) @ w,
    "of parts, subtracted": lambda g, x, w, z, u: g.complex(g.real(u) @ w - g.imag(u) @ w, g.imag(u) @ w),
    "of complex numbers": lambda g, x, w, z, u: g.real(u @ w) + x @ w,
}


@drawn("rows", [3, "n"])
def test_products_beside_complex_numbers(rows: int | str) -> None:
    shapes = {"x": (3, 40), "w": (40, 17), "z": (3, 17), "u": (3, 40)}
    arrays = {name: random("c64" if name in "zu" else "f32", shape, low=-1, high=1) for name, shape in shapes.items()}
    graphs = []
    for use in _USES.values():
        graph = Graph()
        tensors = [
            graph.input(name, (rows if shape[0] == 3 else shape[0], shape[1]), "c64" if name in "zu" else "f32")
            for name, shape in shapes.items()
        ]
        graph.set_outputs(use(graph, *tensors))
        graphs.append(graph)
    for name, program in zip(_USES, compile_graphs(graphs), strict=True):
        assert program.problem is None, f"{name}: {program.problem}"
        (got,) = program.run(contiguous(list(arrays.values())))
        (expected,) = evaluate(program.graph, arrays)
        np.testing.assert_allclose(got, expected, rtol=2e-2 if name == "narrow" else 1e-5, atol=2e-5, err_msg=name)


_CONTRACTIONS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], Callable[..., Any]]] = {
    "matrices": (("n", 40), (40, 17), lambda g, a, b: a @ b),
    "batches": (("n", 5, 7), ("n", 7, 4), lambda g, a, b: a @ b),
    "stretched": ((5, 7), ("n", 7, 4), lambda g, a, b: a @ b),
    "stretched both ways": (("n", 1, 5, 7), (2, 7, 4), lambda g, a, b: a @ b),
    "axes anywhere": ((4, "n", 6), (6, 5, "n"), lambda g, a, b: g.dot_general(a, b, (2,), (0,), (1,), (2,))),
    "of unknown length": ((3, "n"), ("n", 2), lambda g, a, b: a @ b),
    "outer": ((3,), ("n",), lambda g, a, b: g.dot_general(a, b, (), ())),
    "inner": (("n",), ("n",), lambda g, a, b: g.dot_general(a, b, (0,), (0,))),
    "of nothing": (("n", 0), (0, 4), lambda g, a, b: a @ b),
    "chained": (("n", 6), (6, 6), lambda g, a, b: (a @ b) @ b + a),
}


@drawn("symbolic", [False, True])
def test_complex_contractions(symbolic: bool) -> None:
    graphs, operands = [], []
    for left, right, build in _CONTRACTIONS.values():
        graph, arrays = Graph(), []
        tensors = []
        for i, dims in enumerate((left, right)):
            shape = tuple(9 if d == "n" else d for d in dims)
            tensors.append(graph.input(f"x{i}", dims if symbolic else shape, "c64"))
            arrays.append(random("c64", shape, low=-1, high=1, seed=i))
        graph.set_outputs(build(graph, *tensors))
        graphs.append(graph)
        operands.append(arrays)
    for name, arrays, program in zip(_CONTRACTIONS, operands, compile_graphs(graphs), strict=True):
        assert program.problem is None, f"{name}: {program.problem}"
        (got,) = program.run(contiguous(arrays))
        (expected,) = evaluate(program.graph, {f"x{i}": a for i, a in enumerate(arrays)})
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-5, err_msg=name)
