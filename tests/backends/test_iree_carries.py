"""Loops that carry on whatever they may: carries in any order, once or several times, captured values, constants.

`test_iree_loops.py` has the programs that somebody thought of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import rlx
from tests.backends.state_programs import check
from tests.drawing import drawn, shares

_SHAPE = (3, 3)
_PROGRAMS = 60
_DTYPES = ("f32", "i32", "f64", "u8", "f16", "c64", "bool")
_ITERATIONS = (0, 1, 2, 5)

# What a carry becomes, of a graph, all carries and what the body captures.
_NEXT: dict[str, Callable[[Any, Sequence[Any], Any], Any]] = {
    "first": lambda g, c, captured: c[0],
    "last": lambda g, c, captured: c[-1],
    "captured": lambda g, c, captured: captured,
    "constant": lambda g, c, captured: g.constant(np.ones(_SHAPE, captured.dtype.numpy)),
    "function": lambda g, c, captured: g.where(c[0] == captured, c[-1], g.transpose(c[0], (1, 0))),
}
# What two carries start with.
_START: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "one_input": lambda g, x: (x, x),
    "computed": lambda g, x: (g.transpose(x, (1, 0)), g.reverse(x, [0])),
}


class _Loop(NamedTuple):
    kind: str
    start: str
    inside: str
    next: tuple[str, ...]


_LOOPS = [_Loop(*loop) for loop in product(("while", "scan"), _START, ("", "loop", "choice"), product(_NEXT, repeat=2))]


def _emit(g: Any, loop: _Loop, x: Any, captured: Any, iterations: int) -> Sequence[Any]:
    def mapped(carries: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(_NEXT[name](g, carries, captured) for name in loop.next)

    def following(carries: Sequence[Any]) -> tuple[Any, ...]:
        if loop.inside == "loop":
            carries = g.while_(lambda i, *_: i < 2, lambda i, *c: (i + 1, *mapped(c)), 0, *carries)[1:]
        elif loop.inside == "choice":
            carries = g.if_(
                g.min(g.cast(carries[0] == x, "i32")) > 0, lambda *c: mapped(c), lambda *c: c[::-1], *carries
            )
        return mapped(carries)

    start = _START[loop.start](g, x)
    if loop.kind == "while":
        return g.while_(lambda i, *_: i < iterations, lambda i, *c: (i + 1, *following(c)), 0, *start)[1:]
    carries, rows = g.scan(lambda c, row: (following(c), c[0]), start, x)
    return *carries, rows


@drawn("program", range(_PROGRAMS), of_each=2)
def test_loops_carry_on_whatever_they_may(program: int) -> None:
    dtype = _DTYPES[program % len(_DTYPES)]
    g: Any = rlx.Graph("loops")
    x = g.input("x", _SHAPE, dtype)
    captured = g.cumsum(x, 0) if dtype != "bool" else ~x
    results: list[Any] = []
    for i, loop in enumerate(shares(_LOOPS, _PROGRAMS, lambda loop: (loop.kind, loop.inside))[program]):
        results += _emit(g, loop, x, captured, _ITERATIONS[(program + i) % len(_ITERATIONS)])
    g.set_outputs(results)
    compiled = rlx.Session().compile(g)
    for seed in range(2):
        arrays = {"x": np.random.default_rng(seed).integers(0, 3, _SHAPE).astype(rlx.dtype(dtype).numpy)}
        for got, wanted in zip(compiled.run(arrays), rlx.evaluate(g, arrays), strict=True):
            check(got, wanted)
