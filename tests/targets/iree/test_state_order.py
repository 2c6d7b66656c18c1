"""Random programs whose outputs read old and new values of states that are updated in place, compared with the evaluator.

A kernel that overwrites a state must run after all readers of the old value. `test_states.py` varies the kinds of values of two
states. Here the number of states, the readers, and the host work between them vary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from tests.conformance.random_graphs import Choose, seeded
from tests.drawing import drawn
from tests.targets.iree.state_programs import Reference, check_steps

_STEPS = 3
_SHAPES = ((3,), (4, 3))
_DTYPES = ("i32", "i32", "i32", "f32", "i64", "u8")
_ARCHS = ("host", "x86-64-v2")


class _Parts(NamedTuple):
    """The building blocks of a program: the graph, the choices, a state, other tensors of its type, and an input."""

    g: Any
    choose: Choose
    state: Any
    others: list[Any]
    x: Any

    @property
    def other(self) -> Any:
        return self.others[self.choose(len(self.others))]


def _looped(p: _Parts) -> Any:
    """A loop whose body reads the state."""
    return p.g.scan(lambda c, _: (c + p.state, None), p.x, p.g.constant(np.zeros(3, np.int32)))[0]


def _counted(p: _Parts) -> Any:
    """A loop whose body reads the state in a step that a later step discards."""
    return p.g.while_(lambda i, _: i < 3, lambda i, c: (i + 1, p.g.reverse(p.state, [0]) + p.x), 0, p.x)[1]


def _chosen(p: _Parts) -> Any:
    """A branch that reads the state, with a condition that the host reads."""
    other = p.other
    return p.g.if_(p.g.sum(p.x) > p.g.sum(other), lambda: p.state + p.x, lambda: other - p.x)


def _written(p: _Parts) -> Any:
    """The state with its first rows replaced."""
    return p.g.dynamic_update_slice(p.state, p.x[:1] + p.other[1:2], (1,) + (0,) * (p.state.rank - 1))


def _scattered(p: _Parts) -> Any:
    """The state with numbers added to some rows."""
    rows = p.g.constant(np.array([[2], [0]]))
    return p.g.scatter_nd(p.state, rows, p.x[:2] + p.other[1:3], reduction="add")


def _wide(p: _Parts) -> Any:
    """The state computed in another dtype."""
    return p.g.cast(p.g.cast(p.state, "i64" if p.state.dtype.name != "i64" else "i32") + 1, p.state.dtype)


_ELEMENTWISE: tuple[Callable[[_Parts], Any], ...] = (
    lambda p: p.state + 1,
    lambda p: p.state + 1,
    lambda p: p.state + p.x,
    lambda p: p.state * 2 + 1,
    lambda p: p.state - p.other,
    lambda p: p.other + p.x,
    lambda p: p.g.where(p.x > p.state, p.other, p.state + 2),
    lambda p: p.state + p.g.sum(p.other),
)
_MOVES: tuple[Callable[[_Parts], Any], ...] = (
    lambda p: p.x,
    lambda p: p.other,
    lambda p: p.g.reverse(p.state, [0]),
    lambda p: p.g.cumsum(p.other, 0),
    _wide,
    _written,
    _scattered,
)
_READERS = (
    *_ELEMENTWISE,
    lambda p: p.state,
    lambda p: p.state[1:],
    lambda p: p.g.sum(p.state, 0),
    lambda p: p.g.cumsum(p.state, 0),
    lambda p: p.g.cumsum(p.state + p.other, 0) * p.state,
)
_HOST = (_looped, _counted, _chosen)


def _program(seed: int, host: bool) -> Any:
    """A program of up to six states, mostly of one type. With `host`, some values need loops and branches."""
    choose, g = seeded(seed), rlx.Graph("order")
    kinds: list[tuple[tuple[int, ...], str]] = [(_SHAPES[choose(2)], _DTYPES[choose(6)])]
    kinds.append((_SHAPES[choose(2)], _DTYPES[choose(6)]))
    drawn_kinds = [kinds[choose(4) == 0] for _ in range(1 + choose(6))]
    states = [g.state(f"s{i}", shape, dtype, init=i) for i, (shape, dtype) in enumerate(drawn_kinds)]
    inputs = [g.input(f"x{i}", shape, dtype) for i, (shape, dtype) in enumerate(drawn_kinds)]
    known: dict[tuple[tuple[int, ...], str], list[Any]] = {kind: [] for kind in drawn_kinds}
    for kind, state, x in zip(drawn_kinds, states, inputs, strict=True):
        known[kind] += [state, x]

    def parts(i: int) -> _Parts:
        x = inputs[i] if choose(2) else next(x for k, x in zip(drawn_kinds, inputs, strict=True) if k == drawn_kinds[i])
        return _Parts(g, choose, states[i], known[drawn_kinds[i]], x)

    outputs: list[Any] = []
    shared = seeded(seed + 1_000_000)(len(_ELEMENTWISE)) if choose(2) else None  # one function for all states
    for i in range(len(states)):
        if host and choose(3) == 0:
            value = _HOST[choose(len(_HOST))](parts(i))
            known[drawn_kinds[i]].append(value)
            outputs += [value] * choose(2)
        for _ in range(choose(3)):
            value = _READERS[choose(len(_READERS))](parts(i))
            outputs.append(value)
            if value.shape.dims == states[i].shape.dims:
                known[drawn_kinds[i]].append(value)
    for i, state in enumerate(states):
        if choose(8) == 0:
            continue
        rules = _ELEMENTWISE if choose(4) else _MOVES
        new = rules[shared if shared is not None and rules is _ELEMENTWISE else choose(len(rules))](parts(i))
        g.update(state, new)
        outputs += [new] * (choose(5) == 0)
    g.set_outputs(outputs or [inputs[0]])
    return g


def _steps(g: Any, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    inputs = [a for a in g.arguments if a.kind == "input"]
    return [
        {a.name: rng.integers(0, 9, a.shape.static).astype(a.shape.dtype.numpy) for a in inputs} for _ in range(_STEPS)
    ]


@pytest.mark.parametrize("host", [False, True], ids=["one_block", "host_work"])
@pytest.mark.parametrize("arch", _ARCHS)
@drawn("seed", range(200), of_each=2)
def test_states_are_overwritten_after_their_readers(seed: int, arch: str, host: bool) -> None:
    g = _program(seed, host)
    check_steps(rlx.Session(arch=arch).compile(g, kernels="off"), Reference(g), _steps(g, seed), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("update", ["one", "input", "twice", "shared"])
def test_many_states_of_one_update(update: str) -> None:
    """Each state is read by a separate output, and all updates share an operand."""
    g, outputs = rlx.Graph("order"), []
    first = g.input("x0", (3,), "i32")
    common = g.cumsum(first, 0)
    for i in range(5):
        s = g.state(f"s{i}", (3,), "i32")
        x = g.input(f"x{i}", (3,), "i32") if i else first
        outputs.append(s + x)
        g.update(s, {"one": s + 1, "input": s + x, "twice": s * 2 + 1, "shared": s + common}[update])
    g.set_outputs(outputs)
    check_steps(rlx.Session().compile(g, kernels="off"), Reference(g), _steps(g, 0))


def test_a_choice_between_a_choice_by_the_same_condition() -> None:
    """IREE may replace the second `where` by `b` if a third `where` in the same kernel reads `b`."""
    g: Any = rlx.Graph("choices")
    x, s, c, a, d = (g.input(name, (4, 3), "i32") for name in "xscad")
    b, m = s + 2, c > s
    first = g.where(m, a, b)
    g.set_outputs([first, g.where(m, first, b), g.where(d > s, x, b)])
    rng = np.random.default_rng(0)
    values = {name: rng.integers(-5, 5, (4, 3)).astype(np.int32) for name in "xscad"}
    found = rlx.Session().compile(g, cache=False, kernels="off").run(values)
    for got, wanted in zip(found, rlx.evaluate(g, values), strict=True):
        np.testing.assert_array_equal(got, wanted)
