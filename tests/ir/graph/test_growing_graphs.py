"""Large graphs: the work per argument, result or op does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.importers.table import constant
from tests.growth import check_linear


def params(count: int) -> Any:
    g: Any = rlx.Graph("params")
    g.set_outputs([g.param(f"p{i}", (2,)) for i in range(count)])
    return g


def states(count: int) -> Any:
    g: Any = rlx.Graph("states")
    for i in range(count):
        g.state(f"s{i}", (2,))
    for i in range(count):
        state = g.argument(f"s{i}")
        g.update(state, state + 1.0)
    return g


def constants(count: int) -> Any:
    g: Any = rlx.Graph("constants")
    g.set_outputs([constant(g, np.arange(4.0, dtype=np.float32), largest_literal=0) for _ in range(count)])
    return g


GRAPHS: dict[str, Callable[[int], Any]] = {f.__name__: f for f in (params, states, constants)}
USES: dict[str, Callable[[Any], Any]] = {
    "verify": lambda g: g.verify(),
    "clone": lambda g: g.clone(),
    "text": lambda g: rlx.parse(str(g)),
    "evaluate": lambda g: rlx.evaluate(g, {a.name: np.zeros(a.shape.static, np.float32) for a in g.arguments}),
    "names": lambda g: [g.argument(a.name).name for a in g.arguments],
}


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS)
def test_building(build: Callable[[int], Any]) -> None:
    check_linear(lambda count: lambda: str(build(count)))


@pytest.mark.parametrize("build", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_using(build: Callable[[int], Any], use: Callable[[Any], Any]) -> None:
    def work(count: int) -> Callable[[], Any]:
        g = build(count)
        return lambda: use(g)

    check_linear(work)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_module_always_has_all_arguments_and_results(is_read: bool) -> None:
    """The module is read once in between, or held all the time."""
    g: Any = rlx.Graph("g")
    module = g.module if is_read else None
    x, s = g.input("x", (2,)), g.state("s", (2,))
    assert not is_read or 'rlx.name = "s"' in str(module)
    g.update(s, x)
    g.set_outputs({"y": x + s})
    w = g.param("w", (2,))
    g.set_outputs({"z": x * w})
    text = str(module if is_read else g.module)
    assert text == str(g.module)
    g.verify()
    again = rlx.parse(text)
    assert [a.name for a in again.arguments] == ["x", "s", "w"]
    assert [(o.name, o.updates) for o in again.results] == [("z", None), ("next_s", "s")]
    assert (again.arguments, again.results) == (g.arguments, g.results)
