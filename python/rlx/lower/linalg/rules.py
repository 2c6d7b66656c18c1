"""The table of lowering rules: one function for each primitive op, and for composites that are better lowered whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlx.ir.shape import Shape

RULES: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered value with the shape that it has in rlx; unsigned integers are stored signless."""

    value: Any
    shape: Shape


def lowers(op: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register `rule(low, results, *operands, **attributes)` for an op.

    `results` are the result shapes; operands are `Lowered`, None, or lists of them. The rule returns an MLIR value, or
    a tuple of them.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        assert op not in RULES or "." in op, op  # the file of a user's op may be run twice
        RULES[op] = rule
        return rule

    return register
