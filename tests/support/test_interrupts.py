"""Interrupts in verifiers, passes and walks: they are not converted to other exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rlx
from rlx import mlir
from rlx.ir.op import opview, registry, verify
from rlx.passes import bind, decompose, native, rewrite, runner
from tests.interrupts import Interrupts


def graph() -> Any:
    g: Any = rlx.Graph("g")
    g.set_outputs([g.gelu(g.softmax(g.input("x", ("n", 4))))])
    return g


PIPELINE = "builtin.module(rlx-bind{n=3},rlx-decompose,canonicalize)"
USES: dict[str, Callable[[Any], Any]] = {
    "parse": lambda g: rlx.parse(str(g)),
    "verify": lambda g: g.verify(),
    "passes": lambda g: rlx.passes.run(g, PIPELINE),
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_an_interrupt_comes_out_and_leaves_a_context_that_works(use: Any) -> None:
    g = graph()
    expected = str(rlx.passes.run(g, PIPELINE))

    def work() -> None:
        verify._valid.clear()
        use(g)

    interrupts = Interrupts([verify, opview, registry, bind, decompose, native, rewrite, runner])
    steps = interrupts.steps(work)
    assert len(steps) > 20
    for step in steps:
        assert interrupts.at(step, work), f"the steps changed at {step}"
        assert not mlir.context().allow_unregistered_dialects
    assert str(rlx.passes.run(rlx.parse(str(g)), PIPELINE)) == expected
