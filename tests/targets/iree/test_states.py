"""States with new values of all kinds, in programs with several independent units, compared with the evaluator.

`test_updates.py` has hand-written programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlx
from tests.drawing import drawn, shares
from tests.targets.iree.state_programs import Reference, check_steps

_STEPS = 3
_SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (3, 2), (2, 1, 3))
_DTYPES = ("f32", "f64", "f16", "bf16", "c64", "bool", "i8", "i32", "i64", "u8", "u16", "u32", "u64")
_PROGRAMS_PER_DTYPE = 20
# Rounding errors accumulate over the steps. Numbers stay near 1.
_ROOM = {"f16": 2e-2, "bf16": 1e-1}


def _function(g: Any, a: Any) -> Any:
    """An elementwise function of any dtype whose values stay small."""
    if a.dtype.is_bool:
        return ~a
    if a.dtype.is_complex:
        return a * g.constant(np.complex64(0.5j))
    return g.sin(a) if a.dtype.is_float else a * 3


def _joined(g: Any, a: Any, b: Any) -> Any:
    if a.dtype.is_bool:
        return g.maximum(a, ~b)
    return a * b if a.dtype.is_float or a.dtype.is_complex else a - b


def _constant(g: Any, like: Any) -> Any:
    return g.constant(np.ones(like.shape.static, like.dtype.numpy))


def _running(g: Any, a: Any) -> Any:
    """A cumulative sum; for bool, another op that moves data."""
    if not a.rank:
        return a
    return ~g.reverse(a, [0]) if a.dtype.is_bool else g.cumsum(a, 0)


def _zero(g: Any, like: Any) -> Any:
    """A value that only a compiler recognises as constant, if it is a number."""
    return like if like.dtype.is_bool else like - like


# The new values of two states, from a graph, the states and an input.
_GIVEN: dict[str, Callable[[Any, Any, Any, Any], tuple[Any, Any]]] = {
    "inputs": lambda g, s, t, x: (x, x),
    "of_inputs": lambda g, s, t, x: (_function(g, x), _joined(g, x, x)),
    "of_themselves": lambda g, s, t, x: (_function(g, s), _joined(g, t, x)),
    "of_each_other": lambda g, s, t, x: (_function(g, t), _joined(g, s, t)),
    "exchanged": lambda g, s, t, x: (t, s),
    "moved_on": lambda g, s, t, x: (_function(g, x), s),
    "constants": lambda g, s, t, x: (_constant(g, x), _zero(g, x)),
    "moved_on_from_a_constant": lambda g, s, t, x: (_zero(g, x), s),
    "one_value": lambda g, s, t, x: (_joined(g, s, x),) * 2,
    "moved_about": lambda g, s, t, x: (g.reverse(s, [0]) if s.rank else s, _running(g, t)),
}
# The outputs, from the input, the old and the new values.
_SHOWN: dict[str, Callable[[Any, Any, Any, Any], Sequence[Any]]] = {
    "nothing": lambda g, x, old, new: [],
    "old": lambda g, x, old, new: old,
    "new": lambda g, x, old, new: new,
    "functions": lambda g, x, old, new: [_function(g, x), _joined(g, old[0], new[0])],
    "looped": lambda g, x, old, new: g.while_(lambda i, *_: i < 3, lambda i, a, b: (i + 1, b, a), 0, x, new[1])[1:],
}


class _Unit(NamedTuple):
    shape: tuple[int, ...]
    given: str
    shown: str


_UNITS = [_Unit(shape, given, shown) for shape, given, shown in product(_SHAPES, _GIVEN, _SHOWN)]


def _add(g: Any, x: Any, unit: _Unit, number: int, dtype: str) -> Sequence[Any]:
    """Add two states and their new values, and return the outputs."""
    old = [g.state(f"s{number}.{i}", unit.shape, dtype, init=(number + i) % 2) for i in range(2)]
    new = _GIVEN[unit.given](g, old[0], old[1], x)
    for state, value in zip(old, new, strict=True):
        g.update(state, value)
    return _SHOWN[unit.shown](g, x, old, new)


def _check(units: Sequence[_Unit], dtype: str) -> None:
    g: Any = rlx.Graph("states")
    inputs = {shape: g.input(f"x{len(shape)}", shape, dtype) for shape in _SHAPES}
    shown = [v for i, unit in enumerate(units) for v in _add(g, inputs[unit.shape], unit, i, dtype)]
    g.set_outputs(shown)
    room = _ROOM.get(dtype, 1e-4)
    steps = [_values(dtype, step) for step in range(_STEPS)]
    check_steps(rlx.Session().compile(g, kernels="off"), Reference(g), steps, rtol=room, atol=room)


def _values(dtype: str, step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    least = 0 if dtype.startswith("u") else -1
    return {f"x{len(s)}": np.asarray(rng.integers(least, 2, s)).astype(rlx.dtype(dtype).numpy) for s in _SHAPES}


@drawn("program", range(_PROGRAMS_PER_DTYPE * len(_DTYPES)), of_each=1)
def test_states_get_values_of_all_kinds(program: int) -> None:
    share, dtype = divmod(program, len(_DTYPES))
    _check(shares(_UNITS, _PROGRAMS_PER_DTYPE, lambda u: (u.given, u.shown))[share], _DTYPES[dtype])


@pytest.mark.parametrize(("given", "dtype"), [("of_inputs", "f32"), ("of_themselves", "bf16"), ("constants", "i64")])
def test_states_that_nothing_reads(given: str, dtype: str) -> None:
    """A program with only these states: the kernel that overwrites them is the first op."""
    _check([_Unit((3, 2), given, "nothing")], dtype)


def test_a_constant_for_a_state_and_for_the_caller() -> None:
    """The quirk `stored-results`, which was found with two swapped carries."""
    g: Any = rlx.Graph("states")
    x, s, t = g.input("x", (4, 4), "i64"), g.state("s", (4, 4), "i64"), g.state("t", (4, 4), "i64", init=1)
    zero = x - x
    _, rows = g.scan(lambda c, row: ((g.transpose(c[1], (1, 0)), c[0]), row), (x, s), zero)
    g.update(s, t)
    g.update(t, zero)
    g.set_outputs([zero, rows])
    steps = [{"x": np.full((4, 4), step, np.int64)} for step in range(_STEPS)]
    check_steps(rlx.Session().compile(g, kernels="off"), Reference(g), steps)


_W = np.arange(16, dtype=np.float32).reshape(4, 4)


def _given_to_states(g: Any) -> list[list[Any]]:
    """Results that states also get, directly or after a view: arguments, parameters, other states, and parts of them."""
    x, w, i = (
        g.input("x", (4,)),
        g.param("w", (4, 4), value=_W),
        g.input("i", ()),
    )
    chosen = g.if_(i > 0.0, lambda: x, lambda: w[0])
    other = g.if_(i > 0.0, lambda: x + 1.0, lambda: w[2])
    new = [w[-1], x, chosen, other, g.transpose(w, (1, 0))[1]]
    states = [g.state(f"s{n}", (4,), init=n) for n in range(len(new) + 1)]
    for state, value in zip(states, [*new, states[0]], strict=True):
        g.update(state, value)
    return [
        [w, *states],
        [x, g.concat([chosen, x], 0)],
        [chosen, g.concat([other, other], 0)],
        [w * 1.0, x + states[1]],
    ]


@pytest.mark.parametrize("results", range(4))
def test_states_that_get_what_is_given(results: int) -> None:
    """The quirks `stored-results` and `parts-in-branches`."""
    g: Any = rlx.Graph("states")
    g.set_outputs(_given_to_states(g)[results])
    steps = [{"x": np.full(4, step, np.float32), "i": np.float32(step % 2)} for step in range(_STEPS)]
    check_steps(rlx.Session().compile(g, kernels="off"), Reference(g, w=_W), steps)


def test_parts_of_parameters_from_branches() -> None:
    """The quirk `parts-in-branches`, without states. It depends on the order of the arguments."""
    g: Any = rlx.Graph("main")
    w, i, x = g.param("w", (4, 4), value=_W), g.input("i", ()), g.input("x", (4,))
    g.set_outputs([g.concat([g.if_(i > 0.0, lambda: x, lambda: w[0]), x], 0)])
    program = rlx.Session().compile(g, kernels="off")
    for number in (0, 1):
        inputs = {"x": np.full(4, 7, np.float32), "i": np.float32(number)}
        np.testing.assert_array_equal(program.run(inputs)[0], rlx.evaluate(g, inputs)[0])
