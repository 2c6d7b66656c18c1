"""The copies in the program of a loop whose carries are vectors, counted in IREE's IR."""

from __future__ import annotations

from typing import Any

import rlx
from rlx.targets.iree.compiler import compile_module, ir_after
from rlx.targets.iree.targets import target
from tests.targets.iree.vm_branches import lowered

_LENGTH = 1000


def copies_in_loop(without: str | None) -> int:
    """Return the number of copies of whole vectors in a program, optionally compiled without one pass."""
    g: Any = rlx.Graph("main")
    x, y, n = g.input("x", (_LENGTH,), "f32"), g.input("y", (_LENGTH,), "f32"), g.input("n", (), "i32")

    def step(i: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return i + 1, x + g.sum(y) * y, y - 0.5 * x

    g.set_outputs(list(g.while_(lambda i, x, y: i < n, step, g.constant(0, dtype="i32"), x + 1.0, y + 1.0))[1:])
    text, cpu = lowered(g, without), target("cpu")
    (ir,) = ir_after(("stream",), text, cpu, compile_module(text, cpu, timeout_s=60).flags_used, "main")
    size = f"%c{4 * _LENGTH}"
    return sum("stream.cmd.copy" in line and size in line for line in ir.splitlines())
