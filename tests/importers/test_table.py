"""The table of rules that all importers share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.importers.table import ImportTable, constant


def call(rule: Any, operands: int = 1, **attributes: Any) -> Any:
    """Build an op, `f`, at line 3, with a table."""
    table = ImportTable("Test")
    table("f")(rule)
    g = rlx.Graph()
    return table.build(g, "f", [g.input(f"x{i}", (2,)) for i in range(operands)], attributes, place="m.mlir:3")


@pytest.mark.parametrize("kind", [TypeError, ValueError, KeyError, AttributeError, AssertionError, RecursionError])
def test_what_is_wrong_in_a_rule_is_not_said_of_the_model(kind: type[Exception]) -> None:
    def rule(g: Any, x: Any) -> Any:
        raise kind("a bug")

    with pytest.raises(kind, match="a bug") as caught:
        call(rule)
    assert caught.traceback[-1].name == "rule"


@pytest.mark.parametrize(
    ("operands", "attributes", "message"),
    [
        (0, {}, "m.mlir:3: f with 0 operands cannot be imported: missing a required argument: 'x'"),
        (2, {}, "m.mlir:3: f with 2 operands cannot be imported: too many positional arguments"),
        (1, {"axis": 0, "mode": 1}, "m.mlir:3: f with 'mode' cannot be imported"),
        (1, {"axis": 2}, "m.mlir:3: f: rlx.softmax"),
    ],
)
def test_what_a_rule_does_not_take_is_said_of_the_model(operands: int, attributes: Any, message: str) -> None:
    with pytest.raises(rlx.Error) as caught:
        call(lambda g, x, *, axis=0: g.softmax(x, axis=axis), operands, **attributes)
    assert message in str(caught.value)


@pytest.mark.parametrize("count", [3, 5000])
def test_the_callers_array_stays_as_it_is(count: int) -> None:
    array = np.arange(count, dtype=np.float32)
    g = rlx.Graph()
    g.set_outputs(constant(g, array))
    np.testing.assert_array_equal(rlx.evaluate(g, {})[0], np.arange(count))
    assert array.flags.writeable
    assert not any(weight.flags.writeable for weight in g.weights.values())
