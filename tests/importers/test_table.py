"""The table of rules that all importers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.importers.table import ImportTable, constant
from rlx.ir.op.argument_groups import ArgumentGroup


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


@dataclass(frozen=True, kw_only=True)
class Steps(ArgumentGroup):
    """Attributes that several ops have."""

    stride: int
    dilation: int = 1


@dataclass(frozen=True, kw_only=True)
class Window(Steps):
    """The same, and one more."""

    pads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scaled(ArgumentGroup):
    """Operands that follow one another."""

    value: rlx.Tensor
    scale: rlx.Tensor
    zero: rlx.Tensor | None = None


def test_attributes_that_come_as_one_dataclass() -> None:
    seen: list[Any] = []

    def rule(g: Any, x: Any, *, window: Window, mode: str = "") -> Any:
        seen.append((window, mode))
        return x

    call(rule, stride=2)
    call(rule, stride=3, pads=(1, 1), mode="same")
    assert seen == [(Window(stride=2), ""), (Window(stride=3, pads=(1, 1)), "same")]
    for attributes, message in (({}, "f without 'stride'"), ({"stride": 1, "window": 2}, "f with 'window'")):
        with pytest.raises(rlx.UnsupportedError, match=f"m.mlir:3: {message} cannot be imported"):
            call(rule, **attributes)


def test_operands_that_come_as_one_dataclass() -> None:
    seen: list[Any] = []

    def rule(g: Any, a: Scaled, b: Scaled, *rest: Any, axis: int = 0) -> Any:
        seen.append((a, b, rest, axis))
        return a.value

    call(rule, 5, axis=1)
    call(rule, 8)
    names = [
        [None if t is None else t.name for t in (a.value, a.scale, a.zero, b.value, b.scale, b.zero)]
        for a, b, _, _ in seen
    ]
    assert names == [["x0", "x1", "x2", "x3", "x4", None], ["x0", "x1", "x2", "x3", "x4", "x5"]]
    assert [([t.name for t in rest], axis) for _, _, rest, axis in seen] == [([], 1), (["x6", "x7"], 0)]
    # The zero point of the first is needed, since operands follow it.
    with pytest.raises(rlx.UnsupportedError, match=r"with 4 operands cannot be imported: .*'b_scale'"):
        call(rule, 4)


def test_operands_that_are_left_out_as_a_whole() -> None:
    seen: list[Any] = []

    def rule(g: Any, x: Any, bias: Any = None, y: Scaled | None = None) -> Any:
        seen.append(y if y is None else y.scale.name)
        return x

    for count in (1, 2, 4):
        call(rule, count)
    assert seen == [None, None, "x3"]
    with pytest.raises(rlx.UnsupportedError, match="f without 'y_scale' cannot be imported"):
        call(rule, 3)


def test_a_dataclass_that_can_be_changed_is_an_attribute_as_others_are() -> None:
    @dataclass
    class Changed:
        size: int = 0

    def rule(g: Any, x: Any, *, how: Any) -> Any:
        return x

    rule.__annotations__["how"] = Changed
    call(rule, how=3)
    with pytest.raises(rlx.UnsupportedError, match="f with 'size' cannot be imported"):
        call(rule, how=3, size=1)


@pytest.mark.parametrize("count", [3, 5000])
def test_the_callers_array_stays_as_it_is(count: int) -> None:
    array = np.arange(count, dtype=np.float32)
    g = rlx.Graph()
    g.set_outputs(constant(g, array))
    np.testing.assert_array_equal(rlx.evaluate(g, {})[0], np.arange(count))
    assert array.flags.writeable
    assert not any(weight.flags.writeable for weight in g.weights.values())
