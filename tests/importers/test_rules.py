"""Errors of wrong importer rules name the rule, the op and its location. Ops have locations in the model."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx.importers.table import ImportTable
from rlx.ir.location import describe, location_at


def call(rule: Any, place: str | None = "model.toy:7") -> rlx.Graph:
    """Return a graph of one op, `twice`, of a format `Toy`."""
    imports = ImportTable("Toy")
    imports("twice")(rule)
    g = rlx.Graph()
    g.set_outputs(imports.build(g, "twice", [g.input("x", (2,))], {}, place=place))
    return g


@pytest.mark.parametrize(("result", "shown"), [(None, "NoneType"), (3, "int"), ([None], "NoneType"), ("ab", "str")])
def test_what_is_no_tensor(result: Any, shown: str) -> None:
    def rule(g: Any, x: Any) -> Any:
        return result

    with pytest.raises(rlx.Error) as caught:
        call(rule)
    assert f"model.toy:7: twice has a rule that returns {shown}; expected a tensor" in str(caught.value)
    assert f"see {__file__}:{rule.__code__.co_firstlineno}" in str(caught.value)


@pytest.mark.parametrize("kind", [KeyError, AttributeError, ZeroDivisionError])
def test_an_exception_of_a_rule_says_for_which_op(kind: type[Exception]) -> None:
    def rule(g: Any, x: Any) -> Any:
        raise kind("a bug")

    with pytest.raises(kind) as caught:
        call(rule)
    assert caught.value.__notes__ == ["raised by the rule of Toy for twice, at model.toy:7"]


@pytest.mark.parametrize("place", ["model.toy:7", "model.toy:7:3", "C:\\m.toy:7", "node 'conv1'"])
def test_ops_are_where_the_model_has_them(place: str) -> None:
    graph = call(lambda g, x: x + x, place)
    op = graph.function.entry_block.operations[0]
    assert describe(op.location) == describe(location_at(place))
    assert str(describe(op.location)).startswith(place)
    nowhere = call(lambda g, x: x + x, None)
    assert __file__ in str(nowhere.function.entry_block.operations[0].location)


def test_a_second_rule_for_an_op() -> None:
    imports = ImportTable("Toy")
    imports("a", "b")(lambda g, x: x)
    with pytest.raises(rlx.Error, match="Toy has two rules for b"):
        imports("b")(lambda g, x: x)
