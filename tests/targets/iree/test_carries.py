"""Random loops: carries in any order, once or several times, captured values, constants.

`test_loops.py` has hand-written programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from rlx.targets.iree.compiler import compile_module
from rlx.targets.iree.targets import target
from tests.drawing import drawn, shares
from tests.targets.iree.state_programs import check
from tests.targets.iree.vm_branches import lowered, wrong_branches

_SHAPE = (3, 3)
_PROGRAMS = 60
_DTYPES = ("f32", "i32", "f64", "u8", "f16", "c64", "bool")
_ITERATIONS = (0, 1, 2, 5)

# The next value of a carry, as a function of a graph, all carries and the captured value.
_NEXT: dict[str, Callable[[Any, Sequence[Any], Any], Any]] = {
    "first": lambda g, c, captured: c[0],
    "last": lambda g, c, captured: c[-1],
    "captured": lambda g, c, captured: captured,
    "constant": lambda g, c, captured: g.constant(np.ones(_SHAPE, captured.dtype.numpy)),
    "function": lambda g, c, captured: g.where(c[0] == captured, c[-1], g.transpose(c[0], (1, 0))),
}
# The initial values of two carries.
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


def _program(number: int) -> Any:
    dtype = _DTYPES[number % len(_DTYPES)]
    g: Any = rlx.Graph("loops")
    x = g.input("x", _SHAPE, dtype)
    captured = g.cumsum(x, 0) if dtype != "bool" else ~x
    results: list[Any] = []
    for i, loop in enumerate(shares(_LOOPS, _PROGRAMS, lambda loop: (loop.kind, loop.inside))[number]):
        results += _emit(g, loop, x, captured, _ITERATIONS[(number + i) % len(_ITERATIONS)])
    g.set_outputs(results)
    return g


@drawn("program", range(_PROGRAMS), of_each=2)
def test_loops_carry_on_whatever_they_may(program: int) -> None:
    g = _program(program)
    compiled = rlx.Session().compile(g, kernels="off")
    for seed in range(2):
        numbers = np.random.default_rng(seed).integers(0, 3, _SHAPE)
        arrays = {"x": numbers.astype(g.inputs[0].shape.dtype.numpy)}
        for got, wanted in zip(compiled.run(arrays), rlx.evaluate(g, arrays), strict=True):
            check(got, wanted)


_INSIDE = ("", "before", "between", "choice")


@pytest.mark.parametrize("kind", ["while", "counted"])
@drawn("inside", _INSIDE)
@drawn("order", list(permutations(range(3))))
def test_a_step_computes_several_carries_by_kernels_of_their_own(kind: str, inside: str, order: Sequence[int]) -> None:
    g: Any = rlx.Graph("loops")
    x, limit = g.input("x", (5,)), g.input("limit", (), "f32")
    start = [(x, x[0], x)[i] for i in order]

    def halved(value: Any) -> Any:
        return g.while_(lambda v: g.max(v, (0,)) > 8.0, lambda v: v * 0.5, value)

    def step(*carries: Any) -> list[Any]:
        total, size, terms = (carries[order.index(i)] for i in range(3))
        if inside == "before":
            total = halved(total)
        elif inside == "choice":
            total = g.if_(size > 20.0, lambda t: (t * 0.5,), lambda t: (g.reverse(t, [0]),), total)
        following = [total + terms, size * 2.0, g.cumsum(terms, 0) * 0.5]
        if inside == "between":
            following[2] = halved(following[2])
        return [following[i] for i in order]

    if kind == "while":
        g.set_outputs(g.while_(lambda *c: c[order.index(1)] < limit, step, *start))
    else:
        g.set_outputs(g.while_(lambda i, *c: i < 9, lambda i, *c: (i + 1, *step(*c)), 0, *start)[1:])
    arrays = {"x": np.arange(1, 6, dtype=np.float32), "limit": np.float32(300)}
    for got, wanted in zip(rlx.Session().compile(g, kernels="off").run(arrays), rlx.evaluate(g, arrays), strict=True):
        check(got, wanted)


@drawn("program", range(_PROGRAMS), of_each=1)
def test_branches_pass_on_what_is_there(program: int, tmp_path: Path) -> None:
    """Branches do not drop forwarded values. The error may be invisible: without a fence, a program may read too early."""
    g = _program(program)
    assert not wrong_branches(compile_module(lowered(g), target("cpu"), timeout_s=60).vmfb, tmp_path)


@pytest.mark.parametrize("name", ["svd", "eigh"])
def test_branches_of_factorisations_pass_on_what_is_there(name: str, tmp_path: Path) -> None:
    g: Any = rlx.Graph("loops")
    g.set_outputs(getattr(g, name)(g.input("x", (4, 4))))
    assert not wrong_branches(compile_module(lowered(g), target("cpu"), timeout_s=60).vmfb, tmp_path)


def test_blocks_that_the_compiler_joins_are_passed_no_condition(tmp_path: Path) -> None:
    """Loops over `if`: both branches end in the same blocks."""
    g: Any = rlx.Graph("loops")
    x, limit = g.input("x", (3, 2)), g.input("limit", (), "f32")

    def steps(least: float) -> Callable[..., Any]:
        def step(carries: Any, row: Any) -> Any:
            following = g.if_(g.sum(carries[0]) > least, lambda a, b: (a + row, b), lambda a, b: (b, a * row), *carries)
            return following, ()

        return lambda *carries: g.scan(step, carries, x)[0]

    g.set_outputs(list(g.if_(limit > 0.0, steps(0.0), steps(1.0), x, g.cumsum(x, 0))))
    assert not wrong_branches(compile_module(lowered(g), target("cpu"), timeout_s=60).vmfb, tmp_path)


def test_blocks_that_the_compiler_joins_lose_no_tensor(tmp_path: Path) -> None:
    """An `if` in an `if` with the same condition: some branches return existing values, one returns results of kernels."""
    g: Any = rlx.Graph("choices")
    a, bits, y = g.input("a", (1,), "f64"), g.input("bits", (1,), "bool"), g.input("y", (2, 2))
    words, b = g.input("words", (1, 2), "u8"), g.input("b", (1,), "f64")
    holds, factor = g.input("holds", (), "bool"), g.input("factor", (), "f64")
    total = g.sum(y)

    def otherwise() -> tuple[Any, ...]:
        x, w, z = g.if_(holds, lambda: (a, words, y), lambda: (a * factor, words, g.reverse(y, [0])))
        return x, bits, w, z

    x, _, _, z = g.if_(holds, lambda: (b, bits, words, y), otherwise)
    g.set_outputs([x, z, total])
    assert not wrong_branches(compile_module(lowered(g), target("cpu"), timeout_s=60).vmfb, tmp_path)
