"""The table of rules from rlx ops to C. There are three kinds.

An *elementwise* rule gives one element of the result as an expression, from those of the operands at the same place, broadcast:
`rule(body, result, *scalars, **attributes)` gives a `Scalar`; one that *looks up* constants gets the operands themselves and
the index, `rule(body, index, result, *values, **attributes)`. A rule that *moves* elements says where one comes from:
`rule(body, index, result, *shapes, **attributes)` gives the index in the first operand. A rule of *loops* writes statements
for the whole result: `rule(kernel, result, *values, **attributes)`. Chains of the first two are computed in the loops of one
kernel, with at most one of the third: `grouping.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.op.argument_groups import takes_flat
from rlx.targets.lowering.table import LoweringTable, Rule

TABLE = LoweringTable("C")
RULES = TABLE.rules
claimed_ops = TABLE.claimed

ELEMENTWISE: set[str] = set()
LOOKS_UP: set[str] = set()
MOVES: set[str] = set()
# Bytes that the loops of an op need beside operands and result, by its operands and attributes: `scratch(values, result, …)`.
SCRATCH: dict[str, Callable[..., int]] = {}


def elementwise(op: str) -> Callable[[Rule], Rule]:
    """Register the rule of an elementwise op."""
    ELEMENTWISE.add(op)
    return TABLE.lowers(op)


def looks_up(op: str) -> Callable[[Rule], Rule]:
    """Register the rule of an elementwise op that needs to know which of its operands are constants."""
    LOOKS_UP.add(op)
    return elementwise(op)


def moves(op: str) -> Callable[[Rule], Rule]:
    """Register the rule of an op that moves elements."""
    MOVES.add(op)
    return TABLE.lowers(op)


def loops(op: str, scratch: Callable[..., int] | None = None) -> Callable[[Rule], Rule]:
    """Register the rule of an op with loops of its own, and the bytes of scratch memory that they need."""
    if scratch is not None:
        SCRATCH[op] = takes_flat(scratch)
    return TABLE.lowers(op)


@loops("constant")
def constant(kernel: Any, result: Any, *, value: Any) -> None:
    """A table where it is read, which the kernel that reads it makes."""
    raise AssertionError("constants are no kernels")
