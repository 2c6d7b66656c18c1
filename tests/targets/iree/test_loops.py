"""Loops where the compiler must not share buffers, compared with the evaluator, with static and symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.building import estimated_flops
from rlx.targets.iree import targets
from rlx.targets.iree.program import choose_driver
from tests.drawing import drawn
from tests.ops.references import agree, random
from tests.targets.iree.iree_text import iree_text

_ROOM = np.array(1e-5)


def _zeros(g: Any, x: Any) -> Any:
    return g.expand(g.constant(0.0), x.shape.dims[1:])


def _put(g: Any, table: Any, row: Any, value: Any) -> Any:
    """Add to a row of a table, which compilers often do in place."""
    return g.scatter_nd(table, g.reshape(row, (1, 1)), g.reshape(value, (1, 4)), reduction="add")


def _computed_carries(g: Any, x: Any, w: Any, _: Any) -> list[Any]:
    """Several initial carries from consecutive kernel calls, and several stacks of one shape."""
    ones = g.expand(g.constant(1.0), (*x.shape.dims[1:], 2))
    initial = (_zeros(g, x), ones, g.matmul(x[0], w), g.exp(x[1]), g.transpose(g.matmul(x[2], w), (1, 0)))

    def body(carry: Any, row: Any) -> Any:
        z, ones, a, e, t = carry
        following = (z + row, ones * 0.5 + g.reshape(z, (*z.shape.dims, 1)), a + z, g.matmul(e, w), t + 1.0)
        return following, (a + e, g.sum(ones, -1))

    carries, stacks = g.scan(body, initial, g.matmul(x, w))
    return [*carries, *stacks]


def _one_tensor_as_two_carries(g: Any, x: Any, w: Any, rows: Any) -> list[Any]:
    start = g.matmul(x[0], w)

    def body(carry: Any, slices: Any) -> Any:
        (a, b), (values, row) = carry, slices
        return (_put(g, a, row, values[0]), _put(g, b, row, values[1])), None

    carries, _ = g.scan(body, (start, start), (x, rows))
    return [*carries, start]


def _old_and_new_carries(g: Any, x: Any, w: Any, rows: Any) -> list[Any]:
    def body(carry: Any, slices: Any) -> Any:
        (old, before), (values, row) = carry, slices
        new = _put(g, old, row, values[0])
        return (new, new), (before, old)

    start = g.exp(x[0])
    carries, stacks = g.scan(body, (start, start), (x, rows))
    return [*carries, *stacks]


def _nested(g: Any, x: Any, w: Any, _: Any) -> list[Any]:
    def inner(carry: Any, row: Any) -> Any:
        a, b = carry
        return (a + row, b + a), b

    def outer(carry: Any, row: Any) -> Any:
        (p, q), stack = g.scan(inner, (_zeros(g, x), g.matmul(row, w)), x)
        return (carry[0] + p, carry[1] + q * 0.1), stack

    carries, stack = g.scan(outer, (_zeros(g, x), g.matmul(x[0], w)), g.exp(x))
    return [*carries, stack]


def _while_and_if(g: Any, x: Any, w: Any, _: Any) -> list[Any]:
    def choose(carry: Any, row: Any) -> Any:
        def yes(a: Any, e: Any) -> Any:
            return g.matmul(a, w), e

        a, e = g.if_(g.sum(row) > 0.0, yes, lambda a, e: (e, g.tanh(a)), *carry)
        return (a, e), a + e

    carries, stack = g.scan(choose, (_zeros(g, x), g.matmul(x[0], w)), x)
    looped = g.while_(
        lambda i, *_: i < 4, lambda i, z, a: (i + 1, z + a, g.matmul(a, w)), 0, _zeros(g, x), g.matmul(x[1], w)
    )
    return [*carries, stack, *looped]


_PROGRAMS: list[Callable[..., list[Any]]] = [
    _computed_carries,
    _one_tensor_as_two_carries,
    _old_and_new_carries,
    _nested,
    _while_and_if,
]


def _check(build: Callable[..., list[Any]], steps: int, symbolic: bool) -> None:
    arrays = {
        "x": random("f32", (steps, 4, 4), low=-0.4, high=0.4),
        "w": random("f32", (4, 4), low=-0.4, high=0.4, seed=1),
        "rows": np.arange(steps, dtype=np.int32) * 3 % 4,
    }
    length, batch = ("steps", "batch") if symbolic else (steps, 4)
    g = rlx.Graph("loops")
    x, w = g.input("x", (length, batch, 4)), g.input("w", (4, 4))
    g.set_outputs(build(g, x, w, g.input("rows", (length,), dtype="i32")))
    for got, expected in zip(
        rlx.Session("cpu").compile(g, kernels="off").run(arrays), rlx.evaluate(g, arrays), strict=True
    ):
        agree(got, expected, noise=_ROOM)


@drawn("symbolic", [False, True])
@pytest.mark.parametrize("build", _PROGRAMS)
def test_buffers_are_kept_apart(build: Callable[..., list[Any]], symbolic: bool) -> None:
    _check(build, 5, symbolic)


def _both_ways(g: Any, x: Any, w: Any, _: Any) -> list[Any]:
    """The stacked values identify their steps. A long loop is lowered to two nested loops."""
    found: list[Any] = []
    for reverse in (False, True):
        last, stack = g.scan(lambda c, row: (g.tanh(g.matmul(c, w) + row), c), _zeros(g, x), x, reverse=reverse)
        found += [last, stack]
    return found


@pytest.mark.parametrize("steps", [0, 1, 31, 32, 33, 64, 70])
def test_long_scans_of_symbolic_length(steps: int) -> None:
    _check(_both_ways, steps, True)


@pytest.mark.parametrize("steps", [63, 64, 70])
def test_long_scans(steps: int) -> None:
    _check(_both_ways, steps, False)


def test_matmuls_stay_before_the_loop() -> None:
    """IREE's input has blocks instead of `scf`, which IREE compiles incorrectly, and fences for values that steps read."""
    g = rlx.Graph("loops")
    x, w = g.input("x", ("steps", 4, 4)), g.input("w", (4, 4))
    g.set_outputs(_both_ways(g, g.matmul(x, w), w, None))
    text = iree_text(g)
    assert "cf.cond_br" in text and "scf." not in text and text.count("flow.tensor.tie_shape") == 2


_STARTS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "arguments": lambda g, a: (a, a),
    "constants": lambda g, a: (g.expand(g.constant(0.0), (4,)), g.expand(g.constant(0.0), (4,))),
    "computed": lambda g, a: (g.sin(a), g.cos(a)),
}


@drawn("stacks", [2, 3])
@pytest.mark.parametrize("start", _STARTS)
def test_several_values_that_live_equally_long(start: str, stacks: int) -> None:
    """Carries, inputs and stacks have few different sizes. A shared buffer used to lose some of them."""
    g: Any = rlx.Graph()
    a, x, y = g.input("a", (4,)), g.input("x", (5, 4)), g.input("y", (5, 4))

    def step(carries: Any, rows: Any) -> Any:
        (c, d), (u, v) = carries, rows
        return (c * u + 1.0, c * v + d * u), (c, d, c + d)[:stacks]

    carries, stacked = g.scan(step, _STARTS[start](g, a), (g.exp(x), g.sin(y)))
    g.set_outputs([*carries, *stacked])
    values = {"a": random("f32", (4,)), "x": random("f32", (5, 4)), "y": random("f32", (5, 4))}
    compiled = rlx.Session().compile(g, kernels="off")
    for _ in range(2):
        for got, wanted in zip(compiled.run(values), rlx.evaluate(g, values), strict=True):
            agree(got, wanted, noise=_ROOM)


@pytest.mark.parametrize("length", [200, "t"])
def test_several_stacks_of_a_long_scan(length: Any) -> None:
    """Stacks of one dtype are packed into one stack with concatenated rows."""
    g: Any = rlx.Graph()
    xs, h = g.input("xs", (length, 2, 3)), g.input("h", (2, 3))

    def body(carry: Any, x: Any) -> Any:
        carry = g.tanh(carry + x)
        return carry, (carry * x, g.sum(carry), carry[:, 0])

    carry, same = g.scan(body, h, xs, reverse=True)
    _, mixed = g.scan(lambda c, x: (c + x, (c, g.cast(c * 100.0, "i32"))), h, xs)
    g.set_outputs([carry, *same, *mixed])
    values = {"xs": random("f32", (200, 2, 3)), "h": random("f32", (2, 3))}
    for got, wanted in zip(rlx.Session().compile(g, kernels="off").run(values), rlx.evaluate(g, values), strict=True):
        agree(got, wanted, noise=_ROOM)


@drawn("view", [False, True])
@pytest.mark.parametrize("loop", ["scan", "while"])
def test_an_argument_as_two_carries(loop: str, view: bool) -> None:
    """The size of the argument is read from another argument."""
    g: Any = rlx.Graph()
    g.input("anchor", ("n", 3))
    x, xs = g.input("x", ("n", 4)), g.input("xs", ("m", "n", 4))
    second = g.reshape(x, (4, "n")) if view else x

    def body(a: Any, b: Any, row: Any) -> tuple[Any, Any]:
        return g.tanh(a * 0.5 + row) + g.reshape(b, ("n", 4)), b * 0.9

    if loop == "scan":
        carries, _ = g.scan(lambda c, row: (body(c[0], c[1], row), None), (x, second), xs)
    else:
        steps = g.dim_size(xs.shape.dims[0])
        step = lambda i, a, b: (i + 1, *body(a, b, x))  # noqa: E731
        carries = g.while_(lambda i, a, b: i < steps, step, 0, x, second)[1:]
    g.set_outputs([carries[0] + g.mean(carries[1]), xs * 2.0])
    compiled = rlx.Session().compile(g, kernels="off")
    for n, m in ((3, 5), (1, 1), (4, 40)):
        values = {"anchor": random("f32", (n, 3)), "x": random("f32", (n, 4)), "xs": random("f32", (m, n, 4))}
        for got, wanted in zip(compiled.run(values), rlx.evaluate(g, values), strict=True):
            agree(got, wanted, noise=_ROOM)


def _recurrence(steps: int | str, size: int) -> Any:
    g: Any = rlx.Graph("recurrence")
    w = g.param("w", (size, size))

    def body(h: Any, x: Any) -> Any:
        return (g.tanh(h @ w + x),) * 2

    _, stack = g.scan(body, g.input("h", (1, size)), g.input("x", (steps, 1, size)))
    g.set_outputs(stack)
    return g


def test_threads_have_to_pay_in_each_step_of_a_loop() -> None:
    """The choice of threads depends on the work in one step, not on the number of steps."""
    target = targets.target("cpu")
    for size, driver in ((64, "local-sync"), (4096, "local-task")):
        flops = {estimated_flops(_recurrence(steps, size).module) for steps in (1, 1000, "n")}
        assert len(flops) == 1
        assert choose_driver(target, flops.pop(), None) == driver
