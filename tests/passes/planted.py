"""Wrong patterns for `rlx-simplify`, and graphs in which they apply."""

from __future__ import annotations

import random
from typing import Any

import pytest

import rlx
from rlx.ir.op import views
from rlx.passes.pattern import Pattern, Rewriter, pattern, producer
from rlx.passes.simplification import simplify


@pattern
def swapped_difference(op: views.Binary, rewriter: Rewriter) -> Any:
    """Exchange the operands of a difference from an exponential: the result is wrong."""
    if op.kind != "sub" or op.lhs.type != op.rhs.type:
        return None
    inner = producer(op.lhs, views.Activation)
    return rewriter.emit("binary", [op.rhs, op.lhs], kind="sub") if inner is not None and inner.kind == "exp" else None


@pattern
def missing_axis(op: views.Softmax, rewriter: Rewriter) -> Any:
    """Make a softmax along a missing axis. The builder would refuse it, so the verifier has to."""
    if op.axis > 2:
        return None
    made = rewriter.emit("softmax", [op.x], axis=op.axis)
    attribute = made.owner.operation.attributes
    attribute["axis"] = type(attribute["axis"]).get(attribute["axis"].type, 7)
    return made


@pattern
def raising(op: views.Softmax, rewriter: Rewriter) -> Any:
    """Raise an exception, like a programming mistake."""
    raise KeyError("no such axis")


def plant(monkeypatch: pytest.MonkeyPatch, wrong: Pattern) -> None:
    monkeypatch.setattr(simplify, "_EXACT", (*simplify._EXACT, wrong))  # type: ignore[attr-defined]


def chain(seed: int, ops: int = 60) -> Any:
    """Return a graph of `ops` ops with a match for each wrong pattern, and many for the right ones."""
    choose = random.Random(seed)
    g: Any = rlx.Graph("main")
    x, w = g.input("x", (4, 6)), g.param("w", (4, 6))
    values = [x, w]
    places = range(ops // 4, 3 * ops // 4)
    place = choose.choice(places)
    steps = [g.tanh, lambda v: v + choose.choice(values), lambda v: g.transpose(g.transpose(v)), lambda v: v * 1.0]
    for number in range(ops):
        if number == place:
            values.append(g.softmax(g.exp(g.tanh(values[-1])) - values[-1]))
            shown = values[-1]
        values.append(choose.choice(steps)(values[-1]))
    g.set_outputs([values[-1], g.neg(shown)])
    return g
