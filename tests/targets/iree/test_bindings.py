"""Programs whose ops IREE would fuse into kernels with more tensors than a kernel supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import rlx
from tests.drawing import drawn

_SHAPE = (3,)


def _scan(g: Any, xs: Sequence[Any]) -> list[Any]:
    """A scan whose steps read an element of each input, and return one result for each."""

    def step(carry: Any, rows: Sequence[Any]) -> Any:
        return reduce(g.add, rows, carry), [row * carry for row in rows]

    carry, stacks = g.scan(step, g.constant(np.float32(1)), list(xs))
    return [carry, *stacks]


_PROGRAMS: dict[str, Callable[[Any, Sequence[Any]], list[Any]]] = {
    "a sum": lambda g, xs: [reduce(g.add, xs)],
    "a sum, and all that it is made of": lambda g, xs: [
        reduce(lambda a, b: g.tanh(a + b), xs),
        *(x * xs[0] for x in xs),
    ],
    "choices": lambda g, xs: [reduce(lambda a, b: g.where(b > a, b, a * 0.5), xs)],
    "sums of each": lambda g, xs: [g.stack([g.sum(x) for x in xs]), reduce(g.add, map(g.sin, xs))],
    "elements": lambda g, xs: [g.stack([g.where(a[0] > b[1], a[0], b[2]) for a, b in pairwise(xs)])],
    "elements of elements": lambda g, xs: [x[0] * xs[0][1] + xs[1][2] for x in xs],
    "joined": lambda g, xs: [g.concat([*(g.cumsum(x, 0) * xs[-1] for x in xs), reduce(g.add, xs)], 0)],
    "steps": _scan,
}


@pytest.mark.parametrize("name", _PROGRAMS)
@drawn("count", [17, 31, 32, 33, 64, 90])
def test_runs_whatever_it_reads(name: str, count: int) -> None:
    g: Any = rlx.Graph("many")
    arrays = {f"x{i}": np.array([i % 7, -i, i / 8], np.float32) for i in range(count)}
    g.set_outputs(_PROGRAMS[name](g, [g.input(n, _SHAPE) for n in arrays]))
    for got, wanted in zip(
        rlx.Session("cpu").compile(g, kernels="off").run(arrays), rlx.evaluate(g, arrays), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
