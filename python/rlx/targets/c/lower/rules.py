"""The table of rules from rlx ops to C. There are three kinds.

An *elementwise* rule returns one element of the result as an expression of the operands' elements at the same index, after
broadcasting: `rule(body, result, *scalars, **attributes)` returns a `Scalar`. An elementwise rule that *looks up* constants
takes the operands themselves and the index: `rule(body, index, result, *values, **attributes)`. A rule that *moves* elements
maps indices: `rule(body, index, result, *shapes, **attributes)` returns the index in the first operand. A rule of *loops*
writes statements for the whole result: `rule(kernel, result, *values, **attributes)`. One kernel computes a chain of ops of
the first two kinds, with at most one op of the third kind: `grouping.py`.
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
# Scratch memory of an op's loops in bytes, from its operands and attributes: `scratch(values, result, …)`.
SCRATCH: dict[str, Callable[..., int]] = {}


def elementwise(op: str) -> Callable[[Rule], Rule]:
    """Register the rule of an elementwise op."""
    ELEMENTWISE.add(op)
    return TABLE.lowers(op)


def looks_up(op: str) -> Callable[[Rule], Rule]:
    """Register the rule of an elementwise op that looks up constants."""
    LOOKS_UP.add(op)
    return elementwise(op)


def moves(op: str) -> Callable[[Rule], Rule]:
    """Register the rule of an op that moves elements."""
    MOVES.add(op)
    return TABLE.lowers(op)


def loops(op: str, scratch: Callable[..., int] | None = None) -> Callable[[Rule], Rule]:
    """Register the rule of an op with its own loops, and the function for their scratch memory in bytes."""
    if scratch is not None:
        SCRATCH[op] = takes_flat(scratch)
    return TABLE.lowers(op)


@loops("constant")
def constant(kernel: Any, result: Any, *, value: Any) -> None:
    """Emit nothing: the kernel that reads a constant adds its table."""
    raise AssertionError("constants are no kernels")
