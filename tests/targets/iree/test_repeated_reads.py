"""Tensors that an op reads at two positions, such as `s[i] + s[j]` (quirk `two-positions`)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import rlx

Make = Callable[[Any, Any], Any]

# Vectors and square matrices, from a square matrix `x [4, 4]`.
_ROOTS: dict[str, Make] = {
    "sum over rows": lambda g, x: g.sum(x, axes=0),
    "sum over columns": lambda g, x: g.sum(x * x, axes=1),
    "max": lambda g, x: g.max(x, axes=0),
    "mean": lambda g, x: g.mean(x, axes=1),
    "argmax": lambda g, x: g.cast(g.argmax(x, axis=1), "f32"),
    "product with a vector": lambda g, x: g.reshape(x @ x[:, :1], (4,)),
    "product": lambda g, x: x @ x,
    "softmax": lambda g, x: g.softmax(x, axis=1),
    "normalised": lambda g, x: x / g.sqrt(g.sum(x * x, axes=0, keep_dims=True)),
    "running sum": lambda g, x: g.cumsum(x, axis=0),
    "sorted": lambda g, x: g.sort(x, axis=0),
    "sum of a batch": lambda g, x: g.sum(g.reshape(x, (4, 2, 2)), axes=0),
}
_VECTOR_POSITIONS: dict[str, tuple[Make, Make]] = {
    "outer": (lambda g, s: g.expand_dims(s, 0), lambda g, s: g.expand_dims(s, 1)),
    "reversed": (lambda g, s: s, lambda g, s: g.reverse(s, (0,))),
    "parts": (lambda g, s: s[1:], lambda g, s: s[:-1]),
    "folded": (lambda g, s: g.reshape(s, (2, 2)), lambda g, s: g.transpose(g.reshape(s, (2, 2)))),
    "apart": (lambda g, s: g.exp(g.expand_dims(s, 1)), lambda g, s: g.expand_dims(g.tanh(s), 0)),
}
_MATRIX_POSITIONS: dict[str, tuple[Make, Make]] = {
    "transposed": (lambda g, m: m, lambda g, m: g.transpose(m)),
    "apart": (lambda g, m: g.exp(m), lambda g, m: g.transpose(g.tanh(m))),
    "pairs": (lambda g, m: g.expand_dims(m, 0), lambda g, m: g.expand_dims(m, 1)),
}
_READERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "difference": lambda g, a, c: a - c,
    "product": lambda g, a, c: g.tanh(a) * c,
    "choice": lambda g, a, c: g.where(a > c, a, 0.5 * c),
    "sum": lambda g, a, c: g.sum(g.square(a - c)),
}


def _cases() -> list[tuple[str, Make]]:
    cases: list[tuple[str, Make]] = []
    for (root, make), (reader, read) in product(_ROOTS.items(), _READERS.items()):
        is_vector = list(_ROOTS).index(root) < 6
        for place, (first, second) in (_VECTOR_POSITIONS if is_vector else _MATRIX_POSITIONS).items():

            def case(
                g: Any, x: Any, make: Any = make, read: Any = read, first: Any = first, second: Any = second
            ) -> Any:
                value = make(g, x)
                return read(g, first(g, value), second(g, value))

            cases.append((f"{reader} of {root}, {place}", case))
    return cases


@pytest.mark.parametrize("level, part", [(0, 0), *((2, part) for part in range(6))])
def test_an_op_reads_a_tensor_at_two_positions(level: int, part: int) -> None:
    rng = np.random.default_rng(part)
    cases, inputs, outputs = _cases()[part::6], dict[str, np.ndarray](), list[Any]()
    g: Any = rlx.Graph("reads")
    for number, (_, make) in enumerate(cases):  # each with its own input, so that no op belongs to two cases
        inputs[f"x{number}"] = rng.standard_normal((4, 4)).astype(np.float32)
        outputs.append(make(g, g.input(f"x{number}", (4, 4))))
    g.set_outputs(outputs)
    found = rlx.Session("cpu").compile(g, opt=level).run(inputs)
    for (name, _), got, expected in zip(cases, found, rlx.evaluate(g, inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_pairwise_distances_of_any_number_of_points() -> None:
    g: Any = rlx.Graph("distances")
    x = g.input("x", ("points", 3))
    squares = g.sum(x * x, axes=1)
    g.set_outputs([g.expand_dims(squares, 1) + g.expand_dims(squares, 0) - 2.0 * (x @ g.transpose(x))])
    program = rlx.Session("cpu").compile(g)
    for count in (1, 2, 7, 40):
        points = np.random.default_rng(count).standard_normal((count, 3)).astype(np.float32)
        expected = ((points[:, None] - points[None]) ** 2).sum(-1)
        np.testing.assert_allclose(program.run({"x": points})[0], expected, rtol=1e-4, atol=1e-4)
