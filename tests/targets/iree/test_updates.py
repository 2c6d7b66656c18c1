"""States over several runs: states that are updated in place, states that must not be, and visible values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.iree.targets import target
from tests.conformance.random_graphs import seeded
from tests.drawing import drawn
from tests.targets.iree.iree_text import iree_text
from tests.targets.iree.state_programs import Reference, check_all, check_steps

_STEPS = 4
_PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {}


def program(kernels: int) -> Callable[[Callable[[Any, Any], Any]], None]:
    """Register a program: a function of a graph and a [3, 3] input. It adds states, updates them, and returns outputs.

    Args:
        kernels: The number of kernels that the passes emit: those that overwrite states, and a kernel that they wait for.
    """

    def add(build: Callable[[Any, Any], Any]) -> None:
        _PROGRAMS[build.__name__.strip("_")] = (build, kernels)

    return add


@program(1)
def _three_states_of_one_initial_value(g: Any, x: Any) -> Any:
    m, v, w = (g.state(name, (3, 3)) for name in "mvw")
    first, second = m * 0.9 + x * 0.1, v * 0.99 + x * x * 0.01
    for state, new in ((m, first), (v, second), (w, w - first / (g.sqrt(second) + 1e-3))):
        g.update(state, new)
    return g.sum(w * x)


@program(1)
def _read_by_other_ops(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 3), init=0.5)
    y = g.tanh(x @ w)
    g.update(w, w - g.transpose(y) @ x * 0.1)
    return y @ g.transpose(w), g.softmax(w)


@program(1)
def _of_rows_columns_and_numbers(g: Any, x: Any) -> Any:
    w, b, count = g.state("w", (3, 3)), g.state("b", (3,)), g.state("count", (), "i32")
    g.update(count, count + 1)
    g.update(w, w + b * g.reshape(x[:, 0], (3, 1)) + g.cast(count, "f32"))
    g.update(b, b + g.sum(w, 0) + 1.0)
    return g.mean(w)


@program(1)
def _each_reads_the_other(g: Any, x: Any) -> Any:
    a, b = g.state("a", (3, 3), init=1.0), g.state("b", (3,), init=2.0)
    g.update(a, g.tanh(a * b + x))
    g.update(b, g.sin(b + g.sum(a, 0)))
    return g.sum(a)


@program(1)
def _each_reads_the_other_turned_round(g: Any, x: Any) -> Any:
    a, b = g.state("a", (3, 3), init=1.0), g.state("b", (3,), init=2.0)
    g.update(b, g.sin(b * 0.5 + g.max(x, 0)))
    g.update(a, g.tanh(a * b + x) - b)
    return g.sum(a)


@program(2)
def _whole_numbers(g: Any, x: Any) -> Any:
    for name, kind in (("a", "i32"), ("b", "u8"), ("c", "bool")):
        state = g.state(name, (3, 3), kind)
        g.update(state, ~state if kind == "bool" else state * 3 + 1)
    return x


@program(1)
def _in_a_loop(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 3))
    last, _ = g.scan(lambda c, row: (g.sin(c + w + row), None), w * 2.0, x)
    g.update(w, w + last * x)
    return last


@program(2)
def _read_before_a_loop(g: Any, x: Any) -> Any:
    """The update waits for the results by an additional kernel, because it does not use them."""
    w = g.state("w", (3, 3), init=1.0)
    last, rows = g.scan(lambda c, row: (g.sin(c + row), c), g.cumsum(w, 0), x)
    g.update(w, w * 0.5 + g.max(x, 0))
    return last, rows


@program(2)
def _read_before_a_loop_and_updated_by_a_constant(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 3), init=1.0)
    last, _ = g.scan(lambda c, row: (g.sin(c + row), None), g.cumsum(w, 0), x)
    g.update(w, w * 0.5 + 1.0)
    return last


@program(4)
def _weights_of_a_recurrent_network(g: Any, x: Any) -> Any:
    u, w, o = (g.state(name, (3, 3), init=0.5) for name in "uwo")
    last, rows = g.scan(lambda c, row: (g.tanh(c @ w + row @ u), c), x, g.stack([x, x * 0.5]))
    error = last @ o - x
    back, _ = g.scan(lambda d, h: ((d * h) @ g.transpose(w), None), error @ g.transpose(o), rows)
    for state, gradient in ((o, g.transpose(last) @ error), (w, g.transpose(last) @ back), (u, g.transpose(x) @ back)):
        g.update(state, state - gradient * 0.1)
    return g.mean(error * error)


@program(0)
def _swapped(g: Any, x: Any) -> Any:
    a, b = g.state("a", (3, 3), init=1.0), g.state("b", (3, 3), init=2.0)
    g.update(a, b)
    g.update(b, a)
    return a * x + b


@program(0)
def _kept_in_another(g: Any, x: Any) -> Any:
    a, before = g.state("a", (3, 3)), g.state("before", (3, 3))
    g.update(a, a + x)
    g.update(before, a)
    return before * 1.0


@program(0)
def _kept_in_another_shape(g: Any, x: Any) -> Any:
    a, before = g.state("a", (3, 3)), g.state("before", (9,))
    g.update(a, a + x)
    g.update(before, g.reshape(a, (9,)))
    return before * 1.0


@program(0)
def _of_one_new_value(g: Any, x: Any) -> Any:
    a, b = g.state("a", (3, 3)), g.state("b", (3, 3))
    new = a * 0.5 + x
    g.update(a, new)
    g.update(b, new)
    return a - b


@program(0)
def _from_the_input(g: Any, x: Any) -> Any:
    a, b = g.state("a", (3, 3)), g.state("b", (3, 3))
    g.update(a, x)
    g.update(b, x)
    return a + b


@program(1)
def _from_the_input_and_from_itself(g: Any, x: Any) -> Any:
    a, b = g.state("a", (3, 3)), g.state("b", (3, 3))
    g.update(a, x)
    g.update(b, b * a + 1.0)
    return a + b


@program(0)
def _old_value_is_a_result(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 3))
    g.update(w, w + x)
    return w


@program(0)
def _new_value_is_a_result(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 3))
    new = w + x
    g.update(w, new)
    return new, g.sum(new)


@program(1)
def _read_at_other_places(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 3))
    g.update(w, w + g.transpose(w) * x + 0.1)
    return g.sum(w)


@program(1)
def _read_at_other_places_by_a_broadcast(g: Any, x: Any) -> Any:
    w = g.state("w", (3, 1))
    wide = g.state("wide", (3, 3))
    g.update(wide, wide + w + x)
    g.update(w, g.max(w + wide, 1, keep_dims=True))
    return g.sum(wide)


def _caches(g: Any) -> tuple[Any, Any, Any]:
    return g.state("keys", (1, 6, 3)), g.state("values", (1, 6, 3)), g.state("used", (1,), "i32")


@program(0)
def _caches_of_one_initial_value(g: Any, x: Any) -> Any:
    keys, values, used = _caches(g)
    rows = g.reshape(x[:1], (1, 1, 3))
    new_keys, new_values = g.update_cache(keys, rows, used), g.update_cache(values, rows * 2.0, used + 1)
    for state, new in ((keys, new_keys), (values, new_values), (used, used + 1)):
        g.update(state, new)
    q = g.reshape(x[1:2], (1, 1, 3))
    return g.cached_attention(q, new_keys, new_values, used, num_heads=1, head_dim=3), g.sum(new_keys * new_values)


@program(0)
def _cache_whose_old_value_is_read(g: Any, x: Any) -> Any:
    keys, values, used = _caches(g)
    rows = g.reshape(x, (1, 3, 3))
    new = g.update_cache(keys, rows, used)
    g.update(keys, new)
    g.update(values, g.update_cache(values, new[:, :2], used))
    g.update(used, used + 1)
    return g.sum(keys * new), keys * 1.0, new


@program(0)
def _caches_that_change_places(g: Any, x: Any) -> Any:
    keys, values, used = _caches(g)
    rows = g.reshape(x, (1, 3, 3))
    g.update(keys, g.update_cache(values, rows, used))
    g.update(values, g.update_cache(keys, rows * 3.0, used))
    g.update(used, used + 2)
    return g.sum(keys) + g.sum(values)


@program(2)
def _cache_of_pages(g: Any, x: Any) -> Any:
    keys, values, used = g.state("keys", (3, 2, 3)), g.state("values", (3, 2, 3)), g.state("used", (2,), "i32")
    rows, pages = g.reshape(x[:2], (2, 1, 3)), (used + g.constant([0, 2], dtype="i32")) // 2 % 3
    places = used % 2
    new_keys, new_values = g.update_cache(keys, rows, places, pages), g.update_cache(values, rows * 2.0, places, pages)
    for state, new in ((keys, new_keys), (values, new_values), (used, used + g.constant([1, 2], dtype="i32"))):
        g.update(state, new)
    table = g.constant([[0, 1, 2], [2, 2, 0]], dtype="i32")
    return g.cached_attention(rows, new_keys, new_values, used, table, num_heads=1, head_dim=3), g.sum(new_keys)


def _graph(name: str) -> rlx.Graph:
    graph: Any = rlx.Graph(name)
    outputs = _PROGRAMS[name][0](graph, graph.input("x", (3, 3)))
    graph.set_outputs(list(outputs) if isinstance(outputs, tuple) else [outputs])
    return graph


def _kernels(graph: rlx.Graph) -> int:
    text = iree_text(
        graph, replace(target("cpu"), kernel_cpu="")
    )  # a state that a kernel reads is not updated in place
    (main,) = [part for part in text.split('"func.func"') if f'sym_name = "{graph.name}"' in part]
    return main.count('"flow.dispatch.workgroups"')


@drawn("name", _PROGRAMS, of_each=3)
def test_states_over_several_runs(name: str) -> None:
    graph, rng = _graph(name), np.random.default_rng(0)
    compiled, reference = rlx.Session().compile(graph, kernels="off"), Reference(graph)
    for step in range(_STEPS):
        values = {"x": rng.standard_normal((3, 3)).astype(np.float32)}
        results, expected = compiled.run(values), reference.run(values)
        check_all(compiled, reference, results, expected)
        held = [np.array(r) for r in results], [compiled.state(n) for n in reference.states]
        if step == 1:  # set a state from an array that is then reused
            one = next(iter(reference.states))
            array = np.ones_like(reference.states[one])
            compiled.set_state(one, array)
            reference.states[one] = array.copy()
            array[...] = 0
        after = compiled.run(values), reference.run(values)
        check_all(compiled, reference, *after)
        for before, array in zip(held[0], results, strict=True):  # earlier results are unchanged
            np.testing.assert_array_equal(before, array)
    compiled.reset_state()
    reference = Reference(graph)
    check_all(compiled, reference, compiled.run(values), reference.run(values))


@pytest.mark.parametrize("name", _PROGRAMS)
def test_kernels(name: str) -> None:
    assert _kernels(_graph(name)) == _PROGRAMS[name][1]


@drawn("number", range(12), of_each=1)
def test_random_updates(number: int) -> None:
    """States of two shapes. The new value of a state may depend on all states."""
    choose, rng = seeded(number), np.random.default_rng(number)
    graph: Any = rlx.Graph("random")
    x = graph.input("x", (3, 3))
    states = [graph.state(f"s{i}", (3,) if i % 3 == 2 else (3, 3), init=float(i % 2)) for i in range(5)]
    known = [x, *states]
    for _ in range(10):
        a, b = (known[choose(len(known))] for _ in range(2))
        known.append(
            [
                lambda a=a, b=b: graph.tanh(a + b),
                lambda a=a, b=b: a * b * 0.5,
                lambda a=a: graph.sin(a),
                lambda a=a: graph.transpose(a) if a.rank == 2 else a,
                lambda a=a, b=b: graph.tanh(a @ b) if a.rank and b.rank else a,
                lambda a=a: graph.sum(a, 0) if a.rank == 2 else a * 2.0,
            ][choose(6)]()
        )
    for state in states:
        fitting = [t for t in known if t.shape.dims == state.shape.dims]
        graph.update(state, fitting[-1 - choose(min(3, len(fitting)))])
    graph.set_outputs([next(t for t in reversed(known) if t.rank)])
    compiled, reference = rlx.Session().compile(graph, kernels="off"), Reference(graph)
    check_steps(compiled, reference, ({"x": rng.standard_normal((3, 3)).astype(np.float32)} for _ in range(_STEPS)))


def test_a_state_is_not_overwritten_while_another_kernel_may_read_it() -> None:
    """The barrier before the product divides the program: only the operands of the update are complete before it."""
    g = rlx.Graph("main")
    w, x = g.state("w", (1, 10, 4)), g.input("x", (3, 4, 5))
    g.set_outputs([g.matmul(g.tanh(w), x)])
    g.update(w, w * 0.5 + 1.0)
    assert _kernels(g) == 2  # the update waits for a kernel that reads the result
    g = rlx.Graph("main")
    w, x = g.state("w", (1, 10, 4)), g.input("x", (3, 4, 5))
    y = g.matmul(g.tanh(w), x)
    g.set_outputs([y])
    g.update(w, w * 0.5 + g.sum(y))  # which waits for the product
    assert _kernels(g) == 1


def test_a_returned_argument_is_not_overwritten_by_a_scatter() -> None:
    """The argument is returned directly, or as a view."""
    g: Any = rlx.Graph("returned")
    x, rows, places = g.input("x", (5, 3)), g.input("rows", (2, 3)), g.constant(np.array([[1], [3]]))
    g.set_outputs([g.scatter_nd(x, places, rows, reduction="add"), g.reshape(x, (15,)), x])
    arrays = {"x": np.zeros((5, 3), np.float32), "rows": np.ones((2, 3), np.float32)}
    added, flat, same = rlx.Session(rlx.Device.CPU).compile(g, kernels="off").run(arrays)
    assert added.sum() == 6 and not flat.any() and not same.any()
