"""Plans in a module: they survive text, and a plan that does not fit is refused by name."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.plan import MemoryPlan, plan_memory, plan_of
from rlx.plan.execute import execute
from tests.drawing import drawn, graph_seed
from tests.passes.test_random_graphs import inputs, with_regions

_GRAPHS = 12


def planned(graph: Any, options: str = "") -> Any:
    return rlx.passes.run(graph, f"builtin.module(rlx-plan-memory{options})")


def same(one: MemoryPlan, other: MemoryPlan) -> bool:
    """Return whether two plans of the same ops are equal, except for the locations of the ops."""
    places = [[(v.name, v.offset, v.relation, v.base, v.start, v.end) for v in p.values] for p in (one, other)]
    return places[0] == places[1] and set(one.slots) == set(other.slots) and one.arena_size == other.arena_size


@pytest.mark.parametrize("number", range(_GRAPHS))
def test_plans_survive_text(number: int, seed: int) -> None:
    graph = with_regions(graph_seed(seed, number))
    options = {"alignment": 16, "f32_uniform": True, "allocate_params": True} if number % 3 == 0 else {}
    text = "{alignment=16 f32-uniform params}" if options else ""
    read = plan_of(rlx.parse(str(planned(graph, text))))
    assert same(read, plan_memory(graph, **options))
    for got, wanted in zip(execute(read, inputs(graph, 0)), rlx.evaluate(graph, inputs(graph, 0)), strict=True):
        assert got.tobytes() == wanted.tobytes()


@drawn("number", range(_GRAPHS), of_each=5)
def test_changed_plans_are_refused_or_right(number: int, seed: int) -> None:
    """If one number or word of a plan changes, the plan is refused or the results are the same."""
    graph = with_regions(graph_seed(seed, number))
    text, chance, refused = str(planned(graph)), random.Random(number), 0
    expected = rlx.evaluate(graph, inputs(graph, 0))
    for _ in range(12):
        changed = rlx.parse(_changed(text, chance))
        try:
            plan = plan_of(changed)
        except rlx.Error as problem:
            assert re.match("the memory plan of 'main' is (wrong|stale): ", problem.message), problem.message
            refused += 1
            continue
        for got, wanted in zip(execute(plan, inputs(graph, 0)), expected, strict=True):
            assert got.tobytes() == wanted.tobytes()
    assert refused


def _changed(text: str, chance: random.Random) -> str:
    """Return a text in which one plan has a changed number or lacks an entry."""
    spots = list(re.finditer(r"(offset|over|scratch|arena) = (\d+)( : i64)?|within = true|(?<=\d), over = \d+", text))
    spot = chance.choice(spots)
    if not spot[1]:
        return text[: spot.start()] + text[spot.end() :]
    number = chance.choice([int(spot[2]) + 64, max(0, int(spot[2]) - 64), 0, int(spot[2]) + 1])
    return f"{text[: spot.start()]}{spot[1]} = {number}{spot[3] or ''}{text[spot.end() :]}"


def test_a_function_without_a_plan_says_so() -> None:
    with pytest.raises(rlx.Error, match="function 'main' has no memory plan") as problem:
        plan_of(with_regions(1))
    assert problem.value.hint == "run rlx-plan-memory"


def chain() -> Any:
    g = rlx.Graph("main")
    x = g.input("x", (4, 4))
    y = g.exp(x)
    g.set_outputs([g.matmul(y, g.tanh(y))])
    return planned(g)


def test_ops_that_came_after_the_plan() -> None:
    g = chain()
    g.set_outputs([g.relu(g.tensor(g.function.entry_block.operations[2].operation.result))])
    with pytest.raises(rlx.Error, match="the memory plan of 'main' is stale: 'relu' is not in it"):
        plan_of(g)


def test_an_operand_that_lives_longer_than_planned() -> None:
    text = str(chain()).replace("rlx.matmul(%0, %1)", "rlx.matmul(%arg0, %1)")
    assert text != str(chain())
    with pytest.raises(rlx.Error, match="is stale: 'exp' must not be written over operand 0"):
        plan_of(rlx.parse(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("offset = 64}]", "offset = 0}]", r"wrong: x and %1 lie in the same bytes, from 0 on, and are in use together"),
        ("offset = 64}]", "offset = 32}]", r"wrong: %1 lies at byte 32, which is not a multiple of 64"),
        ("offset = 64}]", "offset = 640}]", r"wrong: %1 lies outside of the arena of 192 bytes"),
        ("offset = 64}]", "offset = -64}]", r"wrong: %1 lies outside of the arena"),
        ("[{offset = 64}]", "[{}]", r"stale: %1 has no place"),
        ("[{offset = 64}]", "7 : i64", r"wrong: 'rlx.memory' of 'tanh' is a list of dictionaries"),
        ("arena = 192", "arena = 256", r"wrong: the arena has 256 bytes, of which 192 are in use"),
        ("in_place = true", "in_place = 1 : i64", r"wrong: 'in_place' is of the wrong kind"),
        ("in_place = true, ", "", r"wrong: 'rlx.memory' of the function has to have alignment, "),
        ("alignment = 64", "alignment = 48", r"alignment 48 is not a power of two"),
        ("sizes = {}", "sizes = {n = -1 : i64}", r"wrong: 'sizes' are integers, of which none is negative"),
    ],
)
def test_wrong_plans(old: str, new: str, message: str) -> None:
    text = str(chain())
    assert old in text, text
    with pytest.raises(rlx.Error, match=message):
        plan_of(rlx.parse(text.replace(old, new)))


def test_symbols_have_the_sizes_that_the_plan_is_made_for() -> None:
    g = rlx.Graph("main")
    x = g.input("x", ("n", 4))
    g.set_outputs([g.matmul(x, g.transpose(x))])
    plan = plan_of(planned(g, "{n=3}"))
    assert plan.sizes == {"n": 3} and same(plan, plan_memory(g, sizes={"n": 3}))
    (got,) = execute(plan, {"x": np.ones((3, 4), np.float32)})
    np.testing.assert_array_equal(got, np.full((3, 3), 4, np.float32))
    with pytest.raises(rlx.Error, match=r"input 'x' must be f32\[3, 4\], which the plan is made for, got \[5, 4\]"):
        execute(plan, {"x": np.ones((5, 4), np.float32)})
    with pytest.raises(rlx.Error, match="a plan needs a size for n"):
        planned(g)
