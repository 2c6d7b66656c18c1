"""Argument groups: rules that take several operands or attributes as one object."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from rlx.ir.op.argument_groups import ArgumentGroup, takes_flat
from rlx.ops.contraction.contraction import DotDims

V = TypeVar("V")


@dataclass(frozen=True)
class Pair(ArgumentGroup):
    first: int
    second: int


@dataclass(frozen=True)
class Window(ArgumentGroup):
    stride: int
    padding: int = 0


def test_operands_and_attributes_are_grouped() -> None:
    def rule(x: Any, pair: Pair, y: Any, *, window: Window, axis: int) -> Any:
        return x, pair, y, window, axis

    flat: Any = takes_flat(rule)
    assert flat(1, 2, 3, 4, stride=5, padding=6, axis=7) == (1, Pair(2, 3), 4, Window(5, 6), 7)
    assert flat(1, 2, 3, 4, stride=5, axis=7)[3] == Window(5)
    assert list(inspect.signature(flat).parameters) == ["x", "first", "second", "y", "stride", "padding", "axis"]


def test_a_rule_without_groups_stays_itself() -> None:
    def rule(x: Any, *, axis: int) -> Any:
        return x, axis

    assert takes_flat(rule) is rule


def test_a_group_names_what_the_op_takes() -> None:
    assert DotDims((1,), (0,)).named == {
        "lhs_contracting": (1,),
        "rhs_contracting": (0,),
        "lhs_batch": (),
        "rhs_batch": (),
    }


@dataclass(frozen=True)
class Cell(ArgumentGroup, Generic[V]):
    state: V
    weight: V | None = None


def test_a_group_may_be_generic() -> None:
    def rule(x: Any, cell: Cell[int], *, axis: int = 3, **rest: Any) -> Any:
        return x, cell, axis, rest

    flat: Any = takes_flat(rule)
    assert flat(1, 2, 4, kind="sum") == (1, Cell(2, 4), 3, {"kind": "sum"})
    assert flat(1, 2) == (1, Cell(2), 3, {})


def test_a_field_that_is_missing_is_named() -> None:
    def rule(x: Any, *, window: Window) -> Any:
        return x, window

    with pytest.raises(TypeError, match="stride"):
        takes_flat(rule)(1, padding=2)  # pyright: ignore[reportCallIssue]
